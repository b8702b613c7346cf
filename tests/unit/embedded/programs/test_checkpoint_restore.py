"""What a directory has once a checkpoint has been restored."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from musterpoint.embedded.programs import checkpoint_restore


def test_an_empty_folder_does_not_stay(tmp_path: Path) -> None:
    """A trainer takes the folder with the highest number, and may find nothing in it."""
    ours, empty = tmp_path / ".muster-checkpoints", tmp_path / "checkpoint-2000" / "parts"
    for each in (ours / "said", empty):
        each.mkdir(parents=True)
    assert checkpoint_restore._move_away(str(tmp_path), str(ours), set()) == 0
    assert [each.name for each in tmp_path.iterdir()] == [ours.name]
    assert (ours / "said").is_dir()


def test_a_folder_that_another_host_of_the_disk_removes_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    part, path = tmp_path / "part", tmp_path / "checkpoint-1" / "a.bin"
    part.write_text("all of it")
    replace, removals = os.replace, iter((True, True, False))

    def removed(source: str, target: str) -> None:
        if next(removals):
            os.rmdir(os.path.dirname(target))
        replace(source, target)

    monkeypatch.setattr(os, "replace", removed)
    checkpoint_restore._place(str(part), str(path))
    assert path.read_text() == "all of it"


def test_a_part_that_is_gone_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        checkpoint_restore._place(str(tmp_path / "part"), str(tmp_path / "checkpoint-1" / "a.bin"))
