"""Copies the hosts' output: every byte to the host's log, lines to the terminal.

One thread reads from all hosts. So a slow reader of our output delays the hosts (as under Docker), but never a signal
or the job's end: a reader that takes nothing any more is then given up. The logs are complete all the same.
"""

from __future__ import annotations

import errno
import os
import re
import select
import stat
import threading
import time
from typing import Callable, Mapping

from musterpoint.base.loop import READ, WRITE, Loop
from musterpoint.core.processes.streams import Sink, log_file

CHUNK = 1 << 18
LONGEST_LINE = 1 << 16
UNFINISHED_SECONDS = 5.0
"""After so long an unfinished line is shown as it stands: a progress bar ends its line when it is through."""
COLOURS = (36, 33, 32, 35, 34, 91, 92, 93, 94, 95, 96)


def prefixes(hosts: tuple[str, ...], colour: bool, role_of: Mapping[str, str] = {}) -> dict[str, bytes]:
    """The prefix of each host's lines: empty for a single host, else its role and name, padded to the same width."""
    if len(hosts) == 1:
        return {hosts[0]: b""}
    names = [f"{role_of[host]}.{host}" if host in role_of else host for host in hosts]
    width, marks = max(map(len, names)), {}
    for index, (host, name) in enumerate(zip(hosts, names)):
        mark = f"{name:{width}} |"
        if colour:
            mark = f"\x1b[{COLOURS[index % len(COLOURS)]}m{mark}\x1b[0m"
        marks[host] = f"{mark} ".encode()
    return marks


class Lines:
    """Turns bytes into whole lines with ``prefix``. Without a prefix, bytes pass unchanged.

    Of a line that was overwritten from its start (``\\r``, as progress bars do) only what is left of it is shown.
    """

    def __init__(self, prefix: bytes) -> None:
        self.prefix = prefix
        self._rest = b""
        self._shown = b""
        self.changed: float | None = None
        """When the unfinished line was begun or, after it was shown, went on; None: nothing of it is to be shown."""

    def feed(self, data: bytes, now: float = 0.0) -> bytes:
        """What may be written now. An unfinished last line waits, unless it is longer than 64 KiB."""
        if not self.prefix:
            return data
        data = self._rest + data
        end = data.rfind(b"\n") + 1
        if len(data) - end > LONGEST_LINE:
            end = len(data)
        whole, self._rest = data[:end], recent(data[end:])
        if not self._rest:
            self.changed = None
        elif self.changed is None or whole:
            self.changed = now
        return self._marked(whole.removesuffix(b"\n")) if whole else b""

    def unfinished(self) -> bytes:
        """The unfinished line as it stands, with a line end; empty where it is as it was, or ends within a character.

        What follows is a line of its own, unless the line is overwritten.
        """
        if not at_rest(self._rest):
            return b""
        self.changed = None
        text = left(self._rest).rstrip(b"\r")
        if b"\r" not in self._rest:
            self._rest = b""
            return self._marked(text)
        shown = b"" if text == self._shown else self._marked(text)
        self._shown = text
        return shown

    def end(self) -> bytes:
        """The unfinished last line, with a line end added, so that no other host's line follows on the same line."""
        return self._marked(self._rest) if self._rest else b""

    def _marked(self, data: bytes) -> bytes:
        lines = list(map(left, data.split(b"\n"))) if b"\r" in data else data.split(b"\n")
        if self._shown and lines[0] == self._shown:
            del lines[0]
        self._shown = b""
        return b"".join(self.prefix + line + b"\n" for line in lines)


def left(line: bytes) -> bytes:
    """What is left of a line whose start was written to again (``\\r``)."""
    text = line.rstrip(b"\r")
    return text.rpartition(b"\r")[2] if b"\r" in text else line


def recent(line: bytes) -> bytes:
    """An unfinished line without what was overwritten long ago: a progress bar may be drawn for hours."""
    parts = line.split(b"\r")
    return b"\r".join((b"", *parts[-3:])) if len(parts) > 4 else line


_UNFINISHED = re.compile(rb"\x1b(?:[ -/]*|\[[0-?]*[ -/]*|[\]P^_X][^\x07\x1b]{0,4096}\x1b?)$")
"""The beginning of an escape sequence: what is written next belongs to it."""


