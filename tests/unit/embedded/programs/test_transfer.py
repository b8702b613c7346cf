"""Files between a store and this host: what a store that throttles, lists oddly or is never reached makes of them."""

from __future__ import annotations

import math
import os
import threading
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, Callable

import pytest

from musterpoint.base.below import Tree
from musterpoint.embedded.programs import transfer
from musterpoint.embedded.programs.checkpoint_manifest import Shelf
from musterpoint.embedded.programs.transfer import (
    Crowd,
    DirectoryStore,
    Outgoing,
    Terms,
    checked,
    get_all,
    patiently,
    put_all,
    put_same,
)
from musterpoint.embedded.programs.transfer_s3 import UNKNOWN, Again, Item, OnBytes, Store, StoreError

SLOW_DOWN = StoreError("SlowDown", passing=True)


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfer, "LONGEST_PAUSE", 0.0)


def moved(store: Store, sizes: list[int], move: Callable[[int, OnBytes], None], notes: list[str]) -> None:
    Crowd(store, Terms(note=notes.append)).run(sizes, move)


class Throttled(Store):
    """A store that refuses every transfer that is begun while ``most`` others run, which end when many were refused."""

    at_once = 64

    def __init__(self, most: int) -> None:
        self.most, self.refused, self.done = most, 0, set[int]()
        self._lock, self._running = threading.Lock(), 0
        self._many_refused = threading.Event()

    def move(self, number: int, on_bytes: OnBytes) -> None:
        with self._lock:
            if self._running >= self.most:
                self.refused += 1
                if self.refused > transfer.FAILURES:
                    self._many_refused.set()
                raise SLOW_DOWN
            self._running += 1
        self._many_refused.wait(60)
        with self._lock:
            self._running -= 1
            self.done.add(number)


def test_many_that_are_refused_at_once_are_one_failure() -> None:
    store, notes = Throttled(10), list[str]()
    moved(store, [1] * 300, store.move, notes)
    assert len(store.done) == 300 and store.refused > transfer.FAILURES
    assert notes == ["SlowDown; it is tried again (1 of 7 times)"]


def test_a_store_that_refuses_everything_is_given_up() -> None:
    store = Throttled(0)
    with pytest.raises(StoreError, match="8 tries failed in a row, the last with: SlowDown"):
        moved(store, [1] * 300, store.move, [])
    assert store.refused < 8 * transfer.WINDOW  # fewer at a time, each time


@pytest.mark.parametrize("also", [0, 20])
def test_a_refusal_for_good_ends_at_once(also: int) -> None:
    """Also one of many that were begun before another failed."""

    def move(number: int, on_bytes: OnBytes) -> None:
        raise SLOW_DOWN if number < also else StoreError("AccessDenied")

    with pytest.raises(StoreError, match=r"^AccessDenied$"):
        moved(Throttled(0), [1] * 30, move, [])


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
    clock: Any = Clock()
    monkeypatch.setattr(transfer, "time", clock)
    monkeypatch.setattr(transfer, "LONGEST_PAUSE", 30.0)
    tried, notes = list[int](), list[str]()

    def call() -> None:
        tried.append(1)
        raise unreachable(True)

    with pytest.raises(StoreError, match=r"^nothing answered within \d+ s: Could not connect$"):
        patiently(call, Terms(note=notes.append))
    assert len(tried) < transfer.FAILURES and {*notes} == {"Could not connect; it is tried again for 30 s"}


def test_what_is_sent_gets_all_tries(monkeypatch: pytest.MonkeyPatch) -> None:
    clock: Any = Clock()
    monkeypatch.setattr(transfer, "time", clock)
    tries = transfer.Tries(lambda _: None, unreached=math.inf)
    for _ in range(transfer.FAILURES - 1):
        tries.failed(unreachable(True))
    with pytest.raises(StoreError, match=r"^8 tries failed in a row"):
        tries.failed(unreachable(True))


def test_a_store_that_has_answered_once_gets_all_tries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Be it with a refusal: who opens it anew for each try doesn't see that."""
    clock: Any = Clock()
    monkeypatch.setattr(transfer, "time", clock)
    left = [unreachable(False), *(unreachable(True) for _ in range(20))]

    def call() -> None:
        raise left.pop(0)

    with pytest.raises(StoreError, match=r"^8 tries failed in a row"):
        patiently(call, Terms())


def test_patiently() -> None:
    left = [SLOW_DOWN] * 5

    def call() -> int:
        if left:
            raise left.pop()
        return 7

    notes = list[str]()
    assert patiently(call, Terms(note=notes.append)) == 7 and len(notes) == 1
    with pytest.raises(StoreError, match=r"^gone$"):
        left.append(StoreError("gone"))
        patiently(call, Terms(note=notes.append))


