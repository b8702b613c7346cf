"""Which files the uploader sends and when, and when it gives up; a store in memory stands for S3."""

from __future__ import annotations

import os
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Callable, Iterator

import pytest

from musterpoint.base.below import ForeignName
from musterpoint.embedded.programs import transfer, uploader
from musterpoint.embedded.programs.transfer import Outgoing, Record
from musterpoint.embedded.programs.transfer_s3 import OnBytes, StoreError
from musterpoint.embedded.programs.uploader import QUIET, REFUSALS, Uploader


class Store:
    """Ends a transfer when the test says so; what is ``bad`` is refused for good at once."""

    def __init__(self) -> None:
        self.bad: tuple[str, ...] = ()
        self.running: dict[str, tuple[Callable[[int], None], Callable[[Any], None]]] = {}
        self.begun: list[str] = []
        self.files: dict[str, Outgoing] = {}

    def send(self, file: Outgoing, name: str, on_bytes: Callable[[int], None], on_done: Callable[[Any], None]) -> None:
        self.begun.append(name)
        self.files[name] = file
        self.running[name] = on_bytes, on_done
        if name in self.bad:
            self.end(name, refusal(passing=False))

    def end(self, name: str, error: StoreError | None = None, sent: int = 0) -> None:
        on_bytes, on_done = self.running.pop(name)
        on_bytes(sent)
        on_done(error)


def refusal(passing: bool) -> StoreError:
    error = StoreError("it is refused", passing)
    error.kind = "refused"
    return error


class Driven(Uploader):
    """Its transfers end when the test says so."""

    def _send(self, store: Any, file: Outgoing, path: str, on_bytes: OnBytes) -> None:
        store.send(file, path, on_bytes, lambda error: self._events.put(("done", path, error)))


