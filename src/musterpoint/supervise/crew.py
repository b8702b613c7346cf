"""The crew: this host's processes, started from plans; what becomes of them comes out as events."""

import os
import signal
import time
from typing import Callable, Mapping, NamedTuple

from musterpoint.launch.plan import LaunchPlan, ProcessPlan
from musterpoint.loop import Loop
from musterpoint.supervise import tree
from musterpoint.supervise.desk import Desk, Visitor
from musterpoint.supervise.events import AttendantEnded, Broken, Key, LocalEvent, RankEnded, SessionOpened
from musterpoint.supervise.handover import OUTER, PLANNED
from musterpoint.supervise.left_behind import LeftBehind
from musterpoint.supervise.member import Member
from musterpoint.supervise.outcome import AttendantEnd, Explainer, RankEnd
from musterpoint.supervise.process import CannotStart, Streams, spawn
from musterpoint.supervise.pump import Pump
from musterpoint.supervise.stub import StubText
from musterpoint.supervise.terminal import Terminal

QUIET_STATUSES = frozenset({-int(signal.SIGTERM), -9, 143, 137, 0})
"""Statuses of a rank that was told to end and did, beside those of the signal it was told by: no failures."""


class _Session(NamedTuple):
    number: int
    plan: LaunchPlan
    environ: Mapping[str, str]
    owner: Visitor | None


