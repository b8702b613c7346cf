"""The report's output: space on the disk for its files, set aside before the program can fill it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from musterpoint.core.job.model import Paths
from musterpoint.core.report.output_directory import RESERVED, OutputDirectory


@pytest.mark.parametrize("can", [True, False])
def test_space_is_taken_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, can: bool) -> None:
    def fallocate(fd: int, offset: int, length: int) -> None:
        raise OSError

    if not can:
        monkeypatch.setattr(os, "posix_fallocate", fallocate, raising=False)
    output = OutputDirectory(Paths(failure=str(tmp_path / "output" / "failure")))
    output.reserve()
    taken = {path.name: path.stat() for path in (tmp_path / "output").iterdir()}
    assert {name: found.st_size for name, found in taken.items()} == {
        f".{name}.reserved": size for name, size in RESERVED.items()
    }
    assert all(found.st_blocks * 512 >= found.st_size for found in taken.values())
    output.close()
    assert os.listdir(tmp_path / "output") == []


def test_what_a_killed_run_set_aside_is_replaced(tmp_path: Path) -> None:
    paths = Paths(failure=str(tmp_path / "failure"))
    OutputDirectory(paths).reserve()
    output = OutputDirectory(paths)
    output.reserve()
    output.close()
    assert os.listdir(tmp_path) == []


def test_where_there_is_none(tmp_path: Path) -> None:
    (tmp_path / "output").write_text("a file where the directory should be")
    for paths in (Paths(failure=str(tmp_path / "output" / "failure")), Paths()):
        output = OutputDirectory(paths)
        output.reserve()
        output.close()
    assert os.listdir(tmp_path) == ["output"]
