"""What dead launchers leave behind: processes that became ours when their parent ended, told to stop and waited for.

A launcher of the user's own that dies of the stop signal (a Python script around ``torch.distributed.run``) leaves its
ranks in the middle of their checkpoints.
"""

from __future__ import annotations

import os
from typing import Callable, Collection

from musterpoint.loop import READ, Loop
from musterpoint.processes import tree


class Orphans:
    """``look`` is called when one of those that were told has ended, and it may be time to ask again."""

    def __init__(self, loop: Loop, look: Callable[[], None]) -> None:
        self._loop, self._look = loop, look
        self._told: set[int] = set()
        self._waited: dict[int, int] = {}

    def tell(self, known: Collection[int], signo: int) -> bool:
        """Sends ``signo`` to each of our children that isn't ``known``, once; whether any of them is still there.

        What ignores it isn't waited for; nor is what an orphaned shell starts next, or a loop in the background would
        hold up the end.
        """
        for orphan in tree.children(os.getpid()):
            if orphan.pid not in known and orphan.pid not in self._told:
                self._told.add(orphan.pid)
                for pid in tree.stop_targets(orphan.pid, signo):
                    if not tree.ignores(pid, signo):
                        self._watch(pid)
                        tree.send(pid, signo)
        return any(stat is not None and stat.state not in "ZX" for stat in map(tree.read_stat, self._waited))

    def _watch(self, pid: int) -> None:
        """A shell's child isn't ours, so no SIGCHLD tells of its end. Linux before 5.3 has no such descriptors."""
        try:
            self._waited[pid] = os.pidfd_open(pid)
        except (AttributeError, OSError):
            self._waited[pid] = -1
            return
        self._loop.watch(self._waited[pid], READ, lambda _ready: self._ended(pid))

    def _ended(self, pid: int) -> None:
        self._forget(self._waited.pop(pid))
        self._look()

    def _forget(self, fd: int) -> None:
        if fd >= 0:
            self._loop.forget(fd)
            os.close(fd)

    def close(self) -> None:
        for fd in self._waited.values():
            self._forget(fd)
        self._waited.clear()
