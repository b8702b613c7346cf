"""The log pump: carries every byte the ranks write to our own stdout and stderr, untouched, in a thread of its own.

Nothing is decoded, stripped or put in another order, because the platform's metric expressions run on this stream.
One stream alone passes through as it comes. Between several, only whole lines are written; a line that isn't finished
within :data:`PATIENCE` goes out as it is. The thread may be blocked by whoever reads our output; nothing else waits
for it. Start it after the first spawns.
"""

from __future__ import annotations

import errno
import mmap
import os
import time
from threading import Lock, Thread
from typing import Collection

from musterpoint.loop import READ, Loop, Timer
from musterpoint.processes.streams import LARGEST_PIPE, Bytes, Outlets, Sink, Stream, open_pipe, pipe_size
from musterpoint.processes.tail import SIZE

PATIENCE = 0.02
"""Seconds an unfinished line is held back while other streams may write."""
BUFFER = 256 << 10
WAITING_MESSAGES = 1000
"""Messages of our own that wait for a blocked reader; older ones are dropped."""


class Pump:
    """Ranks' pipes in, our stdout and stderr (and log files) out.

    ``prefix`` is ``none``, ``rank``, ``host`` or ``mpi``; ``host`` is this host's name in it. ``log_ranks`` are the
    global ranks whose output is forwarded (None: all); a process without a rank always is. ``log_dir`` (empty: none)
    gets one file per process. ``streams`` is how many pipes are expected, for their size.

    ``last_output`` is the monotonic time at which the last byte of any process came in. ``launcher_last``: what was
    written last is a launcher's (or a service's), neither a rank's nor ours.

    Raises:
        UsageError: ``log_dir`` can't be made.
    """

    def __init__(
        self, *, out_fd: int = 1, err_fd: int = 2, prefix: str = "none", host: str = "",
        log_ranks: Collection[int] | None = None, log_dir: str = "", streams: int = 1,
    ) -> None:  # fmt: skip
        self._outlets = Outlets(out_fd, err_fd, prefix, host, log_ranks, log_dir, self._warn)
        self._err = self._outlets.err
        self._pipe_size = pipe_size(streams)
        self._streams: dict[int, Stream] = {}
        self._tails: dict[tuple[int | None, str, str], Stream] = {}
        self._messages: list[bytes] = []
        self._buffer = mmap.mmap(-1, BUFFER)
        self._view = memoryview(self._buffer)
        self._lock = Lock()
        self._loop = Loop()
        self._loop.prepare_posts()
        self._release_timer: Timer | None = None
        self._thread: Thread | None = None
        self._over = False
        self.last_output = time.monotonic()
        self.launcher_last = False

    def open(self, rank: int | None, local_rank: int | None = None, name: str = "") -> tuple[int, int]:
        """Makes the pipes of a process; returns the write ends for its stdout and stderr.

        Both are the same descriptor where our stdout and stderr are the same file. Neither is inheritable; the caller
        closes them after the spawn. May be called at any time. A process is known by ``rank`` and ``name`` together:
        a rank that is a launcher brings ranks of the same numbers.
        """
        if self._outlets.shared:
            end = self._pipe(rank, name, "both", SIZE)
            return end, end
        out = self._pipe(rank, name, "stdout", SIZE // 2)
        return out, self._pipe(rank, name, "stderr", SIZE)

    def start(self) -> None:
        """Starts the thread. An OSError: there is no room for one, and all is left to :meth:`drain`."""
        thread = Thread(target=self._in_thread, name="log-pump", daemon=True)
        try:
            thread.start()
        except RuntimeError:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN)) from None
        self._thread = thread

    def say(self, data: bytes) -> None:
        """Queues whole lines of our own for stderr, between whole lines of the ranks'. Returns at once."""
        if self._over:
            self._err.write_within(b"\n" + data if self._err.mid_line else data, 1.0)
            return
        self._messages.append(data)
        del self._messages[:-WAITING_MESSAGES]
        self._loop.post(self._speak)

    def tail(self, rank: int | None, name: str = "") -> bytes:
        """The end of what a process wrote (to stderr, where that is separate), up to the byte it wrote last.

        Doesn't wait for the thread: what is still in the pipe is read here and handed to it.
        """
        return self._tail(self._tails.get((rank, name, "both")) or self._tails.get((rank, name, "stderr")))

    def stdout_tail(self, rank: int | None, name: str = "") -> bytes:
        """The end of a process's stdout; empty where it shares a pipe with stderr."""
        return self._tail(self._tails.get((rank, name, "stdout")))

    def show(self, rank: int, name: str = "") -> None:
        """Writes the tail of a rank that ``log_ranks`` hides to stderr, for a rank that failed."""
        if not self._outlets.forwards(rank):
            text = self.tail(rank, name)
            self.say(text if text.endswith(b"\n") or not text else text + b"\n")

    def drain(self, timeout: float) -> bool:
        """Carries what the ended processes left in their pipes, then stops the thread.

        Doesn't wait for the end of a pipe that a surviving descendant holds open. Returns whether all was written
        within ``timeout`` seconds; if not (nobody reads our output), the thread is left behind.
        """
        deadline = time.monotonic() + timeout
        self._loop.post(lambda: self._finish(deadline))
        if self._thread is None:
            self._run()
        else:
            self._thread.join(timeout)
        return self._over

    # what follows runs in the thread, but for _pipe, _tail and _adopt

    def _pipe(self, rank: int | None, name: str, label: str, kept: int) -> int:
        read_end, write_end = open_pipe(self._pipe_size)
        stream = self._outlets.stream(read_end, rank, name, label, kept)
        self._tails[rank, name, label] = stream
        self._loop.post(lambda: self._watch(stream))
        return write_end

    def _warn(self, error: OSError, path: str) -> None:
        self.say(f"musterpoint: warning: {path}: {error.strerror}; output is missing there\n".encode())

    def _tail(self, stream: Stream | None) -> bytes:
        if stream is None:
            return b""
        with self._lock:
            self._adopt(stream)
            text = stream.tail.text()
        if not self._over:
            self._loop.post(lambda: self._serve(stream))
        return text

    def _adopt(self, stream: Stream) -> None:
        """Reads what is in the pipe now, for the thread to write later. Call it under the lock."""
        left = LARGEST_PIPE
        while left > 0 and stream.fd >= 0:
            try:
                data = os.read(stream.fd, left)
            except BlockingIOError:
                return
            if not data:
                return
            stream.tail.feed(memoryview(data))
            stream.adopted.append(data)
            left -= len(data)

    def _in_thread(self) -> None:
        _block_signals()
        self._run()

    def _run(self) -> None:
        self._loop.run()
        self._over = True
        self._outlets.close()

    def _watch(self, stream: Stream) -> None:
        self._streams[stream.fd] = stream
        if stream.sink is not None:
            stream.sink.streams += 1
        self._loop.watch(stream.fd, READ, lambda _ready: self._serve(stream))

    def _serve(self, stream: Stream) -> None:
        self._read(stream)

    def _read(self, stream: Stream) -> bool:
        """Carries one bufferful; false when nothing more is there."""
        if stream.fd < 0:
            return False
        with self._lock:
            adopted, stream.adopted = stream.adopted, []
            count = 0
            if not adopted:
                try:
                    count = os.readv(stream.fd, [self._view])
                except BlockingIOError:
                    return False
                stream.tail.feed(self._view[:count])
        self.last_output = time.monotonic()
        if adopted:
            for data in adopted:
                self._carry(stream, memoryview(data), data.rfind(b"\n"))
        elif count:
            self._carry(stream, self._view[:count], self._buffer.rfind(b"\n", 0, count))
        else:
            self._close(stream)
            return False
        return True

    def _carry(self, stream: Stream, data: memoryview, newline: int) -> None:
        """Writes what may be written of ``data``; ``newline`` is where its last line end is, or -1."""
        if stream.file is not None:
            stream.file.write(data)
        sink = stream.sink
        if sink is None:
            return
        raw = not stream.prefix and sink.streams == 1 and not (self._messages and sink is self._err)
        unfinished = len(data) - newline - 1 + (len(stream.carry) if newline < 0 else 0)
        cut = len(data) if raw or unfinished > BUFFER else newline + 1
        if cut:
            self._write(stream, sink, stream.carry, data[:cut])
            stream.carry, stream.carry_since = b"", 0.0
        if cut < len(data):
            stream.carry += bytes(data[cut:])
            stream.carry_since = stream.carry_since or self.last_output
            self._hold(stream.carry_since)
        if self._messages:
            self._speak()

    def _write(self, stream: Stream, sink: Sink, carry: bytes, data: Bytes) -> None:
        self.launcher_last = not stream.ranked
        if not stream.prefix:
            sink.write(carry, data)
            return
        text = carry + bytes(data)
        ended = text.endswith(b"\n")
        body = (text[:-1] if ended else text).replace(b"\n", b"\n" + stream.prefix)
        continued = sink.mid_line and sink.owner is stream
        sink.write(b"\n" if sink.mid_line and not continued else b"", b"" if continued else stream.prefix, body,
                   b"\n" if ended else b"")  # fmt: skip
        sink.owner = stream

    def _hold(self, since: float | None = None) -> None:
        if self._release_timer is None:
            due = (self._loop.clock() if since is None else since) + PATIENCE
            self._release_timer = self._loop.call_at(due, self._release)

    def _release(self) -> None:
        """Writes the lines that stayed unfinished for too long, and the messages that waited for them."""
        self._release_timer = None
        old = self._loop.clock() - PATIENCE
        held = [stream for stream in self._streams.values() if stream.carry]
        for stream in held:
            # after a standstill the rest of the line may be here
            if stream.carry_since <= old and not self._read(stream):
                self._let_go(stream)
        if waiting := [stream.carry_since for stream in held if stream.carry]:
            self._hold(min(waiting))
        self._speak(patient=False)

    def _let_go(self, stream: Stream) -> None:
        if stream.carry and stream.sink is not None:
            self._write(stream, stream.sink, stream.carry, b"")
        stream.carry, stream.carry_since = b"", 0.0

    def _speak(self, patient: bool = True) -> None:
        """Writes our own messages, unless somebody's line is unfinished on the same output."""
        if not self._messages:
            return
        if self._err.mid_line and patient:
            self._hold()
            return
        while self._messages:
            self.launcher_last = False
            self._err.write(b"\n" if self._err.mid_line else b"", self._messages.pop(0))

    def _close(self, stream: Stream) -> None:
        self._let_go(stream)
        self._loop.forget(stream.fd)
        del self._streams[stream.fd]
        if stream.sink is not None:
            stream.sink.streams -= 1
        with self._lock:
            os.close(stream.fd)
            stream.fd = -1

    def _finish(self, deadline: float) -> None:
        for stream in list(self._streams.values()):
            while self._read(stream) and time.monotonic() < deadline:
                pass
            if stream.fd >= 0:
                self._close(stream)
        self._speak(patient=False)
        self._loop.stop()


def _block_signals() -> None:
    """Leaves every signal to the main thread."""
    import signal

    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
