"""The supervisor: gets events of this host's processes and of other hosts, and does what the policy decides."""

from __future__ import annotations

import signal
from functools import partial
from typing import TYPE_CHECKING, Any, Callable, Mapping

from musterpoint.base.exit_codes import signal_name
from musterpoint.base.failure import Failure, numbers
from musterpoint.base.loop import Timer
from musterpoint.core.channel.peers import (
    AllDone,
    GroupEnded,
    JobFailed,
    NotReady,
    PeerBack,
    PeerEvent,
    PeerLost,
    Peers,
    PeerSilent,
    RoleReady,
    StartAsked,
    Started,
    StartEnded,
    StopAll,
    WorldEnded,
)
from musterpoint.core.channel.topics.raised_ranks import RaisedAsked
from musterpoint.core.launch.launch_plan import LaunchPlan
from musterpoint.core.processes import process_tree
from musterpoint.core.processes.control_socket import Connection
from musterpoint.core.processes.received_signals import PASSED_ON, STOPPING
from musterpoint.core.rollcall.roster import Roster
from musterpoint.core.supervise import events as ev
from musterpoint.core.supervise.context import SupervisorContext
from musterpoint.core.supervise.events import Action, Event
from musterpoint.core.supervise.host_processes import HostProcesses
from musterpoint.core.supervise.own_failures import cannot_start
from musterpoint.core.supervise.policy import UNKILLABLE_SECONDS, decide
from musterpoint.core.supervise.state import Outcome, Rules, State, code_of, first_line
from musterpoint.core.supervise.watcher import JobWatchers, Watched, Watchers

if TYPE_CHECKING:
    from musterpoint.core.supervise.gates import Gates
    from musterpoint.core.supervise.mpi_daemons import MpiDaemons

DRAIN_SECONDS = 10.0
"""How long a slow reader of our output is waited for at the end; a stop leaves less."""
DRAIN_SECONDS_STOPPED = 3.0
LEFT_ALONE = 0.1
"""Seconds in which what the program left running may end by itself before that is told."""
LEFT_TIME = 2.0
"""Seconds between SIGTERM and SIGKILL for what the program left running."""
MOST_ROUNDS = 2
"""How often that time is given: children of a process that handled the signal get it when the first has passed."""
MOST_NAMED = 3
"""Processes that are named in one line."""