class Bench:
    """An uploader whose time is the test's."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.files, self.record, self.now = folder / "files", folder / "record", 1000.0
        self.files.mkdir()
        clock = SimpleNamespace(time=time.time, monotonic=lambda: self.now)
        for module in (uploader, transfer):
            monkeypatch.setattr(module, "time", clock)
        self.store = Store()
        self.records: list[Record] = []
        self.made = self.uploader()

    def uploader(self) -> Uploader:
        self.records.append(Record(str(self.record)))
        return Driven(str(self.files), self.records[-1], self.store)  # type: ignore[arg-type]

    def write(self, name: str, text: str = "x") -> None:
        (self.files / name).parent.mkdir(parents=True, exist_ok=True)
        (self.files / name).write_text(text)
        self.made.handle("changed", None, None)

    def turn(self, seconds: float = 0.0) -> list[str]:
        """Lets time pass; what was begun in it."""
        self.now += seconds
        before = len(self.store.begun)
        for _ in range(3):
            while not self.made._events.empty():
                self.made.handle(*self.made._events.get_nowait())
            self.made.turn()
        return self.store.begun[before:]

    def finish(self, seconds: float = 1e6) -> None:
        self.made.handle("finish", seconds, None)


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    made = Bench(tmp_path, monkeypatch)
    yield made
    for record in made.records:
        record.close()


def test_a_change_settles_first_and_what_is_up_stays_up(bench: Bench) -> None:
    bench.write("a")
    assert bench.turn(0.5) == []
    assert bench.turn(0.6) == ["a"]
    bench.write("a", "longer")  # while it goes up
    bench.store.end("a")
    assert bench.turn(1.1) == ["a"]
    bench.store.end("a")
    bench.write("b")
    assert bench.turn(1.1) == ["b"]
    bench.store.end("b")
    bench.turn()
    (bench.files / "b").unlink()
    successor = bench.uploader()
    with bench.record.open("a") as record:
        record.write('\n["half')
    bench.records.append(Record(str(bench.record)))
    assert sorted(bench.records[-1].known) == ["a", "b"]
    successor.handle("finish", 9.0, None)
    successor.turn()
    assert len(bench.store.begun) == 3, "what had gone up went up again"


def test_a_link_in_the_directorys_place_is_not_followed(bench: Bench, tmp_path: Path) -> None:
    bench.write("before")
    bench.files.rename(tmp_path / "elsewhere")
    bench.files.symlink_to(tmp_path / "elsewhere")
    bench.write("after")
    assert bench.turn(10.0) == []
    bench.files.unlink()
    bench.write("anew")
    assert bench.turn(10.0) == ["anew"]


@pytest.mark.parametrize("what", ["sub", "sub/a", ""])
def test_what_becomes_a_link_after_it_was_looked_at_isnt_sent(bench: Bench, tmp_path: Path, what: str) -> None:
    (tmp_path / "machine" / "sub").mkdir(parents=True)
    (tmp_path / "machine" / "sub" / "a").write_text("the machine's")
    bench.write("sub/a")
    assert bench.turn(1.1) == ["sub/a"]
    (bench.files / what).rename(tmp_path / "aside")
    (bench.files / what).symlink_to(tmp_path / "machine" / what)
    with pytest.raises((OSError, ForeignName)):
        bench.store.files["sub/a"].open()
    bench.store.end("sub/a", refusal(passing=True))
    bench.finish()
    assert bench.turn(60.0) == []


def test_what_never_goes_up(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    for name in (".tmp.x/a", "a", "sub/b"):
        bench.write(name)
    for name, target in (("link", "a"), ("out", "/etc/hostname"), ("circle", "."), ("nowhere", "missing")):
        (bench.files / name).symlink_to(target)
    (bench.files / os.fsdecode(b"caf\xe9")).write_text("x")
    assert sorted(bench.turn(1.1)) == ["a", "link", "sub/b"]
    said = capsys.readouterr().out
    assert "out is left out: it is a link to /etc/hostname" in said and "is no UTF-8" in said


@pytest.mark.parametrize(("written", "age", "goes"), [
    (False, 0.0, True), (True, 0.0, False), (True, 99.0, False), (None, 0.0, False), (None, QUIET + 5, True),
])  # fmt: skip
def test_a_file_that_may_be_half_written_waits(
    bench: Bench, written: bool | None, age: float, goes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uploader, "is_written", lambda path: written)
    bench.write("a")
    os.utime(bench.files / "a", times=(time.time() - age, time.time() - age))
    assert (bench.turn(1.1) == ["a"]) is goes
    bench.finish()
    assert goes or bench.turn() == ["a"], "at the end nothing waits"


def test_failures_pause_everything_longer_each_time_and_a_success_ends_that(bench: Bench) -> None:
    for number, name in enumerate("abcdef"):
        bench.write(name)
        os.utime(bench.files / name, times=(number, number))
    assert len(bench.turn(1.1)) == uploader.FILES
    for name in "abcd":
        bench.store.end(name, refusal(passing=False))
    assert bench.turn(1.0) == [] and len(bench.turn(60.0)) == 4
    bench.store.end("e")
    assert len(bench.turn()) == 1
    bench.finish()
    assert not bench.made._is_over()


def test_one_file_that_is_refused_does_not_end_the_upload_of_another(bench: Bench) -> None:
    bench.store.bad = ("bad",)
    for name in ("bad", "big"):
        bench.write(name)
    bench.finish()
    for _ in range(20):
        bench.turn()
        assert not bench.made._is_over()
    assert list(bench.store.running) == ["big"] and bench.made._problems == {"refused": REFUSALS}
    bench.store.end("big")
    bench.turn()
    assert bench.made._is_over()


def test_bytes_that_go_again_are_headway_and_an_end_without_any_is_the_end(bench: Bench) -> None:
    bench.write("big", "x" * 1000)
    bench.finish()
    bench.turn()
    bench.store.running["big"][0](900)
    assert not bench.made._is_over()
    bench.store.end("big", refusal(passing=True))
    bench.turn()
    assert bench.turn(10.0) == ["big"]
    for _ in range(3):
        bench.now += uploader.STALLED - 1
        bench.store.running["big"][0](100)
        assert not bench.made._is_over()
    bench.now += uploader.STALLED + 1
    assert bench.made._is_over()


def test_an_s3_that_takes_everything_and_then_fails_gets_nowhere(bench: Bench) -> None:
    """503 behind every body; all bytes leave this host again and again."""
    bench.write("one")
    bench.finish()
    for _ in range(uploader.RESENT + 30):
        bench.turn(uploader.LONGEST_FINAL_PAUSE)
        if bench.made._is_over():
            return
        if bench.store.running:
            bench.store.end("one", refusal(passing=True), sent=1)
    raise AssertionError("it never ends")
