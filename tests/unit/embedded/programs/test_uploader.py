"""Which files the uploader leaves alone for now, and when it gives up."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from musterpoint.embedded.programs import uploader
from musterpoint.embedded.programs.stores import StoreError
from musterpoint.embedded.programs.upload_ledger import version_of
from musterpoint.embedded.programs.uploader import QUIET, REFUSALS, REWRITTEN, Uploader, main


@pytest.fixture
def made(tmp_path: Path) -> Uploader:
    (tmp_path / "record").touch()
    (tmp_path / "files").mkdir()
    return Uploader({"directory": str(tmp_path / "files"), "record": str(tmp_path / "record")})


@pytest.mark.parametrize(
    ("unsure", "written", "age", "half"),
    [
        (False, False, 0.0, False),
        (False, None, 0.0, False),
        (False, True, 0.0, True),
        (True, False, 0.0, False),
        (True, True, 0.0, True),
        (True, None, 0.0, True),
        (True, None, QUIET + 5, False),
    ],
)  # fmt: skip
def test_half_written_files(
    made: Uploader, tmp_path: Path, unsure: bool, written: bool | None, age: float, half: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """``unsure``: nobody was heard to close it, it was moved, linked or found."""
    monkeypatch.setattr(uploader, "is_written", lambda path: written)
    path = tmp_path / "files" / "a"
    path.touch()
    os.utime(path, times=(time.time() - age, time.time() - age))
    version = version_of(str(path), str(path.parent))
    assert version is not None
    made._changed(str(path), closed=not unsure)
    assert made._is_half_written("a", str(path), version, 100.0) is half
    if written and not unsure:
        assert not made._is_half_written("a", str(path), version, 100.0 + REWRITTEN), "it would never go up"


def test_what_is_private_or_outside_is_nothing(made: Uploader, tmp_path: Path) -> None:
    for path in (".tmp.x/a", "../a"):
        made._changed(str(tmp_path / "files" / path), closed=True)
    assert made._ledger.is_idle


@pytest.mark.parametrize(("missing", "watch"), [("boto3", True), ("watchdog", True), ("boto3", False)])
def test_it_ends_at_once_where_it_lacks_something(
    missing: str, watch: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(uploader.signal, "signal", lambda *_: None)
    monkeypatch.setattr(uploader.importlib.util, "find_spec", lambda name: None if name == missing else object())
    assert main({"watch": watch}) == 1
    assert json.loads(capsys.readouterr().out) == {"lacks": missing}


def failure(passing: bool) -> StoreError:
    error = StoreError("it is refused", passing)
    error.kind = "refused"
    return error


class FakeBucket:
    """A bucket to which nothing gets but by the test; what is ``bad`` is refused for good."""

    def __init__(self, uploader: Uploader, bad: tuple[str, ...] = ()) -> None:
        self.sent: dict[str, int] = {}
        self._uploader, self._bad = uploader, bad

    def upload(self, path: str, file: str) -> None:
        self.sent[path] = 0
        if path in self._bad:
            self._uploader._done(path, failure(passing=False))

    def forget(self, path: str) -> None:
        self.sent.pop(path, None)


def turn(made: Uploader) -> None:
    made._begin_uploads()
    while not made._events.empty():
        made._handle(*made._events.get_nowait())


def test_one_file_that_is_refused_does_not_end_the_upload_of_another(made: Uploader, tmp_path: Path) -> None:
    for name in ("bad", "big"):
        (tmp_path / "files" / name).write_text("x")
    made._bucket = FakeBucket(made, bad=("bad",))  # type: ignore[assignment]
    made._finish(["finish", "1000"])
    for _ in range(20):
        turn(made)
        assert not made._is_over()
    assert set(made._ledger.uploading) == {"big"}
    assert made._problems == {"refused": REFUSALS}
    made._done("big", None)
    turn(made)
    assert made._is_over()


def test_what_goes_up_again_is_headway_again(made: Uploader, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr(uploader, "time", SimpleNamespace(time=time.time, monotonic=lambda: now))
    (tmp_path / "files" / "big").write_text("x" * 1000)
    made._bucket = far = FakeBucket(made)  # type: ignore[assignment]
    made._finish(["finish", "1000"])
    turn(made)
    far.sent["big"] = 900
    assert not made._is_over()
    made._done("big", failure(passing=True))
    turn(made)
    made._ledger.hurry()
    turn(made)
    for sent in (100, 200, 300):
        now += uploader.STALLED - 1
        far.sent["big"] = sent
        assert not made._is_over()
    now += uploader.STALLED - 1
    assert not made._is_over(), "S3 may take a while to put the parts together"
    now += 2
    assert made._is_over()


def test_an_s3_that_takes_everything_and_then_fails_gets_nowhere(
    made: Uploader, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """503 behind every body; all bytes leave this host again and again."""
    now = 1000.0
    monkeypatch.setattr(uploader, "time", SimpleNamespace(time=time.time, monotonic=lambda: now))
    (tmp_path / "files" / "one").write_text("x")
    made._bucket = far = FakeBucket(made)  # type: ignore[assignment]
    made._finish(["finish", "100000"])
    for _ in range(uploader.RESENT):
        turn(made)
        far.sent["one"] = 1
        assert not made._is_over()
        made._done("one", failure(passing=True))
        turn(made)
        now += uploader.NEVER - 1
    turn(made)
    far.sent["one"] = 1
    assert not made._is_over(), "an answer may still come"
    now += uploader.STALLED
    assert made._is_over()