class Supervisor:
    """Runs one job on this host.

    It starts a plan (:meth:`run`) or nothing (:meth:`wait`). Both return when the job is over and no process of it is
    left. Everything happens in the thread that calls them, but for the pump. ``watchers`` are those of the whole job.
    ``first_stop``: host and signal of a stop, also of one that came when a failure was ending the job.
    """

    def __init__(
        self,
        context: SupervisorContext,
        rules: Rules,
        peers: Peers,
        roster: Roster,
        watchers: JobWatchers | None = None,
    ) -> None:
        self._context, self._rules, self._peers, self._roster = context, rules, peers, roster
        self._loop, self._pump = context.loop, context.pump
        self._state = State()
        self._stopped_at: float | None = None
        self.first_stop: tuple[str, int] | None = None
        self._timers: dict[type, Timer] = {}
        self._queue: list[Event] = []
        self._busy = False
        self._finished = False
        self._awaited: Callable[[], object] = lambda: self._processes.left.remaining
        self._processes = HostProcesses(context, self.on_event, self._take_connection, rules.grace)
        self._mpi: MpiDaemons | None = None
        self._gates: Gates | None = None
        watched = Watched(context, peers, self._processes, roster, rules, self.on_event)
        self._watchers = Watchers(watched, watchers or JobWatchers())

    @property
    def token(self) -> str:
        """A secret that every process of the job has in its environment."""
        return self._processes.control_socket.token

    def on_signal(self, signo: int) -> None:
        """A signal came to this process (called in the loop's thread)."""
        if signo == signal.SIGCHLD:
            self._processes.reap()
            if self._finished and not self._awaited():
                self._loop.stop()
        elif signo in PASSED_ON:
            self._processes.ranks.pass_on(signo)
        elif signo in STOPPING:
            self.on_event(ev.StopAsked(signal.SIGINT if signo == signal.SIGINT else signal.SIGTERM))

    def run(self, plan: LaunchPlan, environ: Mapping[str, str]) -> Outcome:
        """Starts ``plan``."""
        return self._until_over(partial(self._start, plan, environ))

    def wait(self, *reasons: Failure) -> Outcome:
        """Starts nothing, and tells the other hosts the ``reasons``: all end with the first. Without one it waits for
        what another host has to tell, or for a stop.
        """

        def begin() -> None:
            for failure in reasons:
                self.on_event(ev.Broken(failure._replace(host=self._context.host)))  # as the roll call settled it

        return self._until_over(begin)

    def _until_over(self, begin: Callable[[], None]) -> Outcome:
        process_tree.adopt_orphans()
        self._peers.listen(self._on_peer_event)
        try:
            begin()
            try:
                self._pump.start()
            except OSError as error:
                for process in self._processes.plan.processes[:1] if self._processes.started is not None else ():
                    self.on_event(ev.Broken(cannot_start(process, error, "fork", self._context.diagnosis)))
            self._watchers.open("started")
            self._processes.reap()
            while not self._finished:
                self._loop.turn()
            self._end_what_is_left()
            self._watchers.over(failed=code_of(self._state, self._rules) != 0 and not self._state.stop_signal)
        except BaseException:
            self._processes.kill()
            raise
        finally:
            self._watchers.close()
            self._pump.drain(DRAIN_SECONDS_STOPPED if self._state.stopped_by else DRAIN_SECONDS)
            self._processes.close()
        outcome = self._outcome(self._state)
        self._say_what_ended_it(outcome)
        return outcome

    def _say_what_ended_it(self, outcome: Outcome) -> None:
        """Prints what ended the job after a launcher's own complaint, or after what ranks said of a stop, so that the
        log ends with the reason.
        """
        for warning in self._processes.ends.hidden.warnings:
            if warning != self._processes.ends.hidden.told:
                self._context.say(f"warning: {warning}")
        if outcome.failure is not None and self._pump.launcher_last:
            self._context.say(f"what ended the job: {first_line(outcome.failure)}")
        elif outcome.failure is None and self._state.stop_signal:
            by, host = signal_name(self._state.stop_signal), self._context.host
            where = "" if outcome.stopped_by in ("", host) else f" on {outcome.stopped_by}"
            self._context.say(f"the job was stopped by {by}{where}, exit code {outcome.code}")

    def _start(self, plan: LaunchPlan, environ: Mapping[str, str]) -> None:
        self._watchers.starts(plan, environ)
        self._processes.start(plan, environ)
        if plan.gates:
            self._open_gates(plan)
        else:
            self._own_started()

    def _own_started(self) -> None:
        """This host's own ranks have been started."""
        self._watchers.open("planned")
        if self._mpi is not None:
            self._mpi.plan_started()

    def _open_gates(self, plan: LaunchPlan) -> None:
        """Starts each role of this host once its gate opens."""
        from musterpoint.core.supervise.gates import Gates  # 3 ms, for jobs with roles

        fail: Callable[[Failure], None] = lambda failure: self.on_event(ev.Broken(failure))  # noqa: E731
        processes = self._processes
        self._gates = Gates(self._context, self._peers, plan.gates, self._start_role, processes.pids_of, fail)
        self._gates.begin()

    def _start_role(self, role: str) -> None:
        if not self._state.may_start or self._processes.is_ending:
            return
        self._processes.start_role(role)
        if role == self._processes.plan.gates[0].role:
            self._own_started()

    @property
    def _daemons(self) -> MpiDaemons:
        if self._mpi is None:
            from musterpoint.core.supervise.mpi_daemons import MpiDaemons

            self._mpi = MpiDaemons(self._context, self._peers, self._processes, self._roster, self.on_event)
        return self._mpi

    def _on_peer_event(self, event: PeerEvent) -> None:
        """MPI daemons are started as the leader asks, ranks looked at too; the policy decides about everything else."""
        act = _FOR_DAEMONS.get(type(event))
        if act is not None:
            act(self._daemons, event)
        elif isinstance(event, WorldEnded):
            if (
                event.world == self._rules.role
                and self._state.phase == "waiting"
                and not code_of(self._state, self._rules)
            ):
                self._processes.world_ended()
        elif isinstance(event, (RoleReady, NotReady)):
            if self._gates is not None:
                self._gates.hear(event)
        elif isinstance(event, RaisedAsked):
            if not self._processes.is_ending:
                self._processes.raised.tell()
            self._watchers.open("asked")
        elif not self._watchers.hear(event):
            self.on_event(event)

    def _outcome(self, state: State) -> Outcome:
        code, hidden = code_of(state, self._rules), self._processes.ends.hidden
        since, seconds = self._context.pump.longest_silence()
        if seconds >= LONG_SILENCE:
            self._context.record("longest-silence", since=round(since, 6), seconds=round(seconds, 3))
        self._context.record("job-ended", code=code)
        return Outcome(
            code=code,
            failure=None if state.stop_signal else state.root_cause or state.failure,
            stopped_by=state.stopped_by if state.stop_signal else "",
            secondary=state.secondary,
            stopped_at=self._stopped_at,
            spoilt=state.spoilt,
            cut_off=self._processes.ends.cut_off,
            warnings=(*hidden.warnings, *hidden.told_by_launches, *self._pump.missing),
        )

    def on_event(self, event: Event) -> None:
        """Decides and acts. Events caused by the actions are handled after them."""
        self._queue.append(event)
        if self._busy:
            return
        self._busy = True
        try:
            while self._queue:
                happened = self._queue.pop(0)
                if isinstance(happened, (ev.StopAsked, StopAll)) and self._stopped_at is None:
                    self._stopped_at = self._loop.clock()
                    self._say_who_runs()
                before = self._state.phase
                self._state, actions = decide(self._state, happened, self._rules)
                if isinstance(happened, (ev.StopAsked, StopAll)):
                    where = self._context.host if isinstance(happened, ev.StopAsked) else happened.host
                    self.first_stop = self.first_stop or (where, happened.signal)
                if self._gates is not None and not self._state.may_start:
                    self._gates.close()
                if self._state.phase != before:
                    self._watchers.close("waiting")
                    if self._state.phase == "waiting":
                        self._watchers.open("waiting")
                self._record_event(happened)
                if self._gates is not None and isinstance(happened, _ENDS) and happened.failure is None:
                    self._role_ended(happened)
                for action in actions:
                    _ACTS[type(action)](self, action)
                if isinstance(happened, ev.KillDue):
                    self._watchers.killed()
        finally:
            self._busy = False

    def _role_ended(self, event: ev.RankEnded | ev.ServiceOrLauncherEnded) -> None:
        """The program of a role has ended with 0, or one of its ranks."""
        assert self._gates is not None
        if isinstance(event, ev.ServiceOrLauncherEnded):
            self._gates.ended(event.name)
        elif not any(isinstance(key, int) for key in self._state.live):
            self._gates.ended(self._processes.plan.gates[0].role)

    def _say_who_runs(self) -> None:
        """At a stop: which ranks it finds running here, or for whom this host was waiting."""
        running = sorted(self._processes.ranks.live)
        if running:
            who = "the program" if self._processes.independent else numbers(running)
            self._context.say(f"told to stop: {who} still {'runs' if len(running) == 1 else 'run'} here")
        elif waiting := (self._gates.sentence if self._gates is not None else "") or self._watchers.sentence:
            self._context.say(f"told to stop: {waiting}")

    def _record_event(self, event: Event) -> None:
        """Adds an event to the timeline; processes are recorded where they start and end."""
        if name := _TIMELINE_NAMES.get(type(event)):
            facts: dict[str, Any] = {}
            for fact, value in event._asdict().items():
                if isinstance(value, Failure):
                    facts.update(host=value.host, rank=value.rank, code=value.code)
                elif isinstance(value, (str, int, float)):
                    facts[fact] = value
            self._context.record(name, phase=self._state.phase, **facts)

    def _signal_ranks(self, action: ev.SignalRanks) -> None:
        stopping, own = bool(self._state.stopped_by), self._processes.own_are(action.whom)
        if stopping and own:
            self._watchers.stopping(action.seconds)
        self._processes.signal_ranks(action.signal, action.seconds, stopping=stopping, whom=action.whom)
        if own:
            self._watchers.told(action.seconds)

    def _start_timer(self, action: ev.StartTimer) -> None:
        old = self._timers.get(type(action.event))
        if old is not None:
            old.cancel()
        self._timers[type(action.event)] = self._loop.call_later(action.seconds, lambda: self.on_event(action.event))

    def _finish(self) -> None:
        self._finished = True

    def _end_what_is_left(self) -> None:
        """Ends what is left of the job and waits for it, as it holds memory, devices and ports until it ends."""
        seconds = self._processes.others.end()
        if seconds:
            self._wait_while(lambda: self._processes.others.are_ending, seconds)
        self._processes.left.dismiss()
        if not self._state.killed:
            self._end_left_running()
        self.drain(UNKILLABLE_SECONDS)
        self._processes.reap()

    def _end_left_running(self) -> None:
        """Ends what the program left running, such as an upload in the background: it gets a signal, and some time."""
        if not self._processes.left.pids:
            return
        self._wait_while(lambda: self._processes.left.pids, LEFT_ALONE)
        left = self._processes.left.pids
        if left:
            shown = [f"{process_tree.command_of(pid) or 'a process'} (pid {pid})" for pid in left[:MOST_NAMED]]
            more = [f"{len(left) - MOST_NAMED} more"] if len(left) > MOST_NAMED else []
            self._context.say(f"ending what the program left running: {', '.join(shown + more)}")
            if code_of(self._state, self._rules) == 0 and not self._state.stop_signal:
                self._processes.ends.hidden.note_left(left)
            for _ in range(MOST_ROUNDS):
                if self._processes.left.end():
                    self._wait_while(self._left_with_orphans, LEFT_TIME)

    def _left_with_orphans(self) -> object:
        """What is left. Processes whose parents have died of the signal get it, too."""
        self._processes.left.end(orphans=True)
        return self._processes.left.remaining

    def _wait_while(self, awaited: Callable[[], object], seconds: float) -> None:
        """Waits until what ``awaited`` gives is false, at most ``seconds``."""
        if not awaited():
            return
        before, self._awaited = self._awaited, awaited
        too_long = self._loop.call_later(seconds, self._loop.stop)
        self._loop.run()
        too_long.cancel()
        self._awaited = before

    def drain(self, seconds: float) -> int:
        """Waits until no process of the job is left, at most ``seconds``; returns how many are.

        A process that has been reaped has given back its devices: the kernel closes its files first (exit_files comes
        before exit_notify in kernel/exit.c).
        """
        if self._processes.left.remaining:
            self._processes.kill()
            self._wait_while(lambda: self._processes.left.remaining, seconds)
            self._processes.reap()
        return len(self._processes.left.remaining)

    def reap(self) -> None:
        """Collects what has ended, between two attempts."""
        self._processes.reap()

    def _take_connection(self, connection: Connection, line: str) -> bool:
        """Takes connections of mpirun's launch agents, of ranks that raise, of launches of ours in the job's program,
        and those that a watcher of the job waits for.
        """
        if line.startswith("start "):
            return self._daemons.asked(connection, line.split())
        if line.startswith(RAISED):
            return self._raised(connection, line)
        if line.startswith(LAUNCHES) and not (line.startswith(LAUNCHES[0]) and self._processes.is_ending):
            return self._processes.take_launch(connection, line)
        return self._watchers.takes(connection, line)

    def _raised(self, connection: Connection, line: str) -> bool:
        """A rank is on its way out by an exception."""
        from musterpoint.core.diagnosis.raised_facts import RaisedFacts  # 5 ms, for ranks that fail

        if not self._processes.is_ending:
            self._processes.raised.heard(RaisedFacts.from_line(line))
        connection.ignore()
        connection.send("heard")
        return True