def test_a_file_that_never_comes_as_it_was_listed_is_given_up() -> None:
    begun: list[int] = []

    def move(number: int, on_bytes: OnBytes) -> None:
        begun.append(number)
        raise Again("3 bytes came")

    with pytest.raises(StoreError, match="3 bytes came, 5 times in a row"):
        moved(Throttled(0), [0], move, [])
    assert len(begun) == transfer.REPEATS + 1


def test_a_store_that_replaces_what_is_to_be_made_once_is_refused(tmp_path: Path) -> None:
    """Two starts of a job could both own the place otherwise."""
    shelf = Shelf(str(tmp_path), {})
    assert (shelf.claim("j", "a"), shelf.claim("j", "b")) == (1, 2)
    assert "on b since" in shelf.owner_after(1) and not shelf.owner_after(2)
    with pytest.raises(StoreError, match="of the job 'j', and this is 'k'"):
        shelf.claim("k", "a")
    shelf._owners.write = lambda name, data, only_new=False: True  # type: ignore[method-assign]
    with pytest.raises(StoreError, match="this store replaces a file"):
        shelf.claim("j", "a")


@pytest.mark.parametrize(
    "name", ["../../escaped", "/tmp/x", "a//b", ".muster-part/record", "a/..", "a\0b", "n" * 256, "a/./b"]
)
def test_a_key_that_leads_elsewhere_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="s3://b/ck"):
        checked([Item("a", 1, ""), Item(name, 1, "")], "s3://b/ck")
    with pytest.raises(StoreError):
        DirectoryStore(str(tmp_path / "store")).write(name, b"")
    assert list(tmp_path.iterdir()) == []


class Odd(DirectoryStore):
    """Its list says another size than its files have."""

    def item(self, name: str) -> Item | None:
        return Item(name, 0, "1")

    def get(self, item: Item, path: str, on_bytes: OnBytes) -> None:
        Path(path).write_text("content")


def test_a_file_that_comes_in_another_size_is_given_up_and_one_of_no_said_size_is_taken(tmp_path: Path) -> None:
    def bring(size: int) -> None:
        items = [Item("a", size, "1")]
        get_all(Odd(str(tmp_path)), items, str(tmp_path / "train"), Terms())

    with pytest.raises(StoreError, match="a has 0 bytes in the store's list, and 7 came, 5 times in a row"):
        bring(0)
    assert not (tmp_path / "train" / "a").exists()
    bring(UNKNOWN)
    assert (tmp_path / "train" / "a").read_text() == "content"


CHANGES: dict[str, Callable[[Path], object]] = {
    "written": lambda path: path.write_text("more of it"),
    "the time": lambda path: os.utime(path, (1, 1)),
    "replaced": lambda path: path.rename(path.with_name("before")) and path.write_text("content"),
}


class Changing(DirectoryStore):
    """A store that changes what it takes as long as there are ``changes``."""

    def __init__(self, path: str, changes: list[Callable[[], object]]) -> None:
        super().__init__(path)
        self._changes = changes

    def put(self, file: BinaryIO, name: str, on_bytes: OnBytes) -> None:
        super().put(file, name, on_bytes)
        if self._changes:
            self._changes.pop()()


@pytest.mark.parametrize("how", CHANGES)
def test_what_changes_while_it_is_sent_is_sent_again(tmp_path: Path, how: str) -> None:
    path = tmp_path / "files" / "a"
    path.parent.mkdir()
    path.write_text("content")
    store = Changing(str(tmp_path / "store"), [partial(CHANGES[how], path)])
    outgoing = Outgoing(lambda: Tree(str(path.parent)).file("a"), "a", 7)
    with pytest.raises(Again, match="a was changed while it was sent"):
        put_same(store, outgoing, lambda _: None)
    put_all(store, [outgoing], Terms())
    assert (tmp_path / "store" / "a").read_bytes() == path.read_bytes()


def test_a_file_that_becomes_a_link_is_no_more_sent(tmp_path: Path) -> None:
    path, secret = tmp_path / "files" / "a", tmp_path / "secret"
    path.parent.mkdir()
    path.symlink_to(secret)
    secret.write_text("the machine's")
    outgoing = Outgoing(lambda: Tree(str(path.parent)).file("a"), "a", 7)
    with pytest.raises(StoreError) as error:
        put_all(DirectoryStore(str(tmp_path / "store")), [outgoing], Terms())
    assert error.value.local and not (tmp_path / "store").exists()
