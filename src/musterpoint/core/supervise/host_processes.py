"""The processes of this host: starts them from plans, and emits an event when one starts, fails or ends."""

import os
import signal
from typing import TYPE_CHECKING, Callable, Mapping

from musterpoint.base.failure import Failure
from musterpoint.core.diagnosis.facts import ServiceOrLauncherEnd
from musterpoint.core.diagnosis.failures import (
    cannot_start,
    ended_unseen,
    lost_entry_point,
    unplanned_rank,
    wrong_world,
)
from musterpoint.core.launch.plan import LaunchPlan, ProcessPlan
from musterpoint.core.processes import tree
from musterpoint.core.processes.control_socket import Connection, ControlSocket
from musterpoint.core.processes.process import CannotStart
from musterpoint.core.processes.shell_guard import ShellGuard
from musterpoint.core.processes.signal_once import SignalOnce
from musterpoint.core.supervise.context import SupervisorContext
from musterpoint.core.supervise.events import (
    Broken,
    Key,
    LocalEvent,
    PlanStarted,
    RankEnded,
    ServiceOrLauncherEnded,
    ServiceOrLauncherStarted,
)
from musterpoint.core.supervise.mpi_exits import MpiExits
from musterpoint.core.supervise.process_starter import ProcessStarter, StartedPlan
from musterpoint.core.supervise.ranks import Rank, Ranks
from musterpoint.core.supervise.services_and_launchers import ServiceOrLauncher, ServicesAndLaunchers

if TYPE_CHECKING:
    from musterpoint.core.supervise.launches import Launches
    from musterpoint.core.supervise.ranks_met import MeetingWatch

UNSEEN_SECONDS = 1.0
"""For the call of a rank's stub that was on its way when the process above it ended."""
_DIGITS = 10
"""Of the longest number that a stub or an agent sends."""