class Crew:
    """Starts plans and watches what they become.

    ``emit`` gets every event; ``explain`` is asked for the words when something failed; ``record`` is the timeline;
    ``oom_kills`` counts the kernel's OOM kills in this container; ``greet`` gets the desk's other visitors.
    """

    def __init__(
        self, loop: Loop, pump: Pump, emit: Callable[[LocalEvent], None], explain: Callable[[], Explainer],
        record: Callable[..., None], oom_kills: Callable[[], int], greet: Callable[[Visitor, str], bool],
    ) -> None:  # fmt: skip
        self._pump, self._emit, self._explain, self._record = pump, emit, explain, record
        self._oom_kills, self._greet = oom_kills, greet
        self._oom_before = oom_kills()
        self._sessions: dict[int, _Session] = {}
        self._expected: set[Key] = set()
        self._ranks: dict[Key, Member] = {}
        self._by_pid: dict[int, Member] = {}
        self._attendants: dict[int, tuple[int, ProcessPlan]] = {}
        self._told: set[Key] = set()
        self._told_by = 0
        self._patient = False
        self._left_behind = LeftBehind(loop, self._end_held_back)
        self._held_back: RankEnded | None = None
        self.ends: list[RankEnd] = []
        self.refusing = False
        self._terminal = Terminal()
        self._stub = StubText()
        self.desk = Desk(loop, self._visited)

    # -- starting --

    def start(self, plan: LaunchPlan, environ: Mapping[str, str], owner: Visitor | None = None) -> int:
        """Starts a plan's processes; returns its session number."""
        number = len(self._sessions)
        self._sessions[number] = _Session(number, plan, environ, owner)
        keys = tuple((number, local) for local in range(plan.local_ranks))
        foreign = any(process.role == "launcher" for process in plan.processes)
        self._expected.update(keys)
        self._emit(SessionOpened(number, keys, foreign))
        for process in plan.processes:
            self._start_one(number, plan, process, environ)
        return number

    def _start_one(self, number: int, plan: LaunchPlan, process: ProcessPlan, environ: Mapping[str, str]) -> None:
        environment = self._environment(number, plan, process, environ)
        key: Key | None = (number, process.local_rank or 0) if process.role == "rank" else None
        out, err = self._pump.open(process.rank, process.local_rank, self._pump_name(number, process.name))
        alone = process.role == "rank" and plan.local_ranks == 1 and not number
        stdin = 0 if alone else os.open(os.devnull, os.O_RDONLY)
        try:
            pid = spawn(
                process.words, environment, process.cwd, Streams(stdin, out, err),
                with_parent=os.getpid() != 1, foreground=alone and self._terminal.offer(),
            )  # fmt: skip
        except CannotStart as error:
            failure = self._explain().cannot_start(process, error.error, error.step)
            if key is not None:
                self._expected.discard(key)
                self._emit(RankEnded(key, failure))
            else:
                self._emit(Broken(failure))
            return
        finally:
            for fd in {out, err} | ({stdin} if stdin else set()):
                os.close(fd)
        self._record("started", name=process.name, role=process.role, pid=pid, rank=process.rank)
        if key is None:
            self._attendants[pid] = (number, process)
            return
        name = self._pump_name(number, process.name)
        self._add(Member(key, process.rank or 0, process.local_rank or 0, name, pid))

    def _environment(
        self, number: int, plan: LaunchPlan, process: ProcessPlan, environ: Mapping[str, str]
    ) -> dict[str, str]:
        environment = {name: value for name, value in environ.items() if name not in plan.unset}
        for setting in (*plan.environment, *process.environment):
            environment[setting.name] = setting.value
        environment[OUTER] = self.desk.address
        environment[PLANNED] = ",".join(setting.name for setting in plan.environment if setting.name != "PYTHONPATH")
        if process.role == "launcher":
            environment["MUSTER_STUB"] = self._stub.path
            environment["MUSTER_SOCKET"] = self.desk.address
            environment["MUSTER_SESSION_NUMBER"] = str(number)
            environment["MUSTER_USER_CWD"] = plan.user_cwd
            environment["MUSTER_USER_PYTHONPATH"] = plan.user_pythonpath
            environment.pop("PYTHONPATH", None)
        return environment

    @staticmethod
    def _pump_name(number: int, name: str) -> str:
        return f"{number}.{name}" if number else name

    def _add(self, rank: Member) -> None:
        self._ranks[rank.key] = rank
        if rank.pid:
            self._by_pid[rank.pid] = rank

    # -- the desk --

    def _visited(self, visitor: Visitor) -> None:
        visitor.on_line = lambda words, line: self._introduced(visitor, words, line)

    def _introduced(self, visitor: Visitor, words: list[str], line: str) -> None:
        """The first line of a visitor says what it is."""
        if words[:1] == ["rank"] and len(words) == 6 and all(word.isdecimal() for word in words[1:]):
            rank, local_rank, world, stub_pid, session = (int(word) for word in words[1:])
            self._registered(visitor, rank, local_rank, world, stub_pid, session)
        elif not self._greet(visitor, line):
            visitor.close()

    def _registered(self, visitor: Visitor, rank: int, local: int, world: int, stub_pid: int, number: int) -> None:
        key = (number, local)
        session = self._sessions.get(number)
        if session is None or self.refusing or key not in self._expected or key in self._ranks:
            visitor.close()  # the stub exits when it hears nothing
            return
        member = Member(key, rank, local, self._pump_name(number, ""), 0, visitor, stub_pid)
        self._add(member)
        self._record("registered", rank=rank, local_rank=local, world_size=world, stub=stub_pid)
        visitor.on_line = lambda words, line: self._stub_said(member, words)
        visitor.on_gone = lambda: self._stub_gone(member)
        if world != session.plan.world_size:
            self._emit(Broken(self._explain().wrong_world(rank, world, session.plan.world_size)))
            return
        out, err = self._pump.open(rank, local, member.name)
        visitor.tell("go", (out, err))
        for fd in {out, err}:
            os.close(fd)

    def _stub_said(self, member: Member, words: list[str]) -> None:
        if words[0] == "started":
            member.pid = int(words[1])
            self._by_pid[member.pid] = member
            self._record("started", role="rank", rank=member.rank, pid=member.pid)
        elif words[0] == "signal":
            self._record("launcher-signal", rank=member.rank, signal=int(words[1]))
        elif words[0] == "ended":
            self._ended(member, os.waitstatus_to_exitcode(int(words[1])))

    def _stub_gone(self, member: Member) -> None:
        """A stub that was killed leaves its program to us: it is our child now and is reaped like one."""
        if member.key not in self._expected:
            return
        member.visitor = None
        if not member.pid or not tree.send(member.pid, 0):
            self._ended(member, member.orphan_status)

    def release(self, number: int, code: int) -> None:
        """Lets the stubs of a session exit; tells its owner how it ended."""
        for member in self._ranks.values():
            if member.key[0] == number and member.visitor is not None:
                member.visitor.tell("release")
        owner = self._sessions[number].owner if number in self._sessions else None
        if owner is not None:
            owner.tell(f"code {code}")

    # -- ends --

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
            if pid in self._attendants:
                self._attendant_ended(*self._attendants.pop(pid), code)
            elif pid in self._by_pid:
                self._reaped(self._by_pid[pid], code)
        self._end_held_back()

    def _reaped(self, member: Member, code: int) -> None:
        if member.visitor is None:
            self._ended(member, code)
        else:
            member.orphan_status = code  # its stub was killed; that is about to be noticed

    def _attendant_ended(self, number: int, process: ProcessPlan, status: int) -> None:
        registered = sum(1 for key in self._ranks if key[0] == number)
        tail = self._pump.tail(process.rank, self._pump_name(number, process.name))
        end = AttendantEnd(process.name, process.role, status, registered, tail)
        self._record("attendant-ended", name=process.name, role=process.role, status=status)
        self._emit(AttendantEnded(number, process.name, process.role, self._explain().attendant(end)))

    def _ended(self, member: Member, status: int | None) -> None:
        if member.key not in self._expected:
            return
        self._expected.discard(member.key)
        if member.pid:
            self._by_pid.pop(member.pid, None)
        told = member.key in self._told
        end = RankEnd(
            rank=member.rank, local_rank=member.local_rank, pid=member.pid, status=status, at=time.time(),
            ended_by_us=told, oom=status in (-9, 137) and not told and self._oom_kills() > self._oom_before,
            tail=self._pump.tail(member.rank, member.name) if status else b"",
            stdout_tail=self._pump.stdout_tail(member.rank, member.name) if status else b"",
        )  # fmt: skip
        self.ends.append(end)
        self._record("rank-ended", rank=end.rank, status=status, told=told, oom=end.oom)
        quiet = QUIET_STATUSES | {-self._told_by, 128 + self._told_by}
        failed = status != 0 and not (told and status in quiet)
        if failed and not told:
            self._pump.show(member.rank, member.name)
        self._held_back = RankEnded(member.key, self._explain().rank(end) if failed else None)
        self._end_held_back()

    def _end_held_back(self) -> None:
        """Emits a rank's end; the last one's after a stop not before what dead launchers left behind has ended, too."""
        if self._held_back is None:
            return
        if self._patient and not self._expected and self._left_behind.tell(self._known(), self._told_by):
            return
        event, self._held_back = self._held_back, None
        self._emit(event)

    def _known(self) -> set[int]:
        """Children of ours that nobody left behind."""
        return {*self._by_pid, *self._attendants, *(member.stub for member in self._ranks.values())}

    # -- stopping --

    def signal_ranks(self, signo: int, patient: bool = False) -> None:
        """Sends ``signo`` to every live rank, once; ranks that never came up are given up.

        ``patient``: what the ranks leave behind is told too, when the last one has ended, and has its time.
        """
        self.refusing = True
        self._told_by, self._patient = signo, patient
        for key in sorted(self._expected):
            member = self._ranks.get(key)
            if key in self._told:
                continue
            self._told.add(key)
            if member is not None:
                member.send(signo)
        self._record("signalled", signal=signo, ranks=len(self._told))
        for key in sorted(self._expected):
            member = self._ranks.get(key)
            if member is None or not member.pid:
                self._give_up(key, member)

    def _give_up(self, key: Key, member: Member | None) -> None:
        """A rank that its launcher hasn't brought up yet: the launcher goes, and the rank with it."""
        if member is not None and member.visitor is not None:
            member.visitor.close()
        if not any(other.pid for other in self._ranks.values() if other.key[0] == key[0]):
            for pid, (number, _process) in self._attendants.items():
                if number == key[0]:
                    tree.send(pid, signal.SIGKILL)
        self._expected.discard(key)
        self._emit(RankEnded(key, None))

    def pass_on(self, signo: int) -> None:
        """Sends a signal that means something to the user's program only."""
        for key in self._expected:
            member = self._ranks.get(key)
            if member is not None:
                member.send(signo)

    def kill(self) -> None:
        """SIGKILL to everything below us."""
        self.refusing = True
        self._told.update(self._expected)
        self._record("killed", processes=tree.kill_below(os.getpid()))

    def dismiss(self) -> None:
        """Ends the launchers, services and stubs: their ranks have ended, and what they would say is known."""
        for pid in self._attendants:
            tree.send(pid, signal.SIGKILL)
        for member in self._ranks.values():
            if member.visitor is not None:
                member.visitor.close()

    @property
    def left(self) -> list[tree.Stat]:
        """Processes below us that are still there."""
        return tree.descendants(os.getpid())

    def close(self) -> None:
        self._terminal.take_back()
        self._left_behind.close()
        self.desk.close()
        self._stub.close()
