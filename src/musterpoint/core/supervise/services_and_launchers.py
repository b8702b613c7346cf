"""The processes of the job that aren't ranks: services and launchers (an MPI daemon counts as a launcher)."""

import signal
from typing import Callable

from musterpoint.base.records import NamedTuple
from musterpoint.core.launch.launch_plan import ProcessPlan, Role
from musterpoint.core.processes import process_tree
from musterpoint.core.processes.signal_once import SignalOnce, pass_on


class ServiceOrLauncher(NamedTuple):
    """``on_end`` gets the wait status, as ``os.waitstatus_to_exitcode`` gives it, and the end of its output."""

    process: ProcessPlan
    pid: int
    on_end: Callable[[int, bytes], None]

    @property
    def is_users(self) -> bool:
        """Whether it is a service of the user's own: a stop signals it like a rank and waits for its end."""
        return self.process.role == "service" and self.process.users


class ServicesAndLaunchers:
    """The running services and launchers, by pid. ``once`` signals those of the user's own."""

    def __init__(self, once: SignalOnce) -> None:
        self._once = once
        self._running: dict[int, ServiceOrLauncher] = {}
        self._signalled: set[int] = set()

    def __contains__(self, pid: int) -> bool:
        return pid in self._running

    @property
    def pids(self) -> set[int]:
        return set(self._running)

    def add(self, started: ServiceOrLauncher) -> None:
        self._running[started.pid] = started

    def ended(self, pid: int) -> ServiceOrLauncher:
        self._signalled.discard(pid)
        return self._running.pop(pid)

    def pids_of(self, role: str) -> list[int]:
        """The programs of a role beside this host's own; empty: of that one."""
        return [pid for pid, running in self._running.items() if running.process.of_role == role]

    def signal(self, signo: int, chosen: Callable[[ProcessPlan], bool] = lambda process: True) -> None:
        """Sends ``signo`` to the user's own services that are ``chosen``, once each."""
        for pid, running in self._running.items():
            if running.is_users and pid not in self._signalled and chosen(running.process):
                self._signalled.add(pid)
                self._once.send(pid, signo)

    def pass_on(self, signo: int) -> None:
        """Sends SIGUSR1 or SIGUSR2 to the user's own services."""
        for pid, running in self._running.items():
            if running.is_users:
                pass_on(pid, signo)

    def end(self) -> int:
        """SIGTERM to services that end by themselves then; the most seconds that one of them may take for it.

        0: there are none.
        """
        longest = 0
        for pid, running in self._running.items():
            if running.process.time_to_end:
                longest = max(longest, running.process.time_to_end)
                if pid not in self._signalled:
                    self._signalled.add(pid)
                    process_tree.send(pid, signal.SIGTERM)
        return longest

    @property
    def are_ending(self) -> bool:
        """Whether a service still has its time to end by itself."""
        return any(running.process.time_to_end for running in self._running.values())

    def kill(self, role: Role | None = None) -> None:
        """SIGKILL, to those of one role where one is given."""
        for pid, running in self._running.items():
            if role in (None, running.process.role):
                process_tree.send(pid, signal.SIGKILL)
