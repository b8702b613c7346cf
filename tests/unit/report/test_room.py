"""The failure reason's room on the disk."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from musterpoint.job.model import Paths
from musterpoint.report import room


@pytest.mark.parametrize("can", [True, False])
def test_room_is_taken_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, can: bool) -> None:
    def fallocate(fd: int, offset: int, length: int) -> None:
        raise OSError

    if not can:
        monkeypatch.setattr(os, "posix_fallocate", fallocate, raising=False)
    paths = Paths(failure=str(tmp_path / "output" / "failure"))
    room.reserve(paths)
    assert sorted(os.listdir(tmp_path / "output")) == [".failure.reserved", ".outcome.json.reserved"]
    for path in (paths.failure, room.outcome_of(paths)):
        taken = os.stat(room.place(path))
        assert taken.st_size == 4096
        assert taken.st_blocks * 512 >= 4096


def test_where_there_is_none(tmp_path: Path) -> None:
    (tmp_path / "output").write_text("a file where the directory should be")
    room.reserve(Paths(failure=str(tmp_path / "output" / "failure")))
    room.reserve(Paths())
    assert room.place("") == ""
    assert os.listdir(tmp_path) == ["output"]
