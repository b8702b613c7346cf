"""The log pump: carries every byte the ranks write to our own stdout and stderr, untouched, in a thread of its own.

Nothing is decoded, stripped or put in another order, because the platform's metric expressions run on this stream.
One stream alone passes through as it comes. Between several, only whole lines are written, and what a progress bar ends
with a carriage return; a line that isn't finished within :data:`HOLD_SECONDS` is written as it is. A slow reader of our
output may block the thread; nothing else waits for it. Start it after the first spawns.
"""

from __future__ import annotations

import errno
import mmap
import os
import signal
import time
from contextlib import nullcontext
from threading import Lock, Thread
from typing import Callable, Iterable

from musterpoint.base.loop import READ, Loop, Timer
from musterpoint.core.processes.streams import (
    FORWARD_ALL,
    LABELS,
    LARGEST_PIPE,
    STDERR,
    Bytes,
    Label,
    Outlets,
    OutputOptions,
    Sight,
    Sink,
    Stream,
    open_pipe,
    pipe_size,
)
from musterpoint.core.processes.tail import SIZE

HOLD_SECONDS = 0.2
"""Seconds an unfinished line is held back while other streams may write, from its first byte on: on a busy machine its
process may not be given a processor sooner.
"""
MESSAGE_SECONDS = 0.02
"""Seconds a message of our own waits for the end of a line that has been begun."""
BUFFER = 256 << 10
MOST_MESSAGES = 1000
"""Messages of our own that wait for a blocked reader; older ones are dropped."""