_ENDS = (ev.RankEnded, ev.ServiceOrLauncherEnded)
RAISED = "raised "
"""Begins the line in which a rank tells of the exception that ends it."""
LAUNCHES = ("launch ", "ended ")
"""Begin the first lines of a launch of ours: of one that begins, and of one that has come to nothing."""
LONG_SILENCE = 5.0
"""Seconds without output that the timeline mentions."""
_TIMELINE_NAMES: dict[type[Event], str] = {
    ev.Broken: "failure-seen",
    ev.StopAsked: "stop-asked",
    ev.KillDue: "stop-grace-over",
    ev.RootCauseDue: "root-cause-due",
    ev.LeaveDue: "leave-due",
    JobFailed: "job-failed",
    StopAll: "job-stopped",
    PeerLost: "peer-lost",
    PeerSilent: "host-silent",
    PeerBack: "host-back",
    GroupEnded: "group-ended",
    AllDone: "all-hosts-done",
}
"""What ``timeline.json`` calls events: part of that file's format, whatever the classes are called."""

_FOR_DAEMONS: dict[type[PeerEvent], Callable[[MpiDaemons, Any], None]] = {
    StartAsked: lambda daemons, event: daemons.start_asked(event),
    Started: lambda daemons, event: daemons.started(event),
    StartEnded: lambda daemons, event: daemons.start_ended(event),
}

_ACTS: dict[type[Action], Callable[[Supervisor, Any], None]] = {
    ev.ReportFailure: lambda self, action: self._peers.failed(action.failure),
    ev.ReportStop: lambda self, action: self._peers.stopping(action.signal),
    ev.ReportDone: lambda self, action: self._peers.done(action.code, action.failures),
    ev.SignalRanks: lambda self, action: self._signal_ranks(action),
    ev.StartTimer: lambda self, action: self._start_timer(action),
    ev.KillTree: lambda self, action: self._processes.kill(),
    ev.Release: lambda self, action: self._processes.ranks.send_stubs("release"),
    ev.Say: lambda self, action: self._context.say(action.text),
    ev.Finish: lambda self, action: self._finish(),
}
