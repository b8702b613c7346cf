"""The processes: this host's processes, started from plans; what becomes of them comes out as events."""

import os
from typing import Callable, Mapping, NamedTuple

from musterpoint.failure import Failure
from musterpoint.launch.plan import LaunchPlan, ProcessPlan
from musterpoint.loop import Loop
from musterpoint.processes import tree
from musterpoint.processes.control_socket import Connection, ControlSocket
from musterpoint.processes.process import CannotStart, Streams, Terminal, spawn
from musterpoint.processes.pump import Pump
from musterpoint.processes.sidecars import Sidecars
from musterpoint.programs.registry import Texts
from musterpoint.supervise.environment import Scratch, add_for_launcher, planned_environment
from musterpoint.supervise.events import (
    Broken,
    Key,
    LocalEvent,
    RankEnded,
    SessionOpened,
    UnrankedEnded,
    UnrankedStarted,
)
from musterpoint.supervise.left_early import LeftEarly
from musterpoint.supervise.outcome import Explainer, RankEnd, UnrankedEnd
from musterpoint.supervise.ranks import Rank, Ranks
from musterpoint.supervise.unranked import Unranked, UnrankedProcesses

_DIGITS = 10
"""Of the longest number that a stub or an agent says."""


class Session(NamedTuple):
    """One plan that was started here, and who handed it over (nobody: the job's own)."""

    number: int
    plan: LaunchPlan
    environ: Mapping[str, str]
    owner: Connection | None

    @property
    def is_mpi(self) -> bool:
        """Whether an MPI starts the ranks, on this host or on several: its processes end each other."""
        return bool(self.plan.daemons) or self.plan.launcher == "mpi"


