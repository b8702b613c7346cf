"""The ranks of this host: those expected, those that are up, and those that were signalled."""

from __future__ import annotations

from typing import TYPE_CHECKING

from musterpoint.base.failure import Failure
from musterpoint.core.processes import process_tree
from musterpoint.core.processes.control_socket import Connection
from musterpoint.core.processes.signal_once import SignalOnce, pass_on
from musterpoint.core.supervise.events import Key
from musterpoint.core.supervise.services_and_launchers import ServicesAndLaunchers

if TYPE_CHECKING:
    from musterpoint.core.diagnosis.raised_facts import RaisedFacts


class LaunchesOf:
    """Launches of ours in one rank: how they ended, and the bytes that it had ``written`` when the last one did.

    ``running``: the pids of those that run; ``owed``: the signal that the rank gets when they have ended.
    """

    __slots__ = ("ended", "owed", "running", "written")

    def __init__(self) -> None:
        self.ended: list[Failure | None] = []
        self.running: set[int] = set()
        self.written, self.owed = (0, 0), 0


class Rank:
    """``key`` is the local rank, ``number`` the global one. ``pid`` is 0 until the program runs. ``connection`` is its
    stub's, ``stub`` the stub's pid.

    ``orphan_status``: its status if we reaped it because its stub is gone. ``mpi``: an MPI started it, which
    ``prints_abort`` when the program calls ``MPI_Abort``. ``raised``: the exception that ends it, as it told us itself;
    ``below``: one of a Python that a shell in its place runs; ``foreseen``: the failure that this will be.
    """

    __slots__ = (
        "below",
        "connection",
        "foreseen",
        "key",
        "launches",
        "mpi",
        "number",
        "orphan_status",
        "pid",
        "prints_abort",
        "raised",
        "stub",
    )

    def __init__(
        self,
        key: Key,
        number: int,
        connection: Connection | None = None,
        stub: int = 0,
        mpi: bool = False,
        prints_abort: bool = False,
    ) -> None:
        self.key, self.number = key, number
        self.pid, self.connection, self.stub, self.mpi = 0, connection, stub, mpi
        self.prints_abort = prints_abort
        self.raised: RaisedFacts | None = None
        self.below: RaisedFacts | None = None
        self.foreseen: Failure | None = None
        self.orphan_status: int | None = None
        self.launches = LaunchesOf()

    @property
    def still_below(self) -> RaisedFacts | None:
        """``below``, if that Python still runs."""
        return self.below if self.below is not None and process_tree.read_stat(self.below.pid) is not None else None


class Ranks:
    """The table of this host's ranks. ``others``: the services and launchers here. ``once`` signals programs.

    ``expected``: the keys of those that haven't ended. ``up``: all that have come up so far. ``signalled`` were told to
    end, by ``signo``. ``by_pid``: the programs that run. ``world``: how many ranks the job has.
    """

    def __init__(self, others: ServicesAndLaunchers, once: SignalOnce) -> None:
        self.others, self._once = others, once
        self.world = 0
        self.expected: set[Key] = set()
        self.up: dict[Key, Rank] = {}
        self.by_pid: dict[int, Rank] = {}
        self.signalled: set[Key] = set()
        self.signo = 0

    def expect(self, count: int, world: int) -> None:
        """So many ranks, of ``world`` ranks, will come up."""
        self.expected.update(range(count))
        self.world = world

    def is_missing(self, key: Key) -> bool:
        """Whether this rank is expected and hasn't come up."""
        return key in self.expected and key not in self.up

    @property
    def unstarted(self) -> list[Key]:
        """The ranks whose program doesn't run yet, whoever is to start it."""
        return sorted(key for key in self.expected if not (key in self.up and self.up[key].pid))

    def is_expected(self, rank: Rank) -> bool:
        return rank.key in self.expected

    def set_pid(self, rank: Rank, pid: int) -> None:
        """The program was started, by us or by its stub."""
        rank.pid = pid
        self.by_pid[pid] = rank

    def forget(self, rank: Rank) -> bool:
        """It has ended; returns whether that is new."""
        if rank.key not in self.expected:
            return False
        self.expected.discard(rank.key)
        self.by_pid.pop(rank.pid, None)
        return True

    @property
    def running(self) -> list[Rank]:
        """Those whose program runs, in order."""
        return [rank for key, rank in sorted(self.up.items()) if rank.pid and key in self.expected]

    @property
    def live(self) -> dict[int, int]:
        """The pids of ranks that run, by global rank."""
        return {rank.number: rank.pid for rank in self.running}

    def of_number(self, number: int) -> Rank | None:
        """The rank with this global number."""
        return next((rank for rank in self.up.values() if rank.number == number), None)

    def above(self, pid: int) -> Rank | None:
        """The rank in whose program the process ``pid`` runs, or that it is."""
        while pid > 1 and pid not in self.by_pid:
            stat = process_tree.read_stat(pid)
            pid = stat.parent if stat is not None else 0
        return self.by_pid.get(pid)

    @property
    def stubs(self) -> set[int]:
        """The pids of stubs that foreign launchers have started."""
        return {rank.stub for rank in self.up.values() if rank.stub}

    # -- stopping --

    def signal(self, signo: int) -> int:
        """Sends ``signo`` to every live rank, once; returns how many have had it by now."""
        self.signo = signo
        for key in sorted(self.expected - self.signalled):
            self.signalled.add(key)
            if key in self.up and self.up[key].pid:
                self.tell(self.up[key], signo)
        return len(self.signalled)

    def tell(self, rank: Rank, signo: int) -> None:
        """Signals a rank; launches of ours in it come first.

        Whoever waits for them, and is no shell, hears when they have ended: Python and make end them at Ctrl-C, as if
        they had heard of that themselves.
        """
        from musterpoint.core.processes.shell_front import front_of

        below = rank.launches
        if below.running and not below.running.issubset(front_of(rank.pid).programs):
            below.owed = signo
            for pid in below.running:
                self._once.send(pid, signo)
        else:
            below.owed = 0
            self._once.send(rank.pid, signo)

    def give_up(self, key: Key) -> None:
        """Gives up a rank that its launcher hasn't started yet; kills the launcher if none of its ranks runs."""
        rank = self.up.get(key)
        if rank is not None and rank.connection is not None:
            rank.connection.close()
        if not any(other.pid for other in self.up.values()):
            self.others.kill("launcher")
        self.expected.discard(key)

    def pass_on(self, signo: int) -> None:
        """Sends SIGUSR1 or SIGUSR2 to the user's programs."""
        for rank in self.running:
            pass_on(rank.pid, signo)
        self.others.pass_on(signo)

    def send_stubs(self, word: str) -> None:
        """Tells every stub ``word``; empty: it ends, since its program has."""
        for rank in self.up.values():
            if rank.connection is not None and word:
                rank.connection.send(word)
            elif rank.connection is not None:
                rank.connection.close()
