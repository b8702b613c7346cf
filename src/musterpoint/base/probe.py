"""Asks programs of this machine short questions, such as their version; a stop interrupts the wait."""

import os
import signal
from typing import Callable, Mapping, Sequence

from musterpoint.base.lines import PIECE, Pieces
from musterpoint.base.loop import READ, Loop
from musterpoint.base.python_variables import for_tools
from musterpoint.base.records import NamedTuple

TIMEOUT = 60.0
"""Seconds an answer may take; a cold network file system needs a few."""
LONGEST_ANSWER = 1 << 20
"""Bytes of an answer that are kept."""
_TICK = 0.05


class Answer(NamedTuple):
    """``status`` is the exit status (negative: a signal), None where there was no end within :data:`TIMEOUT`."""

    status: int | None
    text: str


Ask = Callable[[Sequence[str], Mapping[str, str], str, bool], Answer]
"""A function like :func:`ask`: words, environment, working directory, and whether stderr belongs to the answer.

Raises:
    OSError, ValueError: the program can't be started.
"""


def ask(
    words: Sequence[str],
    environ: Mapping[str, str],
    cwd: str,
    errors: bool = False,
    loop: Loop | None = None,
    check: Callable[[], None] = lambda: None,
) -> Answer:
    """Runs a program to its end, without waiting for its children; an :data:`Ask`.

    ``check`` is called whenever something woke ``loop`` (None: one of its own); where it raises, the program and what
    it started are killed.
    """
    import subprocess

    events = loop or Loop()
    child = subprocess.Popen(
        list(words),
        env=for_tools(environ),
        cwd=cwd or None,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT if errors else subprocess.DEVNULL,
        start_new_session=True,
    )
    assert child.stdout is not None
    reader = _Reader(events, child.stdout.fileno())
    end = End(events, child.pid)
    until = events.clock() + TIMEOUT
    try:
        while child.poll() is None and (left := until - events.clock()) > 0:
            events.turn(min(left, end.tick))
            check()
        return Answer(child.returncode, reader.text())
    finally:
        reader.close()
        end.close()
        if child.poll() is None:
            signal_group(child.pid, signal.SIGKILL)
            child.wait()
        child.stdout.close()
        if loop is None:
            events.close()


class _Reader:
    """Reads ``fd`` and keeps the first :data:`LONGEST_ANSWER` bytes."""

    def __init__(self, loop: Loop, fd: int) -> None:
        self._kept = b""
        self._pieces = Pieces(loop, fd, self._add)

    def _add(self, piece: bytes) -> None:
        self._kept = (self._kept + piece)[:LONGEST_ANSWER]

    def text(self) -> str:
        """What has been written so far."""
        left = LONGEST_ANSWER // PIECE
        while left and self._pieces.read():
            left -= 1
        return self._kept.decode("utf-8", "replace")

    def close(self) -> None:
        self._pieces.close()


class End:
    """Wakes the loop when the process ``pid`` has ended, where Linux is 5.3 or newer; on older ones
    look every ``tick`` seconds, or catch SIGCHLD.
    """

    def __init__(self, loop: Loop, pid: int) -> None:
        self._loop = loop
        self.tick = TIMEOUT
        try:
            self._fd = os.pidfd_open(pid)
        except (AttributeError, OSError):
            self._fd, self.tick = -1, _TICK
            return
        loop.watch(self._fd, READ, lambda _ready: None)

    def close(self) -> None:
        if self._fd >= 0:
            self._loop.forget(self._fd)
            os.close(self._fd)
            self._fd = -1


def signal_group(pid: int, signo: int) -> None:
    """Sends a signal to a program that leads a group, and to what it started."""
    try:
        os.killpg(pid, signo)
    except OSError:
        pass  # gone already