class HostProcesses:
    """Starts plans and watches what they become.

    ``emit`` gets every event; ``explain`` is asked for the words when something failed; ``record`` is the timeline;
    ``oom_kills`` counts the kernel's OOM kills in this container; ``greet`` gets the control socket's other
    connections; ``sidecars`` are no part of the job; ``warn`` is told of trouble at the control socket.
    """

    def __init__(
        self, loop: Loop, pump: Pump, emit: Callable[[LocalEvent], None], explain: Callable[[], Explainer],
        record: Callable[..., None], oom_kills: Callable[[], int], greet: Callable[[Connection, str], bool],
        sidecars: Sidecars, warn: Callable[[str], None] = lambda text: None,
    ) -> None:  # fmt: skip
        self._pump, self._emit, self._explain, self._record, self._greet = pump, emit, explain, record, greet
        self._unranked, self._sidecars = UnrankedProcesses(), sidecars
        self._members = Ranks(
            loop, pump, self._unranked, emit, explain, record, oom_kills, lambda: sidecars.pids
        )  # fmt: skip
        self.sessions: dict[int, Session] = {}
        self.refusing = False
        self._left_early = LeftEarly(loop, self._members, emit, explain, record, lambda: self.refusing)
        self._terminal = Terminal()
        self._texts = Texts()
        self._scratch = Scratch()
        self.control_socket = ControlSocket(loop, self._visited, warn)

    @property
    def ends(self) -> list[RankEnd]:
        return self._members.ends

    # -- starting --

    def start(self, plan: LaunchPlan, environ: Mapping[str, str], owner: Connection | None = None) -> int:
        """Starts a plan's processes, services first; returns its session number."""
        session = Session(len(self.sessions), plan, environ, owner)
        self.sessions[session.number] = session
        self._members.reported = None  # what went wrong before this plan came doesn't end the job
        keys = tuple((session.number, local) for local in range(plan.local_ranks))
        self._members.expect(keys)
        self._emit(SessionOpened(session.number, keys, plan.foreign, session.is_mpi))
        for process in sorted(plan.processes, key=lambda process: process.role != "service"):
            self._start_planned(session, process)
        return session.number

    def _start_planned(self, session: Session, process: ProcessPlan) -> None:
        try:
            if process.role == "rank":
                self._start_rank(session, process)
            else:
                self.attend(session.number, process)
        except CannotStart as error:
            failure = self._explain().cannot_start(process, error.error, error.step)
            if process.role != "rank":
                self._emit(Broken(failure))
                return
            key = (session.number, process.local_rank or 0)
            self._members.forget(key)
            self._emit(RankEnded(key, failure))

    def _start_rank(self, session: Session, process: ProcessPlan) -> None:
        alone = session.plan.local_ranks == 1 and not session.number
        pid = self._spawn(session, process, self.environment_for(session.number, process), alone)
        key = (session.number, process.local_rank or 0)
        name = self._pump_name(session.number, process.name)
        self._members.add(Rank(key, process.rank or 0, process.local_rank or 0, name, pid))

    def attend(
        self, number: int, process: ProcessPlan, on_end: Callable[[int, bytes], None] = lambda status, tail: None
    ) -> None:
        """Starts a launcher or a service of a session; ``on_end`` gets its status and the end of its output.

        Raises:
            CannotStart: the program couldn't be executed.
        """
        pid = self._spawn(self.sessions[number], process, self.environment_for(number, process), False)
        unranked = Unranked(number, process, pid, on_end)
        self._unranked.add(unranked)
        self._emit(UnrankedStarted(number, process.name, process.role, unranked.waited_for))

    def environment_for(self, number: int, process: ProcessPlan) -> dict[str, str]:
        """The environment of a process of a session."""
        session, control_socket, token = self.sessions[number], self.control_socket.address, self.control_socket.token
        environment = planned_environment(
            session.plan, process, session.environ, control_socket, token, self._texts.path
        )
        if process.role == "launcher":
            stub, scratch = self._texts.path("rank_stub"), self._scratch.path(session.environ)
            add_for_launcher(environment, session.plan, number, control_socket, stub, scratch)
        return environment

    def _spawn(self, session: Session, process: ProcessPlan, environment: Mapping[str, str], alone: bool) -> int:
        out, err = self._pump.open(process.rank, self._pump_name(session.number, process.name))
        stdin = 0 if alone else os.open(os.devnull, os.O_RDONLY)
        try:
            words = [self._texts.path(word.ours) if word.ours else word.text for word in process.argv]
            pid = spawn(
                words, environment, process.cwd, Streams(stdin, out, err),
                with_parent=os.getpid() != 1, foreground=alone and self._terminal.lend(),
            )  # fmt: skip
        finally:
            for fd in {out, err} | ({stdin} if stdin else set()):
                os.close(fd)
        self._record("started", name=process.name, role=process.role, pid=pid, rank=process.rank)
        return pid

    @staticmethod
    def _pump_name(number: int, name: str) -> str:
        return f"{number}.{name}" if number else name

    # -- the control socket --

    def _visited(self, connection: Connection) -> None:
        connection.route_to(lambda words, line: self._introduced(connection, words, line))

    def _introduced(self, connection: Connection, words: list[str], line: str) -> None:
        """The first line of a connection says what it is."""
        if words[:1] == ["rank"] and len(words) == 6:
            rank, local_rank, world, stub_pid, session = map(number_of, words[1:])
            self._registered(connection, rank, local_rank, world, stub_pid, session)
        elif not self._greet(connection, line):
            connection.close()

    def _registered(
        self, connection: Connection, rank: int, local: int, world: int, stub_pid: int, number: int
    ) -> None:
        key = (number, local)
        session = self.sessions.get(number)
        if session is None or self.refusing:
            connection.close()  # the stub exits when it hears nothing
            return
        self._record("registered", rank=rank, local_rank=local, world_size=world, stub=stub_pid)
        wrong = self._misplaced(session, key, rank, world)
        if self._members.is_missing(key):
            member = Rank(key, rank, local, self._pump_name(number, ""), 0, connection, stub_pid, session.is_mpi)
            self._members.add(member)
            connection.route_to(lambda words, line: self._stub_said(member, words), lambda: self._lost_stub(member))
            if wrong is None:
                self._let_go(member)
        if wrong is not None:
            self._emit(wrong)

    def _misplaced(self, session: Session, key: Key, rank: int, world: int) -> Broken | None:
        """What is wrong with a rank that came up: nobody planned it, or it is part of another world."""
        plan = session.plan
        if world != plan.world_size:
            return Broken(self._explain().wrong_world(rank, world, plan.world_size))
        if key[1] >= plan.local_ranks or not self._members.is_missing(key):
            return Broken(self._explain().unplanned_rank(rank, key[1], plan.local_ranks))
        return None

    def _let_go(self, member: Rank) -> None:
        out, err = self._pump.open(member.rank, member.name)
        if member.connection is not None:
            member.connection.send("go", (out, err))
        for fd in {out, err}:
            os.close(fd)

    def _stub_said(self, member: Rank, words: list[str]) -> None:
        """A ValueError, which ends the connection: no stub says that."""
        word, number = words[0], number_of(words[1])
        if word == "started":
            if member.pid or number < 2 or number == os.getpid():
                raise ValueError(f"{number} is no pid of a rank")
            self._members.has_pid(member, number)
            self._record("started", role="rank", rank=member.rank, pid=member.pid)
        elif word == "signal":
            self._record("launcher-signal", rank=member.rank, signal=number)
            self._left_early.ask_why(member)
        elif word == "ended":
            status = os.waitstatus_to_exitcode(number)
            self._members.ended(member, status)
            self._left_early.ended(member, status)

    def _lost_stub(self, member: Rank) -> None:
        self._members.lost_stub(member)
        self._left_early.ask_why(member)

    def release(self, number: int, code: int) -> None:
        """Lets the stubs of a session exit; tells its owner how it ended."""
        for member in self._members.of(number):
            if member.connection is not None:
                member.connection.send("release")
        owner = self.sessions[number].owner if number in self.sessions else None
        if owner is not None:
            self._unranked.kill(number, "service")
            owner.send(f"code {code}")

    # -- ends --

    def reported(self, failure: Failure) -> None:
        """A launcher of ours that runs as the job's program says why the rank that it is, or is part of, will end."""
        self._record("reported", code=failure.code)
        self._members.reported = failure

    def reap(self) -> None:
        """Collects every child that has ended: the one place that waits."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if pid == 0:
                break
            code = os.waitstatus_to_exitcode(status)
            if pid in self._unranked:
                self._unranked_ended(self._unranked.ended(pid), code)
            elif not self._sidecars.ended(pid, code):
                self._members.reaped(pid, code)
        self._members.settle()

    def _unranked_ended(self, unranked: Unranked, status: int) -> None:
        number, process = unranked.session, unranked.process
        name = self._pump_name(number, process.name)
        tail = self._pump.tail(None, name) or self._pump.stdout_tail(None, name)
        came_up = self._members.came_up(number)
        mpi = self.sessions[number].is_mpi and process.role == "launcher"
        end = UnrankedEnd(
            process.name, process.role, status, came_up, tail, process.users, mpi, self._members.oom_struck(status)
        )
        self._record("attendant-ended", name=process.name, role=process.role, status=status)
        fine = process.users and status == 0
        failure = None if fine else self._explain().unranked(end)
        if mpi:
            failure = self._left_early.instead_of(failure, number, process.name, status)
        self._emit(UnrankedEnded(number, process.name, process.role, failure, mpi or process.role == "service"))
        unranked.on_end(status, tail)

    # -- stopping --

    def signal_ranks(self, signo: int, patient: bool = False) -> None:
        """Sends ``signo`` to every live rank and to services of the user's own, once.

        ``patient``: what the ranks leave behind is told too, when the last one has ended, and has its time.
        """
        self.refusing = True
        self._unranked.tell(signo)
        self._record("signalled", signal=signo, ranks=self._members.tell(signo, patient))

    def pass_on(self, signo: int) -> None:
        """Sends a signal that means something to the user's programs only."""
        self._members.pass_on(signo)
        self._unranked.pass_on(signo)

    def kill(self) -> None:
        """SIGKILL to everything of the job."""
        self.refusing = True
        self._members.all_told()
        self._record("killed", processes=tree.kill_below(os.getpid(), self._sidecars.pids))

    def dismiss(self) -> None:
        """Ends the launchers, services and stubs: their ranks have ended, and what they would say is known."""
        self._unranked.kill()
        self._members.dismiss()

    @property
    def left(self) -> list[tree.Stat]:
        """The job's processes that are still there."""
        return tree.descendants(os.getpid(), spared=self._sidecars.pids)

    def close(self) -> None:
        self.refusing = True
        self._terminal.take_back()
        self._members.close()
        self.control_socket.close()
        self._texts.close()
        self._scratch.close()


def number_of(word: str) -> int:
    """A number that a stub or an agent says. A ValueError: it is none, or longer than any."""
    if not (word.isascii() and word.isdecimal()) or len(word) > _DIGITS:
        raise ValueError(f"{word[:20]!r} is no number")
    return int(word)