class Pump:
    """Ranks' pipes in, our stdout and stderr (and log files) out.

    ``out_fd`` and ``err_fd`` are our stdout and stderr. ``streams`` is how many pipes are expected, for their size.

    ``last_output`` is the monotonic time at which the last byte of any process came in that was no chatter.
    ``missing``: where output got lost, in a sentence each. ``launcher_last``: the last
    output was a launcher's or a service's.

    Raises:
        UsageError: ``log_dir`` can't be made.
    """

    def __init__(
        self, options: OutputOptions = FORWARD_ALL, *, out_fd: int = 1, err_fd: int = 2, streams: int = 1
    ) -> None:
        self._outlets = Outlets(out_fd, err_fd, options, self._warn)
        self._err = self._outlets.err
        self._pipe_size = pipe_size(streams)
        self._chatter = options.chatter
        self.missing: list[str] = []
        self._streams: dict[int, Stream] = {}
        self._tails: dict[tuple[int | None, str, Label], Stream] = {}
        self._messages: list[bytes] = []
        self._buffer = mmap.mmap(-1, BUFFER)
        self._view = memoryview(self._buffer)
        self._lock: Lock | nullcontext[None] = nullcontext()  # there is no thread yet
        self._loop = Loop()
        self._loop.prepare_posts()
        self._flush_timer: Timer | None = None
        self._message_timer: Timer | None = None
        self._thread: Thread | None = None
        self._over = False
        self.last_output = time.monotonic()
        self._silence = (self.last_output, 0.0)
        self.launcher_last = False
        self._sights: list[Sight] = []

    def look_for(self, text: str, name: str = "") -> Sight:
        """Looks for ``text`` in the output of what starts from now on: of the process ``name``; empty: of any rank."""
        sight = Sight(text.encode(), name)
        self._sights.append(sight)
        return sight

    def open(self, rank: int | None, name: str = "") -> tuple[int, int]:
        """Makes the pipes of a process; returns the write ends for its stdout and stderr.

        Both are the same descriptor where our stdout and stderr are the same file, and no prefix tells them apart.
        Neither is inheritable; the caller closes them after the spawn. May be called at any time. ``name`` is that of a
        process without a rank.
        """
        out_sink, err_sink = self._outlets.of(rank)
        if out_sink is err_sink and not self._outlets.tells_streams(rank):
            end = self._pipe(rank, name, "both", SIZE)
            return end, end
        out = self._pipe(rank, name, "stdout", SIZE // 2)
        return out, self._pipe(rank, name, "stderr", SIZE)

    def give(self, rank: int, out_fd: int, err_fd: int) -> None:
        """From now on the output of ``rank`` goes to these descriptors. Call it before the rank's :meth:`open`."""
        self._outlets.give(rank, out_fd, err_fd)

    def start(self) -> None:
        """Starts the thread. If that raises OSError (no more threads), :meth:`drain` does its work."""

        self._lock = Lock()
        thread = Thread(target=self._in_thread, name="log-pump", daemon=True)
        try:
            thread.start()
        except RuntimeError:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN)) from None
        self._thread = thread

    def write_message(self, data: bytes) -> None:
        """Queues whole lines of our own for stderr; they come between whole lines of ranks. Returns at once."""
        if self._over:
            self._err.write_within(b"\n" + data if self._err.mid_line else data, 1.0)
            return
        self._messages.append(data)
        del self._messages[:-MOST_MESSAGES]
        self._loop.post(self._write_messages)

    def tail(self, rank: int | None, name: str = "") -> bytes:
        """The end of what a process wrote (to stderr, where that is separate), up to the byte it wrote last.

        Doesn't wait for the thread: reads here what is still in the pipe, for the thread to write.
        """
        return self._tail(self._tails.get((rank, name, "both")) or self._tails.get((rank, name, "stderr")))

    def stdout_tail(self, rank: int | None, name: str = "") -> bytes:
        """The end of a process's stdout; empty where it shares a pipe with stderr."""
        return self._tail(self._tails.get((rank, name, "stdout")))

    def still_open(self, rank: int) -> dict[str, int]:
        """The pipes of a rank whose end hasn't come, as ``/proc/<pid>/fd`` names them, and the bytes that have.

        What they hold now is read here, for the thread to write.
        """
        found = {}
        for stream in self.streams_of(rank):
            with self._lock:
                if not self._read_ahead(stream):
                    found[f"pipe:[{os.fstat(stream.fd).st_ino}]"] = stream.tail.total
            self._serve_later(stream)
        return found

    def streams_of(self, rank: int) -> list[Stream]:
        """The pipes of a rank: one, or those of its stdout and its stderr."""
        streams = (self._tails.get((rank, "", label)) for label in LABELS)
        return [stream for stream in streams if stream is not None]

    def on_end(self, rank: int, call: Callable[[], None]) -> None:
        """Calls ``call`` in the thread when the end of one of the rank's pipes has come."""
        for stream in self.streams_of(rank):
            stream.on_end = call

    def first_output(self, rank: int) -> float | None:
        """When a rank wrote its first byte, in seconds since the epoch; None if it hasn't written."""
        return min((stream.first_at for stream in self.streams_of(rank) if stream.first_at), default=None)

    def longest_silence(self) -> tuple[float, float]:
        """The longest time without a byte of any process: since when, in seconds since the epoch, and its seconds."""
        now, last = time.monotonic(), self.last_output
        since, seconds = max(self._silence, (last, now - last), key=lambda silence: silence[1])
        return time.time() - (now - since), seconds

    def show(self, rank: int) -> None:
        """Writes the tail of a rank that ``log_ranks`` hides to stderr, for a rank that failed."""
        if not self._outlets.forwards(rank):
            text = self.tail(rank)
            self.write_message(text if text.endswith(b"\n") or not text else text + b"\n")

    def drain(self, timeout: float) -> bool:
        """Writes what the ended processes left in their pipes, then stops the thread.

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

    def close(self) -> None:
        """Gives its descriptors back once it is drained; messages can still be written."""
        if self._over:
            self._loop.close()

    # what follows runs in the thread, except for _pipe, _tail, streams_of, _serve_later and _read_ahead

    def _pipe(self, rank: int | None, name: str, label: Label, tail_size: int) -> int:
        read_end, write_end = open_pipe(self._pipe_size)
        stream = self._outlets.stream(read_end, rank, name, label, tail_size)
        stream.sights = [sight for sight in self._sights if sight.is_of(rank, name)]
        self._tails[rank, name, label] = stream
        self._loop.post(lambda: self._watch(stream))
        return write_end

    def _warn(self, error: OSError, path: str) -> None:
        self.missing.append(f"{path}: {error.strerror}; output is missing there")
        line, out = f"musterpoint: warning: {self.missing[-1]}\n".encode(), self._outlets.out
        if path == STDERR and out is not self._err:
            out.write(b"\n" if out.mid_line else b"", line)  # the log that is left
        else:
            self.write_message(line)

    def _tail(self, stream: Stream | None) -> bytes:
        if stream is None:
            return b""
        with self._lock:
            self._read_ahead(stream)
            text = stream.tail.text()
        self._serve_later(stream)
        return text

    def _serve_later(self, stream: Stream) -> None:
        if not self._over:
            self._loop.post(lambda: self._serve(stream))

    def _read_ahead(self, stream: Stream) -> bool:
        """Reads what is in the pipe now, for the thread to write later; returns whether its end has come.

        Call it under the lock.
        """
        left = LARGEST_PIPE
        while left > 0 and stream.fd >= 0:
            try:
                data = os.read(stream.fd, left)
            except BlockingIOError:
                return False
            if not data:
                return True
            stream.tail.feed(memoryview(data))
            for sight in stream.sights:
                sight.feed(stream.number, data)
            stream.read_ahead.append(data)
            left -= len(data)
        return stream.fd < 0

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
        """Reads and forwards one bufferful; false when nothing more is there."""
        if stream.fd < 0:
            return False
        with self._lock:
            read_ahead, stream.read_ahead = stream.read_ahead, []
            count = 0
            if not read_ahead:
                try:
                    count = os.readv(stream.fd, [self._view])
                except BlockingIOError:
                    return False
                stream.tail.feed(self._view[:count])
                for sight in stream.sights:
                    sight.feed(stream.number, self._view[:count])
        now = time.monotonic()
        if not self._is_chatter(read_ahead or [self._view[:count]]):
            if now - self.last_output > self._silence[1]:
                self._silence = (self.last_output, now - self.last_output)
            self.last_output = now
        if not stream.first_at and (read_ahead or count):
            stream.first_at = time.time()
        if read_ahead:
            for data in read_ahead:
                self._forward(stream, memoryview(data), _end_of_lines(data, len(data)))
        elif count:
            self._forward(stream, self._view[:count], _end_of_lines(self._buffer, count))
        else:
            self._close(stream)
            return False
        return True

    def _is_chatter(self, parts: Iterable[Bytes]) -> bool:
        return self._chatter is not None and all(self._chatter.fullmatch(part) for part in parts)

    def _forward(self, stream: Stream, data: memoryview, end: int) -> None:
        """Writes what may be written of ``data``, whose first ``end`` bytes are whole lines."""
        if stream.file is not None:
            stream.file.write(data)
        sink = stream.sink
        if sink is None:
            return
        alone = not stream.prefix and sink.streams == 1
        held = len(data) - end + (0 if end else len(stream.unfinished))
        cut = len(data) if held > BUFFER or (alone and not self._messages) else end
        if cut:
            self._write(stream, sink, stream.unfinished, data[:cut])
            stream.unfinished, stream.unfinished_since = b"", 0.0
        if self._messages:
            self._write_messages()
        if cut < len(data):
            stream.unfinished += bytes(data[cut:])
            if alone:
                self._flush(stream)
                return
            stream.unfinished_since = stream.unfinished_since or self.last_output
            self._flush_later(stream.unfinished_since)

    def _write(self, stream: Stream, sink: Sink, begun: bytes, data: Bytes) -> None:
        self.launcher_last = stream.rank is None
        if not stream.prefix:
            sink.write(begun, data)
            return
        text = begun + bytes(data)
        ended = text.endswith(b"\n")
        body = text[:-1] if ended else text
        continued = sink.mid_line and sink.last_stream is stream
        first = b"" if continued else stream.prefix
        if stream.marked is None:
            body = body.replace(b"\n", b"\n" + stream.prefix)
        else:
            lines = body.split(b"\n")
            bare = (line if stream.marked.match(line) else stream.prefix + line for line in lines[1:])
            first, body = b"" if stream.marked.match(body) else first, b"\n".join((lines[0], *bare))
        sink.write(b"\n" if sink.mid_line and not continued else b"", first, body, b"\n" if ended else b"")
        sink.last_stream = stream

    def _flush_later(self, since: float) -> None:
        if self._flush_timer is None:
            self._flush_timer = self._loop.call_at(since + HOLD_SECONDS, self._flush_due)

    def _flush_due(self) -> None:
        """Writes the lines that have been unfinished for too long."""
        self._flush_timer = None
        old = self._loop.clock() - HOLD_SECONDS
        waiting = [stream for stream in self._streams.values() if stream.unfinished]
        for stream in waiting:
            # after this process stood still, the rest of the line may have come
            if stream.unfinished_since <= old and not self._read(stream):
                self._flush(stream)
        if since := [stream.unfinished_since for stream in waiting if stream.unfinished]:
            self._flush_later(min(since))

    def _flush(self, stream: Stream) -> None:
        if stream.unfinished and stream.sink is not None:
            self._write(stream, stream.sink, stream.unfinished, b"")
        stream.unfinished, stream.unfinished_since = b"", 0.0

    def _write_messages(self, at_once: bool = False) -> None:
        """Writes our own messages; unless ``at_once``, not into an unfinished line of a process."""
        if not self._messages:
            return
        if self._err.mid_line and not at_once:
            if self._message_timer is None:
                self._message_timer = self._loop.call_later(MESSAGE_SECONDS, self._messages_due)
            return
        while self._messages:
            self.launcher_last = False
            self._err.write(b"\n" if self._err.mid_line else b"", self._messages.pop(0))

    def _messages_due(self) -> None:
        self._message_timer = None
        self._write_messages(at_once=True)

    def _close(self, stream: Stream) -> None:
        self._flush(stream)
        self._loop.forget(stream.fd)
        del self._streams[stream.fd]
        if stream.sink is not None:
            stream.sink.streams -= 1
        with self._lock:
            os.close(stream.fd)
            stream.fd = -1
        stream.on_end()

    def _finish(self, deadline: float) -> None:
        for stream in list(self._streams.values()):
            while self._read(stream) and time.monotonic() < deadline:
                pass
            if stream.fd >= 0:
                self._close(stream)
        self._write_messages(at_once=True)
        self._loop.stop()


def _end_of_lines(data: bytes | mmap.mmap, count: int) -> int:
    """Counts those of the first ``count`` bytes whose line is over, or that a carriage return ends."""
    newline = data.rfind(b"\n", 0, count)
    return max(newline, data.rfind(b"\r", newline + 1, count)) + 1


def _block_signals() -> None:
    """Leaves every signal to the main thread."""
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
