"""Prefixes, rank lists and pipes."""

from __future__ import annotations

import os

import pytest

from musterpoint.processes.streams import open_pipe, pipe_size, prefix_of, ranks_of, same_file


@pytest.mark.parametrize(
    ("mode", "rank", "label", "prefix"),
    [
        ("none", 3, "both", b""),
        ("rank", 3, "both", b"[rank 3] "),
        ("rank", None, "both", b"[torchrun] "),
        ("host", 3, "stderr", b"[algo-2:3] "),
        ("mpi", 3, "both", b"[1,mpirank:3,algo-2]<stdout>:"),
        ("mpi", 3, "stderr", b"[1,mpirank:3,algo-2]<stderr>:"),
        ("mpi", None, "both", b""),
    ],
)
def test_prefixes(mode: str, rank: int | None, label: str, prefix: bytes) -> None:
    assert prefix_of(mode, "algo-2", rank, "torchrun", label) == prefix


def test_rank_lists() -> None:
    assert ranks_of("all") is None
    assert ranks_of("0, 8") == {0, 8}


@pytest.mark.parametrize(("streams", "kib"), [(0, 1024), (1, 1024), (16, 1024), (17, 512), (64, 256), (500, 64)])
def test_pipes_share_what_there_is(streams: int, kib: int) -> None:
    assert pipe_size(streams) == kib << 10


def test_only_our_end_of_a_pipe_never_blocks() -> None:
    read_end, write_end = open_pipe(1 << 20)
    try:
        assert not os.get_blocking(read_end)
        assert os.get_blocking(write_end)
        assert not os.get_inheritable(read_end)
        assert not os.get_inheritable(write_end)
        assert not same_file(read_end, 0) or read_end == 0
        assert same_file(read_end, write_end)
    finally:
        os.close(read_end)
        os.close(write_end)
    assert not same_file(write_end, 0)
