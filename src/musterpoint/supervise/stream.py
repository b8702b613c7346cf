"""One stream: a pipe from a process of this host, and what the pump knows of it."""

from __future__ import annotations

import os

from musterpoint.supervise.sink import Sink
from musterpoint.supervise.tail import Tail

LARGEST_PIPE, SMALLEST_PIPE, ALL_PIPES = 1 << 20, 64 << 10, 16 << 20


class Stream:
    """The read end of a pipe. ``sink`` and ``file`` are where its bytes go (None: nowhere).

    ``carry`` is an unfinished line held back since ``carry_since``; ``adopted`` are bytes that another thread than the
    pump's has read, to be written before anything else. ``ranked``: a rank's, not a launcher's or a service's.
    """

    __slots__ = ("adopted", "carry", "carry_since", "fd", "file", "prefix", "ranked", "sink", "tail")

    def __init__(
        self, fd: int, sink: Sink | None, file: Sink | None, prefix: bytes, tail: Tail, ranked: bool
    ) -> None:  # fmt: skip
        self.fd = fd
        self.sink = sink
        self.file = file
        self.prefix = prefix
        self.tail = tail
        self.ranked = ranked
        self.carry = b""
        self.carry_since = 0.0
        self.adopted: list[bytes] = []


def open_pipe(size: int) -> tuple[int, int]:
    """A pipe of ``size`` bytes where the system allows it: (read end, not blocking; write end, blocking)."""
    read_end, write_end = os.pipe()
    os.set_blocking(read_end, False)
    try:
        import fcntl

        fcntl.fcntl(write_end, fcntl.F_SETPIPE_SZ, size)
    except (ImportError, AttributeError, OSError):
        pass  # over the user's limit, or not Linux: smaller is fine
    return read_end, write_end


def prefix_of(mode: str, host: str, rank: int | None, name: str, label: str) -> bytes:
    """What ``--log-prefix`` puts before each line. ``mpi`` is the form in which SageMaker's ``mpirun`` tags them."""
    who = name if rank is None else str(rank)
    if mode == "rank":
        return f"[{who if rank is None else f'rank {rank}'}] ".encode()
    if mode == "host":
        return f"[{host}:{who}] ".encode()
    if mode == "mpi" and rank is not None:
        return f"[1,mpirank:{rank},{host}]<{'stderr' if label == 'stderr' else 'stdout'}>:".encode()
    return b""


def ranks_of(text: str) -> frozenset[int] | None:
    """``--log-ranks`` as a set; None for ``all``."""
    return None if text == "all" else frozenset(int(part) for part in text.split(","))


def same_file(one: int, other: int) -> bool:
    """Whether two descriptors lead to the same file. Closed ones are nobody's."""
    try:
        return os.path.samestat(os.fstat(one), os.fstat(other))
    except OSError:
        return one == other


def pipe_size(streams: int) -> int:
    """Bytes for each of ``streams`` pipes, a power of two: 16 MiB shared out, 64 KiB to 1 MiB each."""
    share = max(SMALLEST_PIPE, min(LARGEST_PIPE, ALL_PIPES // max(streams, 1)))
    return 1 << (share.bit_length() - 1)
