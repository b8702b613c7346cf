"""The streams of this host's processes: the pipe each comes through, its prefix, and the sinks it is written to."""

import errno
import os
import re
import select
import stat
from typing import Callable, Collection, Literal, Union

from musterpoint.base.errors import UsageError
from musterpoint.base.posix import fcntl
from musterpoint.base.records import NamedTuple
from musterpoint.core.processes.tail import Tail

Label = Literal["stdout", "stderr", "both"]
"""Which descriptor of its process a stream is; ``both`` where our own stdout and stderr are the same file."""
LABELS: tuple[Label, ...] = ("both", "stdout", "stderr")
Prefix = Literal["none", "rank", "host", "mpi"]
"""``--log-prefix``."""
Bytes = Union[bytes, memoryview]

STDERR = "stderr"
_GONE = (errno.EPIPE, errno.EIO, errno.EBADF, errno.ECONNRESET)


class Sink:
    """A file that streams are written to: our own stdout or stderr, a rank's log file.

    Written by one thread, which it may block. ``streams`` counts the streams that end here; ``last_stream`` is the one
    that wrote last with a prefix; ``mid_line``: the last byte was no line end. ``gone``: the reader
    has ended, so the pump reads on and discards. At any other error (a full disk) the current bytes are lost, and
    ``on_trouble`` is called once.
    """

    __slots__ = ("fd", "gone", "mid_line", "last_stream", "streams", "_on_trouble", "_reported")

    def __init__(self, fd: int, on_trouble: Callable[[OSError], None] | None = None) -> None:
        self.fd = fd
        self.streams = 0
        self.mid_line = False
        self.last_stream: object = None
        self.gone = False
        self._on_trouble = on_trouble
        self._reported = False

    def write(self, *parts: Bytes) -> None:
        """Writes all ``parts`` in order; returns when they are written or can't be."""
        if self.gone:
            return
        left = [part for part in parts if len(part)]
        if not left:
            return
        self.mid_line = left[-1][-1] != 10
        while left:
            try:
                left = after(left, os.writev(self.fd, left))
            except BlockingIOError:  # another process that shares this file made it non-blocking
                select.select([], [self.fd], [])
            except OSError as error:
                self.gone = error.errno in _GONE
                if not self.gone and not self._reported and self._on_trouble is not None:
                    self._reported = True
                    self._on_trouble(error)
                return

    def write_within(self, data: bytes, seconds: float) -> None:
        """Writes ``data`` if the reader takes it within about ``seconds``; drops it otherwise."""
        while data and not self.gone:
            try:
                if not select.select([], [self.fd], [], seconds)[1]:
                    return
                # a pipe that is ready has room for this much without blocking
                written = os.write(self.fd, data[: select.PIPE_BUF])
                self.mid_line = data[written - 1] != 10
                data = data[written:]
            except OSError:
                return

    def close(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
        self.fd, self.gone = -1, True


def log_file(path: str, on_trouble: Callable[[OSError], None]) -> Sink:
    """A sink that appends to the file at ``path``; one that drops everything if it can't be opened.

    Something else that the program may have put there (a link, a named pipe) is neither followed nor waited for.
    """
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o644)
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            os.close(fd)
            raise OSError(errno.EINVAL, "it is no file", path)
    except OSError as error:
        on_trouble(error)
        fd = -1
    sink = Sink(fd, on_trouble)
    sink.gone = fd < 0
    return sink


def after(parts: list[Bytes], written: int) -> list[Bytes]:
    """``parts`` without the first ``written`` bytes."""
    while parts and written >= len(parts[0]):
        written -= len(parts[0])
        parts = parts[1:]
    if written:
        parts = [memoryview(parts[0])[written:], *parts[1:]]
    return parts


LARGEST_PIPE, SMALLEST_PIPE, ALL_PIPES = 1 << 20, 64 << 10, 16 << 20


