"""The terminal's foreground: given to the one rank that has stdin, or the kernel stops it when it reads (SIGTTIN)."""

from __future__ import annotations

import os
import signal


class Terminal:
    """Gives the foreground of the terminal on stdin to a rank, and takes it back."""

    def __init__(self) -> None:
        self._ours = -1

    def give(self, pid: int) -> None:
        """``pid`` leads a process group of its own. Nothing happens where stdin is no terminal of ours."""
        try:
            if os.isatty(0) and os.tcgetpgrp(0) == os.getpgrp():
                self._ours = os.getpgrp()
                os.tcsetpgrp(0, pid)
                os.kill(pid, signal.SIGCONT)  # it may have read before the terminal was its own
        except OSError:
            self._ours = -1

    def take_back(self) -> None:
        if self._ours < 0:
            return
        # a background group that sets the foreground is stopped by SIGTTOU unless it ignores it
        old = signal.signal(signal.SIGTTOU, signal.SIG_IGN)
        try:
            os.tcsetpgrp(0, self._ours)
        except OSError:
            pass
        signal.signal(signal.SIGTTOU, old)
        self._ours = -1
