"""The unranked: launchers, MPI daemons and services, which run beside the ranks and are no ranks."""

import signal
from typing import Callable, NamedTuple

from musterpoint.launch.plan import ProcessPlan
from musterpoint.processes import tree


class Unranked(NamedTuple):
    """``on_end`` gets the wait status, as ``os.waitstatus_to_exitcode`` gives it, and the end of its output."""

    session: int
    process: ProcessPlan
    pid: int
    on_end: Callable[[int, bytes], None]

    @property
    def waited_for(self) -> bool:
        """Whether a stop asks it to end, as it asks ranks, and waits for that: the user's own programs."""
        return self.process.role == "service" and self.process.users


class UnrankedProcesses:
    """Those that run now, by pid."""

    def __init__(self) -> None:
        self._running: dict[int, Unranked] = {}
        self._told: set[int] = set()

    def __contains__(self, pid: int) -> bool:
        return pid in self._running

    @property
    def pids(self) -> set[int]:
        return set(self._running)

    def add(self, unranked: Unranked) -> None:
        self._running[unranked.pid] = unranked

    def ended(self, pid: int) -> Unranked:
        self._told.discard(pid)
        return self._running.pop(pid)

    def tell(self, signo: int) -> None:
        """Asks the user's own services to end, once each, past the shells in front of them."""
        for pid, unranked in self._running.items():
            if unranked.waited_for and pid not in self._told:
                self._told.add(pid)
                for target in tree.stop_targets(pid, signo):
                    tree.send(target, signo)

    def pass_on(self, signo: int) -> None:
        """A signal that means something to the user's programs only."""
        for pid, unranked in self._running.items():
            if unranked.waited_for:
                for target in tree.stop_targets(pid, signo):
                    tree.send(target, signo)

    def kill(self, session: int | None = None, role: str = "") -> None:
        """SIGKILL, to those of one session or role where one is given."""
        for pid, unranked in self._running.items():
            if session in (None, unranked.session) and role in ("", unranked.process.role):
                tree.send(pid, signal.SIGKILL)
