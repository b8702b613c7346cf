"""A keeper sends what it has looked at, whatever the job does meanwhile."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Callable

import pytest

from musterpoint.embedded.programs.checkpoint_keeper import Keeper
from musterpoint.embedded.programs.checkpoint_kinds import Unit, units_of


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