def pipe_size(streams: int) -> int:
    """Bytes for each of ``streams`` pipes, a power of two: 16 MiB shared out, 64 KiB to 1 MiB each."""
    share = max(SMALLEST_PIPE, min(LARGEST_PIPE, ALL_PIPES // max(streams, 1)))
    return 1 << (share.bit_length() - 1)


def open_pipe(size: int) -> tuple[int, int]:
    """A pipe of ``size`` bytes where the system allows it: (read end, not blocking; write end, blocking)."""
    read_end, write_end = os.pipe()
    os.set_blocking(read_end, False)
    try:
        fcntl.fcntl(write_end, fcntl.F_SETPIPE_SZ, size)
    except (ImportError, AttributeError, OSError):
        pass  # over the user's limit, or not Linux: smaller is fine
    return read_end, write_end


def prefix_of(mode: Prefix, host: str, rank: int | None, name: str, label: Label, role: str = "") -> bytes:
    """What ``--log-prefix`` puts before each line. ``mpi`` is the form in which SageMaker's ``mpirun`` tags them.
    ``role``: of the rank, in a job of several; other processes of roles have their role's name.
    """
    who = name if rank is None else str(rank)
    if mode == "rank":
        return f"[{who if rank is None else f'{role} rank {rank}'.strip()}] ".encode()
    if mode == "host":
        return f"[{role}.{host}{'' if rank is None else f':{who}'}] ".encode() if role else f"[{host}:{who}] ".encode()
    if mode == "mpi" and rank is not None:
        return f"[1,mpirank:{rank},{host}]<{'stderr' if label == 'stderr' else 'stdout'}>:".encode()
    return b""


def ranks_of(text: str, first_rank: int = 0) -> frozenset[int] | None:
    """``--log-ranks`` as a set of global ranks; None for ``all``. ``first_rank``: that of this host's local rank 0."""
    if text == "all":
        return None
    local = text.startswith("local:")
    ranks = (int(part) for part in text.removeprefix("local:").split(","))
    return frozenset(rank + first_rank if local else rank for rank in ranks)


def same_file(one: int, other: int) -> bool:
    """Whether two descriptors lead to the same file. Closed ones don't."""
    try:
        return os.path.samestat(os.fstat(one), os.fstat(other))
    except OSError:
        return one == other


class Sight:
    """A text that is looked for in the output of the process ``name``; empty: of a rank. Fed under the pump's lock."""

    def __init__(self, text: bytes, name: str) -> None:
        self._text, self._name = text, name
        self._begun: dict[int, bytes] = {}
        self.seen = False

    def is_of(self, rank: int | None, name: str) -> bool:
        """It is about that process."""
        return name == self._name if self._name else rank is not None

    def feed(self, number: int, data: Bytes) -> None:
        """``data`` has come from the stream of that number."""
        found = self._begun.get(number, b"") + bytes(data)
        self.seen = self.seen or self._text in found
        self._begun[number] = found[-len(self._text) :]


class Stream:
    """The read end of a process's pipe, and where its bytes go.

    ``sink`` and ``file`` are written to (None: not). ``unfinished`` is the beginning of a line, held back since
    ``unfinished_since``. ``read_ahead`` are bytes that another thread than the pump's has read, to be written before
    anything else. ``rank``: whose it is; None: a launcher's or a service's. ``number``: unique to the stream.
    ``marked`` finds the lines that have a prefix already, of a launch in the program; None: there is none.
    ``sights``: what is looked for in it.
    ``first_at``: when the first byte came, in seconds since the epoch; 0: none has come. ``on_end`` is called when the
    pipe's end has come.
    """

    __slots__ = (
        "fd",
        "file",
        "first_at",
        "marked",
        "number",
        "on_end",
        "prefix",
        "rank",
        "read_ahead",
        "sights",
        "sink",
        "tail",
        "unfinished",
        "unfinished_since",
    )

    def __init__(
        self, fd: int, sink: Sink | None, file: Sink | None, prefix: bytes, tail: Tail, rank: int | None, number: int
    ) -> None:
        self.fd = fd
        self.sink = sink
        self.file = file
        self.prefix = prefix
        self.tail = tail
        self.rank, self.number = rank, number
        self.first_at = 0.0
        self.marked: re.Pattern[bytes] | None = None
        self.unfinished = b""
        self.unfinished_since = 0.0
        self.read_ahead: list[bytes] = []
        self.sights: list[Sight] = []
        self.on_end: Callable[[], None] = lambda: None

    def has_launch(self) -> None:
        """A launch in the program puts such prefixes before lines itself."""
        self.marked = re.compile(re.sub(rb"\b%d\b" % (self.rank or 0), rb"\\d+", re.escape(self.prefix) or b"(?!)"))


class OutputOptions(NamedTuple):
    """Where the output of processes goes, and how it is marked.

    ``prefix`` is what stands before each line. ``host`` is this host's name in it. ``log_ranks`` are the global ranks
    whose output is forwarded (None: all); that of a process without a rank always is. ``log_dir`` (empty: none) gets
    one file per process; that of ``first_rank``, the first of this host, is locked against other jobs. ``outside``: the
    name of the program of a host outside the group, which is no rank. ``chatter``: lines of a framework's own, which
    come again and again while nothing goes on, and so end no silence.
    """

    prefix: Prefix = "none"
    host: str = ""
    log_ranks: Collection[int] | None = None
    log_dir: str = ""
    first_rank: int | None = None
    outside: str = ""
    role: str = ""
    is_alone: bool = False
    chatter: re.Pattern[bytes] | None = None


FORWARD_ALL = OutputOptions()
"""Everything is forwarded, without prefixes and files."""


def _locked(fd: int) -> bool:
    """Whether no other process has the file's lock; this one has it then, until the descriptor is closed."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        pass  # a disk without locks
    return True


class Outlets:
    """Makes the stream of each pipe, with the sinks it is written to.

    ``warn`` gets each error of a file (or of stdout or stderr) and its name, once for each.

    Raises:
        UsageError: ``log_dir`` can't be made, or another job writes there.
    """

    def __init__(self, out_fd: int, err_fd: int, options: OutputOptions, warn: Callable[[OSError, str], None]) -> None:
        self.shared = same_file(out_fd, err_fd)
        self.out = Sink(out_fd, lambda error: warn(error, "stdout"))
        self.err = self.out if self.shared else Sink(err_fd, lambda error: warn(error, STDERR))
        self._options, self._warn = options, warn
        self._own: dict[int, tuple[Sink, Sink]] = {}
        self._files: dict[str, Sink] = {}
        self._streams = 0
        if options.log_dir:
            try:
                os.makedirs(options.log_dir, exist_ok=True)
            except OSError as error:
                raise UsageError(f"--log-dir {options.log_dir}: can't make the directory: {error.strerror}") from None
            first = self._file(options.first_rank, "") if options.first_rank is not None else None
            if first is not None and first.fd >= 0 and not _locked(first.fd):
                raise UsageError(
                    f"--log-dir {options.log_dir}: another job, which still runs, writes rank-{options.first_rank}.log "
                    "there: give this one a directory of its own"
                )

    def forwards(self, rank: int | None) -> bool:
        """Whether the output of a rank is shown; that of other processes always is."""
        return rank is None or self._options.log_ranks is None or rank in self._options.log_ranks

    def give(self, rank: int, out_fd: int, err_fd: int) -> None:
        """From now on the output of ``rank`` goes to these descriptors."""
        out = Sink(out_fd, lambda error: self._warn(error, f"stdout of rank {rank}"))
        self._own[rank] = out, out if same_file(out_fd, err_fd) else Sink(err_fd)

    def of(self, rank: int | None) -> tuple[Sink, Sink]:
        """Where a process's stdout and stderr go; twice the same sink where they are the same file."""
        return (self.out, self.err) if rank is None else self._own.get(rank, (self.out, self.err))

    def tells_streams(self, rank: int | None) -> bool:
        """Tells whether the prefix of a rank's lines names the descriptor that they came from."""
        return self._options.prefix == "mpi" and rank is not None

    def stream(self, fd: int, rank: int | None, name: str, label: Label, tail_size: int) -> Stream:
        """The stream out of the pipe ``fd`` of a process."""
        sink = self.of(rank)[1 if label == "stderr" else 0]
        options = self._options
        alone = options.outside or (options.role if rank is not None and options.is_alone else "")
        role = "" if options.outside else options.role if rank is not None else name if options.role else ""
        who = (None, alone) if alone else (rank, name)
        prefix = prefix_of(options.prefix, options.host, *who, label, role)
        self._streams += 1
        return Stream(
            fd,
            sink if self.forwards(rank) else None,
            self._file(rank, name),
            prefix,
            Tail(tail_size),
            rank,
            self._streams,
        )

    def _file(self, rank: int | None, name: str) -> Sink | None:
        if not self._options.log_dir:
            return None
        options = self._options
        of_rank = f"{options.outside}-{options.host}.log" if options.outside else f"rank-{rank}.log"
        if options.role:
            of_rank = f"{options.role}.{options.host}.log" if options.is_alone else f"{options.role}.rank-{rank}.log"
            name = f"{name}.{options.host}" if name else name
        file = of_rank if rank is not None else f"{name or 'process'}.log"
        path = os.path.join(self._options.log_dir, file)
        if path not in self._files:
            self._files[path] = log_file(path, lambda error: self._warn(error, path))
        return self._files[path]

    def close(self) -> None:
        for file in self._files.values():
            file.close()
