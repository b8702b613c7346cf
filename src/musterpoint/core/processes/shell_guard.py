"""Lets shells that we hold go on if we are killed: a process that nobody continues stays stopped for ever."""

from __future__ import annotations

import os

from musterpoint.core.processes.process import CannotStart
from musterpoint.core.processes.sidecars import Sidecar, Sidecars

_GUARD = """
held=
while read -r word; do
  [ "$word" != over ] || exit 0
  held="$held $word"
done
for pid in $held; do
  read -r line < /proc/$pid/stat || continue
  case $line in *') T '*) kill -TERM $pid; kill -CONT $pid;; esac
done
"""
"""It reads the pids of those that are held. Its stdin ends without a word when we are killed."""


class ShellGuard:
    """A sidecar that outlives us, begun when the first shell is held: a shell, as there is one."""

    def __init__(self, sidecars: Sidecars) -> None:
        self._sidecars = sidecars
        self._guard: Sidecar | None = None
        self._known: set[int] = set()
        self._is_needed = os.getpid() != 1  # all processes of a container end with its PID 1

    def hold(self, pid: int) -> None:
        """The process ``pid`` is about to be stopped, or may stop itself."""
        if self._is_needed and self._guard is None:
            try:
                argv = ("/bin/sh", "-c", _GUARD)
                self._guard = self._sidecars.start(argv, {}, lambda _line: None, lambda _code: None, outlives=True)
            except (CannotStart, OSError):  # no room for a process: shells are held nevertheless
                self._is_needed = False
        if self._guard is not None and pid not in self._known:
            self._known.add(pid)
            self._guard.send(str(pid))

    def close(self) -> None:
        """Nothing is held any more."""
        if self._guard is not None:
            self._guard.send("over")
            self._guard = None
