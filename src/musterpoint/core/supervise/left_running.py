"""What is left of the job's processes on this host, and how it is ended."""

from __future__ import annotations

import signal

from musterpoint.core.processes import process_tree
from musterpoint.core.processes.signal_once import SignalOnce
from musterpoint.core.supervise.context import SupervisorContext
from musterpoint.core.supervise.rank_table import Ranks


class LeftRunning:
    """The job's processes that are our children: orphans are, too."""

    def __init__(self, context: SupervisorContext, ranks: Ranks, once: SignalOnce) -> None:
        self._context, self._ranks, self._once = context, ranks, once
        self._dismissed: set[int] = set()

    @property
    def pids(self) -> list[int]:
        """The pids of our children that ranks left behind, and that no signal has met yet."""
        left = [child.pid for child in self.remaining if child.state not in "ZX"]
        return [pid for pid in left if pid not in self._dismissed and not self._once.has_signalled(pid)]

    def end(self, orphans: bool = False) -> bool:
        """SIGTERM to what ranks left behind, once; returns whether there was any that hadn't had it.

        orphans: while others end. Where one has a handler, which may have passed the signal on, nothing is done.
        """
        left = [] if orphans and self._once.has_handled else self.pids
        for pid in left:
            self._once.send(pid, signal.SIGTERM)
        return bool(left)

    def dismiss(self) -> None:
        """Ends services, launchers and stubs, since all ranks have ended."""
        below = process_tree.descendants_of(self._ranks.others.pids) if self._ranks.others.pids else {}
        self._dismissed = {*below, *(stat.pid for stats in below.values() for stat in stats), *self._ranks.stubs}
        self._ranks.others.kill()
        self._ranks.send_stubs("")

    @property
    def remaining(self) -> list[process_tree.Stat]:
        """The job's processes that are our children and still run. All others are below these: we adopt orphans."""
        spared = self._context.sidecars.pids
        return [child for child in process_tree.own_children() if child.pid not in spared]
