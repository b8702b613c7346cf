"""Signals as events of the loop: a byte through a pipe wakes it, nothing runs inside a handler."""

from __future__ import annotations

import os
import signal
from typing import Any, Callable

from musterpoint.loop import READ, Loop

STOPPING = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT") if hasattr(signal, name))
"""Signals that ask for a stop."""
PASSED_ON = tuple(getattr(signal, name) for name in ("SIGUSR1", "SIGUSR2") if hasattr(signal, name))
"""Signals that mean something to the user's program only."""


def _nothing(signo: int, frame: Any) -> None:
    """Python-level handlers must exist for the wake-up descriptor to be written."""


def _unwanted(signo: int) -> bool:
    """Whether we were started by ``nohup``, which says that a hang-up is no stop."""
    return signo == getattr(signal, "SIGHUP", None) and signal.getsignal(signo) is signal.SIG_IGN


class Signals:
    """Catches what a supervisor must hear. :attr:`hear` is called with each signal's number, in the loop's thread."""

    def __init__(self, loop: Loop, hear: Callable[[int], None]) -> None:
        self.hear = hear
        self._loop = loop
        self._read, self._write = os.pipe()
        os.set_blocking(self._read, False)
        os.set_blocking(self._write, False)
        self._old: list[tuple[int, Any]] = []
        for signo in (*STOPPING, *PASSED_ON, getattr(signal, "SIGCHLD", None)):
            if signo is not None and not _unwanted(signo):
                self._old.append((signo, signal.signal(signo, _nothing)))
        self._old_fd = signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        loop.watch(self._read, READ, self._wake)

    def _wake(self, _ready: int) -> None:
        try:
            numbers = os.read(self._read, 4096)
        except BlockingIOError:
            return
        for signo in dict.fromkeys(numbers):  # a wrapper may send again what the terminal has sent: that is one
            self.hear(signo)

    def close(self) -> None:
        """Restores the handlers as they were. May be called more than once."""
        if self._read < 0:
            return
        self._loop.forget(self._read)
        signal.set_wakeup_fd(self._old_fd)
        for signo, old in self._old:
            signal.signal(signo, old if old is not None else signal.SIG_DFL)
        os.close(self._read)
        os.close(self._write)
        self._read = -1
