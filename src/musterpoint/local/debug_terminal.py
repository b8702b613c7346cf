"""A terminal for one rank (``muster local --debug RANK``): what is typed goes to that rank, Ctrl-C included.

The rank gets a pseudo-terminal of its own, on whatever host it runs. What it prints goes to the person's terminal as it
comes, without a prefix, and to a log; other ranks' output goes the usual way.
"""

from __future__ import annotations

import contextlib
import os
from typing import Any, Callable

from musterpoint.base.errors import UsageError
from musterpoint.base.loop import READ, Loop

with contextlib.suppress(ModuleNotFoundError):  # Windows has neither
    import fcntl
    import termios

CTRL_C = b"\x03"
NAME = "terminal"
"""Stands among the hosts for the stream of this terminal, and names its log."""
_IFLAG, _OFLAG, _LFLAG = 0, 1, 3


class DebugTerminal:
    """``rank``'s terminal. ``on_interrupt`` is called for a Ctrl-C that no rank can take: it has none yet, or any more.

    Raises:
        UsageError: stdin is no terminal.
    """

    def __init__(self, rank: int, loop: Loop, on_interrupt: Callable[[], None]) -> None:
        if not os.isatty(0):
            raise UsageError(f"--debug {rank}: stdin is no terminal; run it where you can type, without a pipe into it")
        self._loop, self._on_interrupt = loop, on_interrupt
        self._ours, self._ranks = os.openpty()
        os.set_blocking(self._ours, False)
        self._before: list[Any] | None = None
        self.variable = f"{rank}:{os.ttyname(self._ranks)}"
        """The value of MUSTER_DEBUG_TERMINAL."""

    def take_over(self) -> int:
        """From now on what is typed goes to the rank; returns the descriptor from which its output is to be read."""
        fcntl.ioctl(self._ranks, termios.TIOCSWINSZ, fcntl.ioctl(0, termios.TIOCGWINSZ, bytes(8)))
        plain = termios.tcgetattr(self._ranks)
        plain[_OFLAG] &= ~termios.OPOST  # the person's terminal does that
        termios.tcsetattr(self._ranks, termios.TCSANOW, plain)
        self._before = termios.tcgetattr(0)
        typed = termios.tcgetattr(0)
        typed[_LFLAG] &= ~(termios.ICANON | termios.ECHO | termios.ISIG | termios.IEXTEN)
        typed[_IFLAG] &= ~(termios.ICRNL | termios.IXON)
        termios.tcsetattr(0, termios.TCSADRAIN, typed)
        self._loop.watch(0, READ, self._typed)
        return os.dup(self._ours)

    def _typed(self, _ready: int) -> None:
        data = os.read(0, 4096)
        if not data or (CTRL_C in data and not self._has_rank()):
            if not data:
                self._loop.forget(0)
            self._on_interrupt()
            return
        os.write(self._ours, data)

    def _has_rank(self) -> bool:
        """Whether a process has the terminal for its own."""
        try:
            return os.tcgetpgrp(self._ours) > 0
        except OSError:
            return False

    def release(self) -> None:
        """No rank will use it any more: its output ends, and the person's terminal is as before."""
        if self._before is not None:
            self._loop.forget(0)
            termios.tcsetattr(0, termios.TCSADRAIN, self._before)
            self._before = None
        if self._ranks >= 0:
            os.close(self._ranks)
            self._ranks = -1

    def close(self) -> None:
        self.release()
        if self._ours >= 0:
            os.close(self._ours)
            self._ours = -1
