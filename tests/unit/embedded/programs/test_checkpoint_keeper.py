"""A keeper sends what it has looked at, whatever the job does meanwhile."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any, Callable

import pytest

from musterpoint.embedded.programs.checkpoint_keeper import Keeper
from musterpoint.embedded.programs.checkpoint_kinds import Unit, units_of
from musterpoint.embedded.programs.checkpoint_manifest import Entry, Part
from musterpoint.embedded.programs.checkpoint_sights import Gathering
from musterpoint.embedded.programs.transfer_s3 import StoreError


def keeper_of(folder: Path) -> Keeper:
    request: dict[str, Any] = {
        "directory": str(folder / "ck"), "uri": str(folder / "store"), "access": {}, "place": 0, "hosts": 1,
        "names": ("a",), "job": "j", "owner": 0, "keep": 3, "marks": (), "ranks": 1, "first": 0, "own": 1, "attempt": 0,
        "run": "r", "began": 0, "told": [],
    }  # fmt: skip
    return Keeper(request)


def sent(folder: Path) -> list[str]:
    return [path.read_text() for path in (folder / "store").rglob("*") if path.is_file()]


def swapped(path: Path, to: Path) -> None:
    path.rename(path.with_name(".aside"))
    path.symlink_to(to)


SWAPS: dict[str, Callable[[Path, Path], None]] = {
    "the folder": lambda directory, machine: swapped(directory / "step-1", machine / "step-1"),
    "the file": lambda directory, machine: swapped(directory / "step-1" / "a", machine / "step-1" / "a"),
    "the directory": lambda directory, machine: swapped(directory, machine),
    "where a link led": lambda directory, machine: swapped(directory.parent / "elsewhere", machine / "step-1"),
}


@pytest.fixture
def looked(tmp_path: Path) -> tuple[Keeper, Unit]:
    """A keeper, and the whole checkpoint that it sees: a file, and a link to a file elsewhere."""
    for folder in ("ck/step-1", "ck/step-2", "machine/step-1", "elsewhere"):
        (tmp_path / folder).mkdir(parents=True)
    for name in ("ck/step-1/a", "ck/step-2/a", "elsewhere/b"):
        (tmp_path / name).write_text("the job's")
    (tmp_path / "ck/step-1/b").symlink_to(tmp_path / "elsewhere" / "b")
    for name in "ab":
        (tmp_path / "machine/step-1" / name).write_text("the machine's")
    keeper = keeper_of(tmp_path)
    unit = next(unit for unit in units_of(keeper._looked()) if unit.name == "step-1")
    assert unit.is_whole and set(unit.files) == {"step-1/a", "step-1/b"}
    keeper._found[unit.name, unit.version] = False
    return keeper, unit


def test_a_file_and_what_a_link_leads_to_are_sent(looked: tuple[Keeper, Unit], tmp_path: Path) -> None:
    keeper, unit = looked
    keeper._transfer(unit, "files/0/x", 0)
    what, (_, part, *_, error) = keeper._events.get_nowait()
    assert what == "uploaded" and part is not None and error is None
    assert sent(tmp_path) == ["the job's"] * 2


@pytest.mark.parametrize("links", [True, False])
@pytest.mark.parametrize("swap", SWAPS)
def test_what_has_become_a_link_since_isnt_sent(
    looked: tuple[Keeper, Unit], tmp_path: Path, swap: str, links: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the file system knows no other names of a file."""
    keeper, unit = looked
    if not links:
        monkeypatch.setattr(os, "link", no_link)
    SWAPS[swap](tmp_path / "ck", tmp_path / "machine")
    keeper._transfer(unit, "files/0/x", 0)
    _, (_, part, *_, error) = keeper._events.get_nowait()
    assert part is None and error is not None
    assert "the machine's" not in sent(tmp_path)


def no_link(*_: object, **__: object) -> None:
    raise PermissionError


def _told(folder: Path, place: int) -> tuple[str, Part]:
    """Another host's part at the store, and the key that it tells."""
    data = f"of {place}".encode()
    entry = Entry(f"step1/w{place}", len(data), hashlib.sha256(data).hexdigest(), f"files/{place}/x/w", place, True)
    part, key = Part("step1", "step#", place, 3, (entry,), (), False, {}, 0), f"parts/{place}/x-000001.json"
    for name, content in ((entry.key, data), (key, json.dumps(part.plain()).encode())):
        (folder / "store" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "store" / name).write_bytes(content)
    return key, part


def _of_three(folder: Path) -> Keeper:
    (folder / "ck").mkdir()
    keeper = keeper_of(folder)
    keeper._hosts, keeper._request = 3, {**keeper._request, "hosts": 3, "names": ("a", "b", "c")}
    keeper._gathering = Gathering(3)
    keeper._gathering.add(_told(folder, 0)[1])
    for place in (1, 2):
        keeper._handle("part", {"place": place, "name": "step1", "key": _told(folder, place)[0]})
        keeper._handle("ended", place)
    return keeper


def test_no_checkpoint_is_whole_while_a_part_that_was_told_is_unread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store fails once: the host has ended, and has files all the same."""
    keeper = _of_three(tmp_path)
    read, failures = keeper._shelf.store.read, [StoreError("503 SlowDown", passing=True)]

    def failing(name: str) -> bytes | None:
        if name.startswith("parts/2/") and failures:
            raise failures.pop()
        return read(name)

    monkeypatch.setattr(keeper._shelf.store, "read", failing)
    keeper._read_parts()
    keeper._settle_parts()
    assert keeper._shelf.newest() is None
    keeper._read_parts()
    keeper._settle_parts()
    whole = keeper._shelf.newest()
    assert whole is not None and [entry.path for entry in whole.files] == [f"step1/w{place}" for place in range(3)]


@pytest.mark.parametrize(
    "key", ["parts/1/..", "parts/1/", "parts/1/.muster-x", "parts/1/a\0", "parts/2/x-000001.json", "x" * 5000]
)
def test_a_part_is_where_parts_of_its_host_are(key: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    keeper = _of_three(tmp_path)
    keeper._handle("part", {"place": 1, "name": "step1", "key": key})
    keeper._read_parts()
    keeper._settle_parts()
    assert "b's part of step1 is refused" in capfd.readouterr().out
    assert keeper._shelf.newest() is None and not keeper._unread


def test_a_part_whose_file_isn_t_there_is_refused(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    keeper = _of_three(tmp_path)
    (tmp_path / "store/files/2/x/w").write_text("short")
    keeper._read_parts()
    assert "c's part of step1 is refused: step1/w2 isn't at the store with its 4 bytes" in capfd.readouterr().out
