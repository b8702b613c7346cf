"""The hosts' output on its way to people: every byte to the host's log, whole lines to the terminal.

One thread reads all hosts, so that a slow reader of our output delays the hosts (as it would under Docker) but never a
signal.
"""

from __future__ import annotations

import os
import threading
from typing import Callable

from musterpoint.loop import READ, Loop

CHUNK = 1 << 18
LONGEST_LINE = 1 << 16
COLOURS = (36, 33, 32, 35, 34, 91, 92, 93, 94, 95, 96)


def prefixes(hosts: tuple[str, ...], colour: bool) -> dict[str, bytes]:
    """What stands before each line of a host: nothing for a lone host, else its name, padded to one width."""
    if len(hosts) == 1:
        return {hosts[0]: b""}
    width = max(map(len, hosts))
    marks = {}
    for index, host in enumerate(hosts):
        mark = f"{host:{width}} |"
        if colour:
            mark = f"\x1b[{COLOURS[index % len(COLOURS)]}m{mark}\x1b[0m"
        marks[host] = f"{mark} ".encode()
    return marks


class Lines:
    """Bytes in, whole lines with ``prefix`` out. Without a prefix bytes pass as they come."""

    def __init__(self, prefix: bytes) -> None:
        self.prefix = prefix
        self._rest = b""

    def feed(self, data: bytes) -> bytes:
        """What may be written now; a last line without its end waits, unless it is longer than 64 KiB."""
        if not self.prefix:
            return data
        data = self._rest + data
        end = data.rfind(b"\n") + 1
        if len(data) - end > LONGEST_LINE:
            return self._marked(data, b"\n", b"")
        whole, self._rest = data[:end], data[end:]
        return self._marked(whole[:-1], b"\n", self._rest) if whole else b""

    def end(self) -> bytes:
        """The last line if it has no end of its own; one is added, or the next host's line would stand behind it."""
        return self._marked(self._rest, b"\n", b"") if self._rest else b""

    def _marked(self, data: bytes, end: bytes, rest: bytes) -> bytes:
        self._rest = rest
        return self.prefix + data.replace(b"\n", b"\n" + self.prefix) + end


class Pump:
    """Copies each host's pipe to its log and to descriptor ``out``. ``on_end(host)`` comes in the pump's thread."""

    def __init__(self, out: int, on_end: Callable[[str], None]) -> None:
        self.out = out
        self.on_end = on_end
        self._loop = Loop()
        self._loop.prepare_posts()
        self._streams: dict[str, tuple[int, int, Lines]] = {}
        self._thread = threading.Thread(target=self._loop.run, name="pump", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def add(self, host: str, fd: int, log: str, prefix: bytes) -> None:
        """Takes over ``fd``, the read end of the host's pipe; may be called before :meth:`start` and after."""
        os.set_blocking(fd, False)
        log_fd = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        self._streams[host] = (fd, log_fd, Lines(prefix))
        self._loop.post(lambda: self._loop.watch(fd, READ, lambda _ready: self._read(host)))

    def _read(self, host: str) -> None:
        fd, log_fd, lines = self._streams[host]
        try:
            data = os.read(fd, CHUNK)
        except BlockingIOError:
            return
        if data:
            _write(log_fd, data)
            self._show(lines.feed(data))
        else:
            self._end(host)

    def _end(self, host: str) -> None:
        stream = self._streams.pop(host, None)
        if stream is None:
            return
        fd, log_fd, lines = stream
        self._loop.forget(fd)
        self._show(lines.end())
        os.close(fd)
        os.close(log_fd)
        self.on_end(host)

    def _show(self, data: bytes) -> None:
        if data and self.out >= 0 and not _write(self.out, data):
            self.out = -1  # nobody reads any more; the logs go on

    def close(self) -> None:
        """Gives up what hasn't ended and waits for the thread."""

        def end_all() -> None:
            for host in list(self._streams):
                self._end(host)
            self._loop.stop()

        if self._thread.is_alive():
            self._loop.post(end_all)
            self._thread.join()
        else:
            end_all()
        self._loop.close()


def _write(fd: int, data: bytes) -> bool:
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(fd, view) :]
        except BrokenPipeError:
            return False
    return True
