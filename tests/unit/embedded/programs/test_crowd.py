"""Many transfers at a time: what a store that throttles makes of them."""

from __future__ import annotations

import math
import threading
from pathlib import Path
from typing import Any, Callable

import pytest

from musterpoint.embedded.programs import crowd
from musterpoint.embedded.programs.checkpoint_manifest import Shelf
from musterpoint.embedded.programs.crowd import Crowd, Job, patiently
from musterpoint.embedded.programs.stores import StoreError

SLOW_DOWN = StoreError("SlowDown", passing=True)
Done = Callable[[Any], None]


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crowd, "LONGEST_PAUSE", 0.0)


class Throttled:
    """A store that refuses every transfer that is begun while ``most`` others run, which end when many were refused."""

    def __init__(self, most: int) -> None:
        self.most, self.refused, self.done = most, 0, set[int]()
        self._running = dict[int, Done]()
        self._many_refused = threading.Event()

    def begin(self, job: Job, on_bytes: Callable[[int], None], on_done: Done) -> None:
        if len(self._running) >= self.most:
            self.refused += 1
            if self.refused > crowd.FAILURES:
                self._many_refused.set()
            on_done(SLOW_DOWN)
            return
        self._running[job.number] = on_done

        def end() -> None:
            self._many_refused.wait(60)
            del self._running[job.number]
            self.done.add(job.number)
            on_done(None)

        threading.Thread(target=end).start()


def test_many_that_are_refused_at_once_are_one_failure() -> None:
    store, notes = Throttled(10), list[str]()
    jobs = [Job(number, str(number), 1) for number in range(300)]
    Crowd(lambda _: None, notes.append).run(jobs, store.begin, lambda _: "", lambda: None)
    assert len(store.done) == 300 and store.refused > crowd.FAILURES
    assert notes == ["SlowDown; it is tried again (1 of 7 times)"]


def test_a_store_that_refuses_everything_is_given_up() -> None:
    store = Throttled(0)
    with pytest.raises(StoreError, match="8 tries failed in a row, the last with: SlowDown"):
        Crowd(lambda _: None, lambda _: None).run(
            [Job(number, "", 1) for number in range(300)], store.begin, lambda _: "", lambda: None
        )
    assert store.refused < 8 * crowd.WINDOW  # fewer at a time, each time


@pytest.mark.parametrize("also", [0, 20])
def test_a_refusal_for_good_ends_at_once(also: int) -> None:
    """Also one of many that were begun before another failed."""

    def begin(job: Job, on_bytes: Callable[[int], None], on_done: Done) -> None:
        on_done(SLOW_DOWN if job.number < also else StoreError("AccessDenied"))

    with pytest.raises(StoreError, match=r"^AccessDenied$"):
        Crowd(lambda _: None, lambda _: None).run(
            [Job(number, "", 1) for number in range(30)], begin, lambda _: "", lambda: None
        )


def unreachable(is_unreachable: bool) -> StoreError:
    error = StoreError("Could not connect", passing=True)
    error.unreachable = is_unreachable
    return error


class Clock:
    """Each look at it takes a second."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        self.now += 1.0
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def test_a_store_that_was_never_reached_is_given_up_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crowd, "time", Clock())
    monkeypatch.setattr(crowd, "LONGEST_PAUSE", 30.0)
    tried, notes = list[int](), list[str]()

    def call() -> None:
        tried.append(1)
        raise unreachable(True)

    with pytest.raises(StoreError, match=r"^nothing answered within \d+ s: Could not connect$"):
        patiently(call, notes.append)
    assert len(tried) < crowd.FAILURES and {*notes} == {"Could not connect; it is tried again for 30 s"}


def test_what_is_sent_gets_all_tries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crowd, "time", Clock())
    tries = crowd.Tries(lambda _: None, unreached=math.inf)
    for _ in range(crowd.FAILURES - 1):
        tries.failed(unreachable(True))
    with pytest.raises(StoreError, match=r"^8 tries failed in a row"):
        tries.failed(unreachable(True))


def test_a_store_that_has_answered_once_gets_all_tries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Be it with a refusal: who opens it anew for each try doesn't see that."""
    monkeypatch.setattr(crowd, "time", Clock())
    left = [unreachable(False), *(unreachable(True) for _ in range(20))]

    def call() -> None:
        raise left.pop(0)

    with pytest.raises(StoreError, match=r"^8 tries failed in a row"):
        patiently(call, lambda _: None)


def test_patiently() -> None:
    left = [SLOW_DOWN] * 5

    def call() -> int:
        if left:
            raise left.pop()
        return 7

    notes = list[str]()
    assert patiently(call, notes.append) == 7 and len(notes) == 1
    with pytest.raises(StoreError, match=r"^gone$"):
        left.append(StoreError("gone"))
        patiently(call, notes.append)


def test_a_file_that_never_comes_as_it_was_listed_is_given_up() -> None:
    begun: list[int] = []

    def begin(job: Job, on_bytes: Callable[[int], None], on_done: Done) -> None:
        begun.append(job.number)
        on_done(None)

    with pytest.raises(StoreError, match="3 bytes came, 5 times in a row"):
        Crowd(lambda _: None, print).run([Job(0, "a", 0)], begin, lambda _: "3 bytes came", lambda: None)
    assert len(begun) == crowd.REPEATS + 1


def test_a_store_that_replaces_what_is_to_be_made_once_is_refused(tmp_path: Path) -> None:
    """Two starts of a job could both own the place otherwise."""
    shelf = Shelf(str(tmp_path), {})
    assert (shelf.claim("j", "a"), shelf.claim("j", "b")) == (1, 2)
    assert "on b since" in shelf.owner_after(1) and not shelf.owner_after(2)
    with pytest.raises(StoreError, match="of the job 'j', and this is 'k'"):
        shelf.claim("k", "a")
    shelf._owners.create = lambda name, data: True  # type: ignore[method-assign]
    with pytest.raises(StoreError, match="this store replaces a file"):
        shelf.claim("j", "a")
