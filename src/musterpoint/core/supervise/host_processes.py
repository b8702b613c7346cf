"""The processes of this host: starts them from plans, and emits an event when one starts, fails or ends."""

import os
import signal
from functools import partial
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
    RankEnded,
    ServiceOrLauncherEnded,
    ServiceOrLauncherStarted,
    SessionOpened,
)
from musterpoint.core.supervise.mpi_exits import MpiExits
from musterpoint.core.supervise.process_starter import ProcessStarter, Session
from musterpoint.core.supervise.ranks import Rank, Ranks
from musterpoint.core.supervise.services_and_launchers import ServiceOrLauncher, ServicesAndLaunchers
from musterpoint.embedded.programs.registry import Program

if TYPE_CHECKING:
    from musterpoint.core.diagnosis.raised_facts import RaisedFacts
    from musterpoint.core.supervise.ranks_met import MeetingWatch

UNSEEN_SECONDS = 1.0
"""For the call of a rank's stub that was on its way when the process above it ended."""
_DIGITS = 10
"""Of the longest number that a stub or an agent sends."""


class HostProcesses:
    """Starts plans and watches their processes.

    ``emit`` gets every event. ``take_connection`` gets the first line of every control-socket connection that is not a
    rank's, and returns whether it takes that connection.
    """

    def __init__(
        self,
        context: SupervisorContext,
        emit: Callable[[LocalEvent], None],
        take_connection: Callable[[Connection, str], bool],
    ) -> None:
        self._context, self._pump, self._emit, self._take_connection = context, context.pump, emit, take_connection
        self._once = SignalOnce(context.loop, say=context.say, guard=ShellGuard(context.sidecars))
        self._others = ServicesAndLaunchers(self._once)
        self._ranks = Ranks(context, self._others, self._once, self._rank_ended)
        self.hidden = self._ranks.hidden
        self._meetings: dict[int, MeetingWatch] = {}
        self.sessions: dict[int, Session] = {}
        self.is_ending = False
        self._dismissed: set[int] = set()
        self._mpi_exits = MpiExits(context, self._ranks, emit, lambda: self.is_ending)
        self.control_socket = ControlSocket(context.loop, self._connected, context.say, context.token)
        self._starter = ProcessStarter(context, self.control_socket)

    # -- starting --

    def start(self, plan: LaunchPlan, environ: Mapping[str, str], owner: Connection | None = None) -> int:
        """Starts a plan's processes, services first; returns its session number."""
        session = Session(len(self.sessions), plan, environ, owner)
        self.sessions[session.number] = session
        keys = tuple((session.number, local) for local in range(plan.local_ranks))
        self._ranks.expect(keys, plan.world_size)
        self.hidden.expect(session.number, 0 if plan.independent else plan.world_size, session.runs_script)
        self._emit(SessionOpened(session.number, keys, plan.foreign, session.under_mpi))
        if owner is not None and 0 in self._meetings:
            self._meetings.pop(0).close()  # the job's own ranks are launchers, which meet nowhere
        if plan.meeting is not None:
            from musterpoint.core.supervise.ranks_met import MeetingWatch

            pids = partial(self._ranks.pids, session.number)
            self._meetings[session.number] = MeetingWatch(self._context, plan.meeting, plan.world_size, pids)
        for process in sorted(plan.processes, key=lambda process: process.role != "service"):
            self._start_planned(session, process)
        for process in plan.of_others:
            self._let_others_start(session, process)
        return session.number

    def _let_others_start(self, session: Session, process: ProcessPlan) -> None:
        """The host's other entry points start their ranks, each with the variables that it has itself."""
        others = self._context.others
        if others is None:
            return
        environment = self._starter.environment_for(session, process)
        given = {name: value for name, value in environment.items() if session.environ.get(name) != value}
        others.watch(
            lambda rank, local: self._lost_entry_point((session.number, local), rank),
            lambda rank, local, status: self._ended_unseen((session.number, local), rank, status),
        )
        others.start(process.words, given, [name for name in session.environ if name not in environment])

    def _lost_entry_point(self, key: Key, number: int) -> None:
        """Another entry point of this host has ended: its rank isn't watched any more."""
        if self.is_ending and not self._ranks.is_missing(key):
            self._ranks.lost_entry_point(key)
            return
        self._context.record("entry-point-lost", rank=number, local_rank=key[1])
        if not self._ranks.lost_entry_point(key):
            self._emit(Broken(lost_entry_point(number, key[1], self._context.diagnosis)))

    def _ended_unseen(self, key: Key, number: int, status: int) -> None:
        """What another entry point of this host started for its rank has ended: without a rank, that would wait."""

        def judge() -> None:
            if self._ranks.is_missing(key) and not self.is_ending:
                self._context.record("rank-ended-unseen", rank=number, status=status)
                self._emit(Broken(ended_unseen(number, key[1], status, self._context.diagnosis)))

        self._context.loop.call_later(UNSEEN_SECONDS, judge)

    def _start_planned(self, session: Session, process: ProcessPlan) -> None:
        try:
            if process.role == "rank":
                self._start_rank(session, process)
            else:
                self.start_service_or_launcher(session.number, process)
        except CannotStart as error:
            failure = cannot_start(process, error.error, error.step, self._context.diagnosis)
            if process.role != "rank":
                self._emit(Broken(failure))
                return
            key = (session.number, process.local_rank or 0)
            self._ranks.forget(key)
            self._emit(RankEnded(key, failure))

    def _start_rank(self, session: Session, process: ProcessPlan) -> None:
        alone = session.plan.local_ranks == 1 and not session.number
        pid = self._starter.start(session, process, alone)
        key = (session.number, process.local_rank or 0)
        rank = Rank(key, process.rank or 0, session.pump_name(process.name))
        self._ranks.add(rank)
        self._ranks.set_pid(rank, pid)

    @property
    def live_ranks(self) -> dict[int, int]:
        """The pids of ranks that run here, by global rank."""
        return self._ranks.live

    @property
    def cut_off(self) -> bool:
        """See :attr:`Ranks.cut_off`."""
        return self._ranks.cut_off

    def unstarted(self, session: int) -> list[tuple[int, int]]:
        """The ranks of a session (global, local) whose program doesn't run yet."""
        first = self.sessions[session].plan.first_rank
        return [(first + local, local) for _, local in self._ranks.unstarted(session)]

    def local_rank(self, rank: int) -> int | None:
        """The local rank of a global one of this host; None where it has none."""
        return self._ranks.local_rank(rank)

    @property
    def had_ranks(self) -> bool:
        """Whether any rank was planned here."""
        return any(session.plan.local_ranks for session in self.sessions.values())

    @property
    def independent(self) -> bool:
        """Whether what runs here is one program of its own, and no ranks."""
        return all(session.plan.independent for session in self.sessions.values())

    def start_service_or_launcher(
        self, number: int, process: ProcessPlan, on_end: Callable[[int, bytes], None] = lambda status, tail: None
    ) -> None:
        """Starts a service or a launcher of a session; ``on_end`` gets its status and the end of its output.

        Raises:
            CannotStart: the program couldn't be executed.
        """
        pid = self._starter.start(self.sessions[number], process, False)
        started = ServiceOrLauncher(number, process, pid, on_end)
        self._others.add(started)
        self._emit(ServiceOrLauncherStarted(number, process.name, process.role, started.is_users))

    def serve(self, number: int, process: ProcessPlan, connection: int) -> None:
        """Starts a service for one caller, with the ``connection`` as its stdin and stdout.

        Raises:
            CannotStart: the program couldn't be executed.
        """
        pid = self._starter.serve(self.sessions[number], process, connection)
        self._others.add(ServiceOrLauncher(number, process, pid, lambda status, tail: None))
        self._context.record("service-started", name=process.name, pid=pid, rank=None)

    def adopt(self, number: int, process: ProcessPlan, pid: int, on_end: Callable[[int, bytes], None]) -> None:
        """Counts a program below us, which a service has started, among the user's own services."""
        self._others.add(ServiceOrLauncher(number, process, pid, on_end))
        self._context.record("service-started", name=process.name, pid=pid, rank=None)
        self._emit(ServiceOrLauncherStarted(number, process.name, process.role, users=True))

    def adopted_ended(self, pid: int) -> None:
        """The program of :meth:`adopt` has ended; its parent takes its status."""
        if pid in self._others:
            ended = self._others.ended(pid)
            self._context.record("service-ended", name=ended.process.name, status=None)
            self._emit(ServiceOrLauncherEnded(ended.session, ended.process.name, ended.process.role, None, vital=False))
            ended.on_end(0, b"")

    def path_of(self, program: Program) -> str:
        """The file of a program of ours, which every process of this user can read."""
        return self._starter.path_of(program)

    def hold(self, name: str, text: str) -> str:
        """Keeps ``text`` in memory for processes of this user; returns its path."""
        return self._starter.hold(name, text)

    def environment_for(self, number: int, process: ProcessPlan) -> dict[str, str]:
        """The environment of a process of a session."""
        return self._starter.environment_for(self.sessions[number], process)

    # -- the control socket --

    def _connected(self, connection: Connection) -> None:
        connection.route_to(lambda words, line: self._first_line(connection, words, line))

    def _first_line(self, connection: Connection, words: list[str], line: str) -> None:
        """The first line of a connection says what it is."""
        if words[:1] == ["rank"] and len(words) == 6:
            number, local_rank, world, stub, session = map(number_of, words[1:])
            self._registered(connection, (session, local_rank), number, world, stub)
        elif not self._take_connection(connection, line):
            connection.close()

    def _registered(self, connection: Connection, key: Key, number: int, world: int, stub: int) -> None:
        """A launcher has started a stub, with the pid ``stub``, in the place of rank ``number``."""
        session = self.sessions.get(key[0])
        if session is None or self.is_ending:
            connection.close()  # the stub exits when it gets no answer
            return
        self._context.record("rank-registered", rank=number, local_rank=key[1], world_size=world, stub=stub)
        wrong = self._misplaced(session, key, number, world)
        if self._ranks.is_missing(key):
            abort = session.plan.hydra
            rank = Rank(key, number, session.pump_name(""), connection, stub, session.under_mpi, abort)
            self._ranks.add(rank)
            connection.route_to(lambda words, line: self._stub_line(rank, words), lambda: self._lost_stub(rank))
            if wrong is None:
                self._send_go(rank, connection)
        if wrong is not None:
            self._emit(Broken(wrong))

    def _misplaced(self, session: Session, key: Key, number: int, world: int) -> Failure | None:
        """The failure of a rank that isn't planned here or has another world size; None if it is right."""
        plan, local_rank = session.plan, key[1]
        if world == plan.world_size and local_rank < plan.local_ranks and self._ranks.is_missing(key):
            return None
        if world != plan.world_size:
            return wrong_world(number, world, plan.world_size, self._context.diagnosis)
        return unplanned_rank(number, local_rank, plan.local_ranks, self._context.diagnosis)

    def _send_go(self, rank: Rank, connection: Connection) -> None:
        """Lets the stub start its program, with pipes of ours, or on the terminal that the rank gets."""
        out, err = self._starter.outputs(rank.number, rank.name)
        connection.send("go", (out, err))
        for fd in {out, err}:
            os.close(fd)

    def _stub_line(self, rank: Rank, words: list[str]) -> None:
        """Handles a line from a stub; a ValueError (a line that no stub sends) closes the connection."""
        word, number = words[0], number_of(words[1])
        if word == "started":
            if rank.pid or number < 2 or number == os.getpid():
                raise ValueError(f"{number} is no pid of a rank")
            self._ranks.set_pid(rank, number)
            self._context.record("rank-started", rank=rank.number, pid=number)
        elif word == "signal":
            self._context.record("launcher-signal", rank=rank.number, signal=number)
            self._mpi_exits.signalled_by_mpi(rank)
        elif word == "ended":
            status = os.waitstatus_to_exitcode(number)
            self._ranks.ended(rank, status)

    def _lost_stub(self, rank: Rank) -> None:
        self._ranks.lost_stub(rank)
        self._mpi_exits.signalled_by_mpi(rank)

    def release(self, number: int, code: int) -> None:
        """Lets the stubs of a session exit; sends its code to its owner."""
        for rank in self._ranks.of_session(number):
            if rank.connection is not None:
                rank.connection.send("release")
        owner = self.sessions[number].owner if number in self.sessions else None
        if owner is not None:
            if not self._others.end(number):
                self._others.kill(number, "service")
            owner.send(f"code {code}")

    # -- ends --

    def _rank_ended(self, event: LocalEvent) -> None:
        """Passes the end of a rank on, behind what its last end says about all of them."""
        if isinstance(event, RankEnded) and (meeting := self._meetings.get(event.key[0])) is not None:
            last = not self._ranks.untold(event.key[0])
            explained = last and self.hidden.explains(not self._ranks.own_children().issuperset(self.left_running))
            nested = self.hidden.worlds(event.key[0]) if last else ""
            failure = meeting.rank_ended(event.failure is None and not self.is_ending, last, explained, nested)
            if failure is not None:
                self._emit(Broken(failure))
        self._emit(event)
        if isinstance(event, RankEnded) and event.failure is None:
            self._mpi_exits.ended(self._ranks.of_key(event.key))

    def reported(self, failure: Failure) -> None:
        """A nested launcher reports why its rank will end."""
        self._context.record("nested-launcher-failed", code=failure.code)
        self._ranks.reported(failure)

    def has_raised(self, facts: "RaisedFacts") -> None:
        """A rank tells of the exception that ends it; see :meth:`Ranks.has_raised`."""
        if not self.is_ending:
            self._ranks.has_raised(facts)

    def tell_who_raised(self) -> None:
        """Emits what ranks that still run have raised, where nothing else explains a failure."""
        if not self.is_ending:
            self._ranks.tell_who_raised()

    def raised(self, number: int) -> str:
        """What the rank with this global number has raised, if it still runs; empty: nothing."""
        return self._ranks.raised(number)

    def printed(self, number: int) -> bytes:
        """See :meth:`Ranks.printed`."""
        return self._ranks.printed(number)

    def raised_aside(self, number: int) -> str:
        """See :meth:`Ranks.raised_aside`."""
        return self._ranks.raised_aside(number)

    def reap(self) -> None:
        """Collects every child that has ended; no other code waits for children of the job."""
        for pid, status in tree.ended_children():
            code = os.waitstatus_to_exitcode(status)
            if pid in self._others:
                self._service_or_launcher_ended(self._others.ended(pid), code)
            elif not self._context.sidecars.ended(pid, code):
                self._ranks.reaped(pid, code)
        self._ranks.settle()

    def _service_or_launcher_ended(self, ended: ServiceOrLauncher, status: int) -> None:
        number, process = ended.session, ended.process
        name = self.sessions[number].pump_name(process.name)
        tail = self._pump.tail(None, name) or self._pump.stdout_tail(None, name)
        mpi = self.sessions[number].under_mpi and process.role == "launcher"
        self._context.record(f"{process.role}-ended", name=process.name, status=status)
        failure = None
        if not process.optional and (status or not process.users):
            from musterpoint.core.diagnosis.program_failures import failure_of_service_or_launcher  # 15 ms

            end = ServiceOrLauncherEnd(
                process.name,
                process.role,
                status,
                len(self._ranks.of_session(number)),
                tail,
                process.users,
                mpi,
                self._ranks.oom_struck(status),
            )
            failure = failure_of_service_or_launcher(end, self._context.diagnosis)
        if mpi:
            failure = self._mpi_exits.failure_at_end(failure, number, status, self.sessions[number].plan.hydra)
        vital = mpi or (process.role == "service" and not process.optional)
        self._emit(ServiceOrLauncherEnded(number, process.name, process.role, failure, vital))
        ended.on_end(status, tail)

    # -- stopping --

    def signal_ranks(self, signo: int, seconds: float, stopping: bool = False) -> None:
        """Sends ``signo`` to every live rank and to services of the user's own, once; then to what ranks left behind.

        All have ``seconds``, output included. ``stopping``: what those that were left behind fail with is told.
        """
        self.is_ending = True
        if stopping:
            self._context.stopping()
        self._others.signal(signo)
        self._context.record("ranks-signalled", signal=signo, ranks=self._ranks.signal(signo, seconds, stopping))

    def pass_on(self, signo: int) -> None:
        """Sends SIGUSR1 or SIGUSR2 to the user's programs."""
        self._ranks.pass_on(signo)
        self._others.pass_on(signo)

    def kill(self) -> None:
        """SIGKILL to everything of the job."""
        self.is_ending = True
        self._ranks.being_killed()
        self._context.record("processes-killed", processes=tree.kill_below(os.getpid(), self._context.sidecars.pids))
        if self._context.others is not None:
            self._context.others.kill()

    def end_services(self) -> int:
        """SIGTERM to services that end by themselves then; seconds that they get, 0 where there are none."""
        return self._others.end()

    @property
    def services_are_ending(self) -> bool:
        return self._others.are_ending

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
        below = tree.descendants_of(self._others.pids) if self._others.pids else {}
        self._dismissed = {*below, *(stat.pid for stats in below.values() for stat in stats), *self._ranks.stubs}
        self._others.kill()
        self._ranks.dismiss()

    @property
    def remaining(self) -> list[tree.Stat]:
        """The job's processes that are our children and still run. All others are below these: we adopt orphans."""
        spared = self._context.sidecars.pids
        return [child for child in tree.own_children() if child.pid not in spared]

    def close(self) -> None:
        self.is_ending = True
        self._ranks.close()
        self._once.close()
        for meeting in self._meetings.values():
            meeting.close()
        self.control_socket.close()
        self._starter.close([*self.sessions.values()])


def number_of(word: str) -> int:
    """A number from a stub or an agent; ValueError if it isn't one, or is too long."""
    if not (word.isascii() and word.isdecimal()) or len(word) > _DIGITS:
        raise ValueError(f"{word[:20]!r} is no number")
    return int(word)
