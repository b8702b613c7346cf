"""Where there is no terminal of ours there is nothing to give; tests/hosts/test_terminal.py has one."""

from __future__ import annotations

import os
import signal

from musterpoint.processes.process import Terminal


def test_without_a_terminal_nothing_happens() -> None:
    kept, null = os.dup(0), os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    before = signal.getsignal(signal.SIGTTOU)
    try:
        terminal = Terminal()
        assert not terminal.offer()
        terminal.take_back()
    finally:
        os.dup2(kept, 0)
        os.close(kept)
        os.close(null)
    assert signal.getsignal(signal.SIGTTOU) == before
