"""The terminal's foreground: given to the one rank that has stdin, or the kernel stops it when it reads (SIGTTIN)."""

from __future__ import annotations

import os
import signal


def take(group: int = 0) -> None:
    """Makes a process group (0: our own) the foreground of the terminal on stdin.

    A background group that does so is stopped by SIGTTOU unless it ignores it.
    """
    old = signal.signal(signal.SIGTTOU, signal.SIG_IGN)
    try:
        os.tcsetpgrp(0, group or os.getpgrp())
    except OSError:
        pass
    signal.signal(signal.SIGTTOU, old)


class Terminal:
    """Remembers whose foreground it was."""

    def __init__(self) -> None:
        self._ours = -1

    def offer(self) -> bool:
        """Whether a rank is to take the foreground: stdin is a terminal, and ours."""
        try:
            if os.isatty(0) and os.tcgetpgrp(0) == os.getpgrp():
                self._ours = os.getpgrp()
        except OSError:
            self._ours = -1
        return self._ours >= 0

    def take_back(self) -> None:
        if self._ours >= 0:
            take(self._ours)
            self._ours = -1
