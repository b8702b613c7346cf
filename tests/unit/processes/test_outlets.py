"""Where output goes, by rank, kind and options."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Iterator

import pytest

from musterpoint.errors import UsageError
from musterpoint.processes.streams import Outlets


@pytest.fixture
def ends() -> Iterator[tuple[int, int]]:
    pipes = [os.pipe(), os.pipe()]
    yield pipes[0][1], pipes[1][1]
    for pipe in pipes:
        for fd in pipe:
            os.close(fd)


def outlets(ends: tuple[int, int], prefix: str = "none", ranks: set[int] | None = None, folder: str = "") -> Outlets:
    return Outlets(*ends, prefix, "algo-1", ranks, folder, lambda error, path: None)


def test_stdout_and_stderr_are_one_where_ours_are(ends: tuple[int, int]) -> None:
    together = outlets((ends[0], ends[0]))
    assert together.shared
    assert together.stream(0, 0, "", "both", 64).sink is together.out is together.err
    apart = outlets(ends)
    assert not apart.shared
    assert apart.stream(0, 0, "", "stdout", 64).sink is apart.out
    assert apart.stream(0, 0, "", "stderr", 64).sink is apart.err


def test_hidden_ranks_have_no_outlet_but_their_file(ends: tuple[int, int], tmp_path: Path) -> None:
    some = outlets(ends, ranks={0}, folder=str(tmp_path / "logs"))
    assert [some.forwards(rank) for rank in (0, 1, None)] == [True, False, True]
    hidden, shown, launcher = (some.stream(0, rank, name, "both", 64) for rank, name in ((1, ""), (0, ""), (None, "x")))
    assert hidden.sink is None
    assert shown.sink is launcher.sink is some.out
    some.close()
    assert sorted(path.name for path in (tmp_path / "logs").iterdir()) == ["rank-0.log", "rank-1.log", "x.log"]


def test_streams_of_one_process_share_its_file_and_have_its_prefix(ends: tuple[int, int], tmp_path: Path) -> None:
    both = outlets(ends, "rank", folder=str(tmp_path))
    out, err = both.stream(0, 3, "", "stdout", 64), both.stream(0, 3, "", "stderr", 64)
    assert out.file is err.file is not None
    assert out.prefix == err.prefix == b"[rank 3] "
    both.close()


def test_a_folder_that_cannot_be_made(ends: tuple[int, int], tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match=r"--log-dir .*/file/logs: can't make the directory: Not a directory"):
        outlets(ends, folder=str(tmp_path / "file" / "logs"))