class HostProcesses:
    """Starts the plan of this host and watches its processes.

    ``emit`` gets every event. ``take_connection`` gets the first line of every control-socket connection that is not a
    rank's, and returns whether it takes that connection. ``ranks`` are this host's, ``others`` its services and
    launchers, all started by ``starter``.
    """

    def __init__(
        self,
        context: SupervisorContext,
        emit: Callable[[LocalEvent], None],
        take_connection: Callable[[Connection, str], bool],
    ) -> None:
        self._context, self._pump, self._emit, self._take_connection = context, context.pump, emit, take_connection
        self._once = SignalOnce(context.loop, say=context.say, guard=ShellGuard(context.sidecars))
        self.others = ServicesAndLaunchers(self._once)
        self.ranks = Ranks(context, self.others, self._once, self._rank_ended)
        self._meeting: MeetingWatch | None = None
        self._launches: Launches | None = None
        self.started: StartedPlan | None = None
        self.is_ending = False
        self._dismissed: set[int] = set()
        self._mpi_exits = MpiExits(context, self.ranks, emit, lambda: self.is_ending)
        self.control_socket = ControlSocket(context.loop, self._connected, context.say, context.token)
        self.starter = ProcessStarter(context, self.control_socket)

    # -- starting --

    def start(self, plan: LaunchPlan, environ: Mapping[str, str]) -> None:
        """Starts the plan's processes, services first."""
        self.started = started = StartedPlan(plan, environ)
        keys = tuple(range(plan.local_ranks))
        self.ranks.expect(keys, plan.world_size)
        self.ranks.hidden.expect(0 if plan.independent else plan.world_size, started.runs_script)
        self._emit(PlanStarted(keys, plan.foreign, started.under_mpi))
        if plan.meeting is not None:
            from musterpoint.core.supervise.ranks_met import MeetingWatch

            self._meeting = MeetingWatch(self._context, plan.meeting, plan.world_size, self.ranks.pids)
        for process in sorted(plan.processes, key=lambda process: process.role != "service"):
            self._start_planned(process)
        for process in plan.of_others:
            self._let_others_start(started, process)

    @property
    def plan(self) -> LaunchPlan:
        """This host's plan, once it is started."""
        assert self.started is not None
        return self.started.plan

    @property
    def environ(self) -> Mapping[str, str]:
        """The environment from which the plan's processes start; empty where none is started."""
        return self.started.environ if self.started is not None else {}

    def _let_others_start(self, started: StartedPlan, process: ProcessPlan) -> None:
        """The host's other entry points start their ranks, each with the variables that it has itself."""
        others = self._context.others
        environment = self.starter.environment_for(started, process)
        given = {name: value for name, value in environment.items() if started.environ.get(name) != value}
        others.watch(
            lambda rank, local: self._lost_entry_point(local, rank),
            lambda rank, local, status: self._ended_unseen(local, rank, status),
        )
        others.start(process.words, given, [name for name in started.environ if name not in environment])

    def _lost_entry_point(self, key: Key, number: int) -> None:
        """Another entry point of this host has ended: its rank isn't watched any more."""
        if self.is_ending and not self.ranks.is_missing(key):
            self.ranks.lost_entry_point(key)
            return
        self._context.record("entry-point-lost", rank=number, local_rank=key)
        if not self.ranks.lost_entry_point(key):
            self._emit(Broken(lost_entry_point(number, key, self._context.diagnosis)))

    def _ended_unseen(self, key: Key, number: int, status: int) -> None:
        """What another entry point of this host started for its rank has ended: without a rank, that would wait."""

        def judge() -> None:
            if self.ranks.is_missing(key) and not self.is_ending:
                self._context.record("rank-ended-unseen", rank=number, status=status)
                self._emit(Broken(ended_unseen(number, key, status, self._context.diagnosis)))

        self._context.loop.call_later(UNSEEN_SECONDS, judge)

    def _start_planned(self, process: ProcessPlan) -> None:
        try:
            if process.role == "rank":
                self._start_rank(process)
            else:
                self.start_service_or_launcher(process)
        except CannotStart as error:
            failure = cannot_start(process, error.error, error.step, self._context.diagnosis)
            if process.role != "rank":
                self._emit(Broken(failure))
                return
            key = process.local_rank or 0
            self.ranks.forget(key)
            self._emit(RankEnded(key, failure))

    def _start_rank(self, process: ProcessPlan) -> None:
        assert self.started is not None
        pid = self.starter.start(self.started, process, alone=self.plan.local_ranks == 1)
        rank = Rank(process.local_rank or 0, process.rank or 0)
        self.ranks.add(rank)
        self.ranks.set_pid(rank, pid)

    @property
    def unstarted(self) -> list[tuple[int, int]]:
        """The ranks (global, local) whose program doesn't run yet."""
        return [(self.plan.first_rank + local, local) for local in self.ranks.unstarted]

    @property
    def had_ranks(self) -> bool:
        """Whether any rank was planned here."""
        return self.started is not None and self.plan.local_ranks > 0

    @property
    def independent(self) -> bool:
        """Whether what runs here is one program of its own, and no ranks."""
        return self.started is None or self.plan.independent

    def start_service_or_launcher(
        self, process: ProcessPlan, on_end: Callable[[int, bytes], None] = lambda status, tail: None
    ) -> None:
        """Starts a service or a launcher; ``on_end`` gets its status and the end of its output.

        Raises:
            CannotStart: the program couldn't be executed.
        """
        assert self.started is not None
        pid = self.starter.start(self.started, process, False)
        started = ServiceOrLauncher(process, pid, on_end)
        self.others.add(started)
        self._emit(ServiceOrLauncherStarted(process.name, process.role, started.is_users))

    def serve(self, process: ProcessPlan, connection: int) -> None:
        """Starts a service for one caller, with the ``connection`` as its stdin and stdout.

        Raises:
            CannotStart: the program couldn't be executed.
        """
        assert self.started is not None
        pid = self.starter.serve(self.started, process, connection)
        self.others.add(ServiceOrLauncher(process, pid, lambda status, tail: None))
        self._context.record("service-started", name=process.name, pid=pid, rank=None)

    def adopt(self, process: ProcessPlan, pid: int, on_end: Callable[[int, bytes], None]) -> None:
        """Counts a program below us, which a service has started, among the user's own services."""
        self.others.add(ServiceOrLauncher(process, pid, on_end))
        self._context.record("service-started", name=process.name, pid=pid, rank=None)
        self._emit(ServiceOrLauncherStarted(process.name, process.role, users=True))

    def adopted_ended(self, pid: int) -> None:
        """The program of :meth:`adopt` has ended; its parent takes its status."""
        if pid in self.others:
            ended = self.others.ended(pid)
            self._context.record("service-ended", name=ended.process.name, status=None)
            self._emit(ServiceOrLauncherEnded(ended.process.name, ended.process.role, None, vital=False))
            ended.on_end(0, b"")

    # -- the control socket --

    def _connected(self, connection: Connection) -> None:
        connection.route_to(lambda words, line: self._first_line(connection, words, line))

    def _first_line(self, connection: Connection, words: list[str], line: str) -> None:
        """The first line of a connection says what it is."""
        if words[:1] == ["rank"] and len(words) == 5:
            number, local_rank, world, stub = map(number_of, words[1:])
            self._registered(connection, local_rank, number, world, stub)
        elif not self._take_connection(connection, line):
            connection.close()

    def _registered(self, connection: Connection, key: Key, number: int, world: int, stub: int) -> None:
        """A launcher has started a stub, with the pid ``stub``, in the place of rank ``number``."""
        started = self.started
        if started is None or self.is_ending:
            connection.close()  # the stub exits when it gets no answer
            return
        self._context.record("rank-registered", rank=number, local_rank=key, world_size=world, stub=stub)
        wrong = self._misplaced(started.plan, key, number, world)
        if self.ranks.is_missing(key):
            rank = Rank(key, number, connection, stub, started.under_mpi, started.plan.hydra)
            self.ranks.add(rank)
            connection.route_to(lambda words, line: self._stub_line(rank, words), lambda: self._lost_stub(rank))
            if wrong is None:
                self._send_go(rank, connection)
        if wrong is not None:
            self._emit(Broken(wrong))

    def _misplaced(self, plan: LaunchPlan, local_rank: Key, number: int, world: int) -> Failure | None:
        """The failure of a rank that isn't planned here or has another world size; None if it is right."""
        if world == plan.world_size and self.ranks.is_missing(local_rank):
            return None
        if world != plan.world_size:
            return wrong_world(number, world, plan.world_size, self._context.diagnosis)
        return unplanned_rank(number, local_rank, plan.local_ranks, self._context.diagnosis)

    def _send_go(self, rank: Rank, connection: Connection) -> None:
        """Lets the stub start its program, with pipes of ours, or on the terminal that the rank gets."""
        out, err = self.starter.outputs(rank.number)
        connection.send("go", (out, err))
        for fd in {out, err}:
            os.close(fd)

    def _stub_line(self, rank: Rank, words: list[str]) -> None:
        """Handles a line from a stub; a ValueError (a line that no stub sends) closes the connection."""
        word, number = words[0], number_of(words[1])
        if word == "started":
            if rank.pid or number < 2 or number == os.getpid():
                raise ValueError(f"{number} is no pid of a rank")
            self.ranks.set_pid(rank, number)
            self._context.record("rank-started", rank=rank.number, pid=number)
        elif word == "signal":
            self._context.record("launcher-signal", rank=rank.number, signal=number)
            self._mpi_exits.signalled_by_mpi(rank)
        elif word == "ended":
            status = os.waitstatus_to_exitcode(number)
            self.ranks.ended(rank, status)

    def _lost_stub(self, rank: Rank) -> None:
        self.ranks.lost_stub(rank)
        self._mpi_exits.signalled_by_mpi(rank)

    def release(self) -> None:
        """Lets the stubs exit."""
        for rank in self.ranks.come_up.values():
            if rank.connection is not None:
                rank.connection.send("release")

    # -- launches of ours in the job's program --

    def take_launch(self, connection: Connection, line: str) -> bool:
        """Takes a launch's connection by its first ``line``; False: it is none."""
        if self._launches is None:
            from musterpoint.core.supervise.launches import Launches

            self._launches = Launches(self._context, self.ranks)
        if self._meeting is not None:  # the ranks are launchers, which meet nowhere
            self._meeting.close()
            self._meeting = None
        return self._launches.take(connection, line)

    # -- ends --

    def _rank_ended(self, event: LocalEvent) -> None:
        """Passes the end of a rank on, behind what its last end says about all of them."""
        if isinstance(event, RankEnded) and self._meeting is not None:
            last = not self.ranks.are_untold
            explained = last and self.ranks.hidden.explains(not self.ranks.own_children().issuperset(self.left_running))
            worlds, well = self.ranks.hidden.worlds if last else "", event.failure is None and not self.is_ending
            failure = self._meeting.rank_ended(well, last, explained, worlds)
            if failure is not None:
                self._emit(Broken(failure))
        self._emit(event)
        if isinstance(event, RankEnded) and event.failure is None:
            self._mpi_exits.ended(self.ranks.come_up.get(event.key))

    def reap(self) -> None:
        """Collects every child that has ended; no other code waits for children of the job."""
        for pid, status in tree.ended_children():
            code = os.waitstatus_to_exitcode(status)
            if pid in self.others:
                self._service_or_launcher_ended(self.others.ended(pid), code)
            elif not self._context.sidecars.ended(pid, code):
                self.ranks.reaped(pid, code)
        self.ranks.settle()

    def _service_or_launcher_ended(self, ended: ServiceOrLauncher, status: int) -> None:
        process = ended.process
        tail = self._pump.tail(None, process.name) or self._pump.stdout_tail(None, process.name)
        mpi = process.role == "launcher" and self.started is not None and self.started.under_mpi
        self._context.record(f"{process.role}-ended", name=process.name, status=status)
        failure = None
        if not process.optional and (status or not process.users):
            from musterpoint.core.diagnosis.program_failures import failure_of_service_or_launcher  # 15 ms

            end = ServiceOrLauncherEnd(
                process.name,
                process.role,
                status,
                len(self.ranks.come_up),
                tail,
                process.users,
                mpi,
                self.ranks.oom_struck(status),
            )
            failure = failure_of_service_or_launcher(end, self._context.diagnosis)
        if mpi:
            failure = self._mpi_exits.failure_at_end(failure, status, self.plan.hydra)
        vital = mpi or (process.role == "service" and not process.optional)
        self._emit(ServiceOrLauncherEnded(process.name, process.role, failure, vital))
        ended.on_end(status, tail)

    # -- stopping --

    def signal_ranks(self, signo: int, seconds: float, stopping: bool = False) -> None:
        """Sends ``signo`` to every live rank and to services of the user's own, once; then to what ranks left behind.

        All have ``seconds``, output included. ``stopping``: what those that were left behind fail with is told.
        """
        self.is_ending = True
        self.others.signal(signo)
        self._context.record("ranks-signalled", signal=signo, ranks=self.ranks.signal(signo, seconds, stopping))

    def pass_on(self, signo: int) -> None:
        """Sends SIGUSR1 or SIGUSR2 to the user's programs."""
        self.ranks.pass_on(signo)
        self.others.pass_on(signo)

    def kill(self) -> None:
        """SIGKILL to everything of the job."""
        self.is_ending = True
        self.ranks.being_killed()
        self._context.record("processes-killed", processes=tree.kill_below(os.getpid(), self._context.sidecars.pids))
        self._context.others.kill()

    @property
    def left_running(self) -> list[int]:
        """The pids of our children that ranks left behind, and that no signal has met yet."""
        left = [child.pid for child in self.remaining if child.state not in "ZX"]
        return [pid for pid in left if pid not in self._dismissed and not self._once.has_signalled(pid)]

    def end_left_running(self, orphans: bool = False) -> bool:
        """SIGTERM to what ranks left behind, once; returns whether there was any that hadn't had it.

        orphans: while others end. Where one has a handler, which may have passed the signal on, nothing is done.
        """
        left = [] if orphans and self._once.has_handled else self.left_running
        for pid in left:
            self._once.send(pid, signal.SIGTERM)
        return bool(left)

    def dismiss(self) -> None:
        """Ends services, launchers and stubs, since all ranks have ended."""
        below = tree.descendants_of(self.others.pids) if self.others.pids else {}
        self._dismissed = {*below, *(stat.pid for stats in below.values() for stat in stats), *self.ranks.stubs}
        self.others.kill()
        self.ranks.dismiss()

    @property
    def remaining(self) -> list[tree.Stat]:
        """The job's processes that are our children and still run. All others are below these: we adopt orphans."""
        spared = self._context.sidecars.pids
        return [child for child in tree.own_children() if child.pid not in spared]

    def close(self) -> None:
        self.is_ending = True
        self.ranks.close()
        self._once.close()
        if self._meeting is not None:
            self._meeting.close()
        self.control_socket.close()
        self.starter.close(self.started)


def number_of(word: str) -> int:
    """A number from a stub or an agent; ValueError if it isn't one, or is too long."""
    if not (word.isascii() and word.isdecimal()) or len(word) > _DIGITS:
        raise ValueError(f"{word[:20]!r} is no number")
    return int(word)