def at_rest(data: bytes) -> bool:
    """Whether ``data`` ends where other bytes may follow: in no escape sequence, and in no character."""
    if _UNFINISHED.search(data[-4200:]):
        return False
    tail = data[-3:]
    for back, byte in enumerate(reversed(tail), 1):
        if byte < 0x80:
            return True
        if byte >= 0xC0:
            return byte >= 0xF8 or back >= (2 if byte < 0xE0 else 3 if byte < 0xF0 else 4)
    return True


OWN = b"musterpoint: "
"""Begins a line that musterpoint itself writes."""


class Pump:
    """Copies each host's pipe to its log and to the descriptor ``out``.

    It calls, in its own thread: ``on_output(host, data)``, with no data at the end; ``on_end(host)``; ``on_trouble``
    when a log can't be written; ``on_shown`` when all output that waited for the reader of ``out`` is written.
    """

    def __init__(
        self,
        out: int,
        on_end: Callable[[str], None],
        on_trouble: Callable[[OSError, str], None] = lambda *_: None,
        on_shown: Callable[[], None] = lambda: None,
        on_output: Callable[[str, bytes], None] = lambda *_: None,
    ) -> None:
        self._on_output = on_output
        self._on_end = on_end
        self._on_trouble = on_trouble
        self._loop = Loop()
        self._loop.prepare_posts()
        self.out = BufferedOutput(out, self._loop, on_shown)
        self._streams: dict[str, tuple[int, Sink, Lines]] = {}
        self.through: Callable[[bytes], bytes] = bytes
        """Makes what is written of what is to be shown; called in this pump's thread."""
        self._looking: set[str] = set()
        self.last_output: dict[str, float] = {}
        """When a program of each host last wrote something, on the monotonic clock; our own lines don't count."""
        self._thread = threading.Thread(target=self._loop.run, name="pump", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def add(self, host: str, fd: int, log: str, prefix: bytes) -> None:
        """Takes over ``fd``, the read end of the host's pipe; may be called before :meth:`start` and after."""
        os.set_blocking(fd, False)
        sink = log_file(log, lambda error: self._on_trouble(error, log))
        self._streams[host] = (fd, sink, Lines(prefix))
        self._loop.post(lambda: self._loop.watch(fd, READ, lambda _ready: self._serve(host)))

    def overlay(self, make: Callable[[], bytes], may_wait: bool = True) -> None:
        """Writes what ``make`` returns, which is no output of a host, between two pieces of it; from any thread.

        ``make`` is called in the pump's thread; not where the reader is slow, unless it ``may_wait`` for him.
        """

        def write() -> None:
            if may_wait or self.out.waiting_since is None:
                self.out.write(make())

        self._loop.post(write)

    def _serve(self, host: str) -> None:
        self._read(host)

    def _read(self, host: str) -> bool:
        """Copies one piece; False where there is none now."""
        fd, log, lines = self._streams[host]
        try:
            data = os.read(fd, CHUNK)
        except BlockingIOError:
            return False
        except OSError:  # a terminal that nobody has open any more
            data = b""
        if data:
            log.write(data)
            self._on_output(host, data)
            if any(line and not line.startswith(OWN) for line in data.splitlines()):
                self.last_output[host] = time.monotonic()
            self._show(lines.feed(data, self._loop.clock()))
            if lines.changed is not None and host not in self._looking:
                self._look_again(host, lines.changed + UNFINISHED_SECONDS)
        else:
            self._end(host)
        return bool(data)

    def _show(self, data: bytes) -> None:
        self.out.write(self.through(data))

    def _look_again(self, host: str, when: float) -> None:
        """Shows the host's unfinished line if it has waited for :data:`UNFINISHED_SECONDS` by ``when``."""
        self._looking.add(host)

        def look() -> None:
            self._looking.discard(host)
            if host not in self._streams:
                return
            lines, now = self._streams[host][2], self._loop.clock()
            if lines.changed is not None and now - lines.changed >= UNFINISHED_SECONDS:
                self._show(lines.unfinished())
            if lines.changed is not None:
                self._look_again(host, max(lines.changed + UNFINISHED_SECONDS, now + 1))

        self._loop.call_at(when, look)

    def _end(self, host: str) -> None:
        stream = self._streams.pop(host, None)
        if stream is None:
            return
        fd, log, lines = stream
        self._loop.forget(fd)
        self._show(lines.end())
        self._on_output(host, b"")
        os.close(fd)
        log.close()
        self._on_end(host)

    def close(self) -> None:
        """Copies the rest from the pipes and ends the thread. Bytes that ``out`` doesn't take are dropped."""

        def end_all() -> None:
            for host in list(self._streams):
                while host in self._streams and self._read(host):
                    pass
                self._end(host)
            self._loop.stop()

        if self._thread.is_alive():
            self.out.give_up()
            self._loop.post(end_all)
            self._thread.join()
        else:
            end_all()
        self.out.close()
        self._loop.close()


MOST_WAITING = 16 << 20
"""Bytes that may wait for a slow reader."""


class BufferedOutput:
    """Writes to a descriptor whose reader may be slow (-1: nobody reads).

    Bytes that the reader doesn't take at once wait in ``loop``; with more than :data:`MOST_WAITING` bytes the writer
    waits too. ``emptied`` is called when no bytes wait any more. ``waiting_since`` is the monotonic time since when
    the reader has taken nothing; None while no bytes wait. All methods but :meth:`give_up` are for the loop's thread.
    """

    def __init__(self, fd: int, loop: Loop, emptied: Callable[[], None] = lambda: None) -> None:
        own = _unblocked(fd)
        self._fd = fd if own is None else own
        self._owned = own is not None
        self._slice = select.PIPE_BUF if own is None else 1 << 20
        self._loop, self._emptied = loop, emptied
        self._left = bytearray()
        self.waiting_since: float | None = None
        self._wake_read, self._wake_write = os.pipe()
        loop.watch(self._wake_read, READ, lambda _ready: self._drop())

    @property
    def is_full(self) -> bool:
        """Whether the writer waits for the reader. May be asked from any thread."""
        return len(self._left) > MOST_WAITING

    def write(self, data: bytes) -> None:
        if self._fd < 0:
            return
        self._left += data
        self._flush()
        while self.is_full:
            if self._wake_read in select.select([self._wake_read], [self._fd], [])[0]:
                self._drop()
            else:
                self._flush()

    def _flush(self, _ready: int = WRITE) -> None:
        before = len(self._left)
        try:
            while self._left and (self._owned or select.select([], [self._fd], [], 0)[1]):
                with memoryview(self._left) as view:
                    written = os.write(self._fd, view[: self._slice])
                del self._left[:written]
        except BlockingIOError:
            pass
        except OSError as error:
            if error.errno == errno.ENOSPC:
                self._left.clear()  # a file on a full disk: later lines may fit
            else:
                self._drop()  # nobody reads any more; the logs go on
                return
        if not self._left:
            self._settle()
        elif self.waiting_since is None or len(self._left) < before:
            if self.waiting_since is None:
                self._loop.watch(self._fd, WRITE, self._flush)
            self.waiting_since = time.monotonic()

    def _drop(self) -> None:
        self._left.clear()
        self._settle()
        if self._owned:
            os.close(self._fd)
        self._fd, self._owned = -1, False
        self._loop.forget(self._wake_read)

    def _settle(self) -> None:
        if self.waiting_since is not None:
            self.waiting_since = None
            self._loop.forget(self._fd)
            self._emptied()

    def give_up(self) -> None:
        """Drops all waiting and later bytes. May be called from any thread."""
        os.write(self._wake_write, b"\0")

    def close(self) -> None:
        self._drop()
        os.close(self._wake_read)
        os.close(self._wake_write)


def _unblocked(fd: int) -> int | None:
    """A non-blocking descriptor of the same file, or None. ``fd`` itself, which others share, isn't changed."""
    try:
        mode = os.fstat(fd).st_mode
        if stat.S_ISREG(mode):
            return os.dup(fd)
        if stat.S_ISFIFO(mode) or stat.S_ISCHR(mode):
            return os.open(f"/proc/self/fd/{fd}", os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:
        pass
    return None


class MessageOutput:
    """Writes our own messages to a descriptor whose reader may be slow or gone.

    Bytes that the reader doesn't take now are written with the next message, or at the end.
    """

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._waiting = b""

    def write(self, data: bytes) -> None:
        self._waiting = (self._waiting + data)[-MOST_WAITING:]
        self._flush(0)

    def close(self, seconds: float) -> None:
        """Waits up to ``seconds`` for the reader to take the rest."""
        self._flush(seconds)

    def _flush(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        try:
            # a pipe that is ready takes this much at once
            while self._waiting and select.select([], [self._fd], [], max(0.0, until - time.monotonic()))[1]:
                self._waiting = self._waiting[os.write(self._fd, self._waiting[: select.PIPE_BUF]) :]
        except (OSError, ValueError):
            self._waiting = b""  # nobody to tell
