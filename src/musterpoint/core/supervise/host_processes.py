"""The processes of this host: starts them from plans, and emits an event when one starts, fails or ends."""

import os
from typing import TYPE_CHECKING, Callable, Mapping

from musterpoint.base.stop_budget import FAILURE_GRACE
from musterpoint.core.diagnosis import ProcessEnd, diagnose
from musterpoint.core.launch.launch_plan import LaunchPlan, ProcessPlan
from musterpoint.core.processes import process_tree
from musterpoint.core.processes.control_socket import Connection, ControlSocket
from musterpoint.core.processes.process import CannotStart
from musterpoint.core.processes.shell_guard import ShellGuard
from musterpoint.core.processes.signal_once import SignalOnce
from musterpoint.core.supervise.context import SupervisorContext
from musterpoint.core.supervise.events import (
    Broken,
    Held,
    LocalEvent,
    PlanStarted,
    RankEnded,
    ServiceOrLauncherEnded,
    ServiceOrLauncherStarted,
    Whom,
)
from musterpoint.core.supervise.foreign_ranks import ForeignRanks
from musterpoint.core.supervise.left_running import LeftRunning
from musterpoint.core.supervise.own_failures import cannot_start
from musterpoint.core.supervise.process_starter import ProcessStarter, StartedPlan
from musterpoint.core.supervise.rank_ends import RaisedRanks, RankEnds
from musterpoint.core.supervise.rank_table import Rank, Ranks
from musterpoint.core.supervise.services_and_launchers import ServiceOrLauncher, ServicesAndLaunchers

if TYPE_CHECKING:
    from musterpoint.core.supervise.launches import Launches
    from musterpoint.core.supervise.ranks_met import MeetingWatch


