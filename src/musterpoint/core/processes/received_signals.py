"""Signals as events of the loop: each writes a byte into a pipe, and handlers do nothing."""

from __future__ import annotations

import os
import signal
from typing import Any, Callable

from musterpoint.base.loop import READ, Loop
from musterpoint.base.python_variables import end_without_prompt

STOPPING = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT") if hasattr(signal, name))
"""Signals that ask for a stop."""
PASSED_ON = tuple(getattr(signal, name) for name in ("SIGUSR1", "SIGUSR2") if hasattr(signal, name))
"""Signals for the user's program; we only pass them on."""
_OF_CHILDREN = tuple(getattr(signal, name) for name in ("SIGCHLD",) if hasattr(signal, name))


def hear_all() -> None:
    """Takes back what this process has inherited of who started it: signals that are blocked, or ignored; a prompt.

    Each command calls it before anything else. A blocked signal would never be heard, and with SIGCHLD ignored no
    child has a status. A shell ignores SIGINT for what it starts in the background; for an entry point that is a stop
    as any other. Only ``nohup`` is respected.
    """
    end_without_prompt()
    if not hasattr(signal, "pthread_sigmask"):
        return
    for signo in (*STOPPING, *_OF_CHILDREN):
        if signal.getsignal(signo) is signal.SIG_IGN and not _unwanted(signo):
            signal.signal(signo, signal.default_int_handler if signo == signal.SIGINT else signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def _nothing(signo: int, frame: Any) -> None:
    """Python-level handlers must exist for the wake-up descriptor to be written."""


def _unwanted(signo: int) -> bool:
    """Whether ``signo`` is SIGHUP and ``nohup`` started us, so that a hang-up isn't a stop."""
    return signo == getattr(signal, "SIGHUP", None) and signal.getsignal(signo) is signal.SIG_IGN


Handler = Callable[[int], None]
"""Gets a signal's number, in the loop's thread."""


class Signals:
    """Catches the signals that a supervisor acts on, and calls one handler with each; :meth:`route_to` changes it."""

    def __init__(self, loop: Loop, handler: Handler) -> None:
        self._loop, self._handler = loop, handler
        self._kept: list[int] = []
        self._read, self._write = os.pipe()
        os.set_blocking(self._read, False)
        os.set_blocking(self._write, False)
        # before the handlers, or what comes between would be swallowed
        self._old_fd = signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        self._old: list[tuple[int, Any]] = []
        for signo in (*STOPPING, *PASSED_ON, *_OF_CHILDREN):
            if not _unwanted(signo):
                self._old.append((signo, signal.signal(signo, _nothing)))
        loop.watch(self._read, READ, self._wake)

    def route_to(self, handler: Handler) -> None:
        """From now on ``handler`` gets every signal, also those that weren't handled yet."""
        self._handler = handler
        kept, self._kept = self._kept, []
        for signo in kept:
            self._loop.call_later(0, lambda signo=signo: self.deliver(signo))  # type: ignore[misc]

    def keep(self, signo: int) -> None:
        """Keeps a signal that came too late for the handler of now: the next one gets it, in the loop."""
        self._kept.append(signo)

    @property
    def has_kept(self) -> bool:
        """Whether a signal was kept for the next handler."""
        return bool(self._kept)

    def deliver(self, signo: int) -> None:
        """Calls the handler as if this process had received ``signo``."""
        self._handler(signo)

    def _wake(self, _ready: int) -> None:
        try:
            numbers = os.read(self._read, 4096)
        except BlockingIOError:
            return
        for signo in dict.fromkeys(numbers):  # a wrapper may repeat a signal of the terminal: it counts once
            self._handler(signo)

    def close(self, ends: bool = False) -> None:
        """Restores the handlers as they were. May be called more than once.

        ``ends``: this process is about to end with a code that is told already, so what asks it to end is ignored.
        """
        if self._read < 0:
            return
        self._loop.forget(self._read)
        for signo, old in self._old:
            ignored = ends and signo in (*STOPPING, *PASSED_ON)
            signal.signal(signo, signal.SIG_IGN if ignored else old if old is not None else signal.SIG_DFL)
        signal.set_wakeup_fd(self._old_fd)
        os.close(self._read)
        os.close(self._write)
        self._read = -1