class HostProcesses:
    """Starts the plan of this host and watches its processes.

    ``emit`` gets every event. ``take_connection`` gets the first line of every control-socket connection that is not a
    rank's, and returns whether it takes that connection. ``ranks`` are this host's, ``ends`` their ends, ``others`` its
    services and launchers, all started by ``starter``; ``left`` is what still runs of them. ``grace``: seconds that a
    program has to end.
    """

    def __init__(
        self,
        context: SupervisorContext,
        emit: Callable[[LocalEvent], None],
        take_connection: Callable[[Connection, str], bool],
        grace: float = FAILURE_GRACE,
    ) -> None:
        self._context, self._emit = context, emit
        once = SignalOnce(context.loop, say=context.say, guard=ShellGuard(context.sidecars))
        self.others = ServicesAndLaunchers(once)
        self.ranks = Ranks(self.others, once)
        self.ends = RankEnds(context, self.ranks, once, self._rank_ended)
        self.raised = RaisedRanks(context, self.ranks, self.ends, emit, grace)
        self.left = LeftRunning(context, self.ranks, once)
        self.foreign = ForeignRanks(context, self.ranks, self.ends, emit, take_connection, lambda: self.is_ending)
        self.control_socket = ControlSocket(context.loop, self.foreign.connected, context.say, context.token)
        self.starter = self.foreign.starter = ProcessStarter(context, self.control_socket)
        self._meeting: MeetingWatch | None = None
        self._launches: Launches | None = None
        self.is_ending = False

    # -- starting --

    def start(self, plan: LaunchPlan, environ: Mapping[str, str]) -> None:
        """Starts the plan's processes, services first; those of roles when their gates open."""
        self.foreign.started = StartedPlan(plan, environ)
        if plan.gates:
            self._emit(Held(frozenset(gate.role for gate in plan.gates if gate.ends == "job")))
        else:
            self._start_own()

    def start_role(self, role: str) -> None:
        """Starts the programs of ``role`` here: those of this host's own, or the one beside them."""
        plan = self.plan
        if role == plan.gates[0].role:
            self._start_own()
            return
        for process in plan.processes:
            if process.of_role == role:
                self._start_planned(process)

    def pids_of(self, role: str) -> list[int]:
        """The programs of ``role`` that run here."""
        if role == self.plan.gates[0].role:
            return [*self.ranks.by_pid, *self.others.pids_of("")]
        return self.others.pids_of(role)

    def _start_own(self) -> None:
        """Starts the ranks, and what they need."""
        assert self.started is not None
        started, plan = self.started, self.plan
        keys = tuple(range(plan.local_ranks))
        self.ranks.expect(plan.local_ranks, plan.world_size)
        self.ends.hidden.expect(0 if plan.independent else plan.world_size, started.runs_script)
        self._emit(PlanStarted(keys, plan.foreign, started.under_mpi))
        if plan.meeting is not None:
            from musterpoint.core.supervise.ranks_met import MeetingWatch

            self._meeting = MeetingWatch(self._context, plan.meeting, plan.world_size, lambda: [*self.ranks.by_pid])
        for process in sorted(plan.processes, key=lambda process: process.role != "service"):
            if not process.of_role:
                self._start_planned(process)
        for process in plan.of_others:
            self.foreign.let_others_start(started, process)

    @property
    def started(self) -> StartedPlan | None:
        """This host's plan and its environment, once it is started."""
        return self.foreign.started

    @property
    def plan(self) -> LaunchPlan:
        """This host's plan, once it is started."""
        assert self.started is not None
        return self.started.plan

    @property
    def environ(self) -> Mapping[str, str]:
        """The environment from which the plan's processes start; empty where none is started."""
        return self.started.environ if self.started is not None else {}

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
            self.ranks.expected.discard(key)
            self._emit(RankEnded(key, failure))

    def _start_rank(self, process: ProcessPlan) -> None:
        assert self.started is not None
        pid = self.starter.start(self.started, process, alone=self.plan.local_ranks == 1)
        rank = Rank(process.local_rank or 0, process.rank or 0)
        self.ranks.up[rank.key] = rank
        self.ranks.set_pid(rank, pid)
        self.ends.hidden.started(rank.number, pid)

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
        ends = self.plan.ends_of(process) if process.of_role else None
        self._emit(ServiceOrLauncherStarted(process.name, process.role, started.is_users, ends))

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

    # -- launches of ours in the job's program --

    def take_launch(self, connection: Connection, line: str) -> bool:
        """Takes a launch's connection by its first ``line``; False: it is none."""
        if self._launches is None:
            from musterpoint.core.supervise.launches import Launches

            self._launches = Launches(self._context, self.ranks, self.ends.hidden)
        if self._meeting is not None:  # the ranks are launchers, which meet nowhere
            self._meeting.close()
            self._meeting = None
        return self._launches.take(connection, line)

    # -- ends --

    def world_ended(self) -> None:
        """The ranks of this host's role have ended with 0 on all its hosts: their launcher may end, too."""
        self.foreign.mpi_exits.over()
        self.ranks.send_stubs("release")

    def _rank_ended(self, event: LocalEvent) -> None:
        """Passes the end of a rank on, behind what its last end says about all of them."""
        if isinstance(event, RankEnded) and self._meeting is not None:
            last = not self.ends.are_untold
            explained = last and self.ends.hidden.explains(not self.ends.own_children().issuperset(self.left.pids))
            worlds, well = self.ends.hidden.worlds if last else "", event.failure is None and not self.is_ending
            failure = self._meeting.rank_ended(well, last, explained, worlds)
            if failure is not None:
                self._emit(Broken(failure))
        self._emit(event)
        if isinstance(event, RankEnded) and event.failure is None and isinstance(event.key, int):
            self.foreign.mpi_exits.ended(self.ranks.up.get(event.key))

    def reap(self) -> None:
        """Collects every child that has ended; no other code waits for children of the job."""
        for pid, status in process_tree.ended_children():
            code = os.waitstatus_to_exitcode(status)
            if pid in self.others:
                self._service_or_launcher_ended(self.others.ended(pid), code)
            elif not self._context.sidecars.ended(pid, code):
                self.ends.reaped(pid, code)
        self.ends.settle()

    def _service_or_launcher_ended(self, ended: ServiceOrLauncher, status: int) -> None:
        process = ended.process
        tail = self._context.pump.tail(None, process.name) or self._context.pump.stdout_tail(None, process.name)
        mpi = process.role == "launcher" and self.started is not None and self.started.under_mpi
        self._context.record(f"{process.role}-ended", name=process.name, status=status)
        vital = (mpi and not self.foreign.mpi_exits.is_over) or (process.role == "service" and not process.optional)
        failure = None
        if not process.optional and (status or not process.users) and (vital or self.ends.are_untold):
            end = ProcessEnd(
                process.name,
                process.role,
                status,
                len(self.ranks.up),
                tail,
                process.users,
                mpi,
                self.ends.oom_struck(status),
            )
            failure = diagnose(end, self._context.diagnosis)
        if mpi:
            failure = self.foreign.mpi_exits.failure_at_end(failure, status, self.plan.hydra)
        self._emit(ServiceOrLauncherEnded(process.name, process.role, failure, vital))
        ended.on_end(status, tail)

    # -- stopping --

    def signal_ranks(self, signo: int, seconds: float, stopping: bool = False, whom: Whom = "all") -> None:
        """Sends ``signo`` to every live rank and to services of the user's own, once; then to what ranks left behind.

        All have ``seconds``, output included. ``stopping``: what those that were left behind fail with is told.
        ``whom``: only programs whose end is the job's, or those that serve them.
        """
        self.others.signal(signo, lambda process: whom == "all" or (self._is_jobs(process) == (whom == "job")))
        if self.own_are(whom):
            self.is_ending = True
            self._context.record("ranks-signalled", signal=signo, ranks=self.ends.signal(signo, seconds, stopping))

    def own_are(self, whom: Whom) -> bool:
        """This host's ranks are among those."""
        return whom == "all" or self.started is None or (self.plan.own_ends == "job") == (whom == "job")

    def _is_jobs(self, process: ProcessPlan) -> bool:
        return self.started is None or self.plan.ends_of(process) == "job"

    def kill(self) -> None:
        """SIGKILL to everything of the job."""
        self.is_ending = True
        self.ends.being_killed()
        killed = process_tree.kill_below(os.getpid(), self._context.sidecars.pids)
        self._context.record("processes-killed", processes=killed)
        self._context.others.kill()

    def close(self) -> None:
        self.is_ending = True
        self.ends.close()
        if self._meeting is not None:
            self._meeting.close()
        self.control_socket.close()
        self.starter.close(self.started)
