"""The supervisor: hears of this host's processes and of the other hosts, asks the policy, does what it says."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Callable, Mapping

from musterpoint.channel.peers import PeerEvent, Peers, StartAsked, Started, StartEnded, StopAll
from musterpoint.failure import Failure
from musterpoint.launch.plan import LaunchPlan
from musterpoint.loop import Loop, Timer
from musterpoint.processes import tree
from musterpoint.processes.control_socket import Connection
from musterpoint.processes.pump import Pump
from musterpoint.processes.sidecars import Sidecars
from musterpoint.processes.signals import PASSED_ON, STOPPING
from musterpoint.supervise import events as ev
from musterpoint.supervise import handover
from musterpoint.supervise.events import Action, Event
from musterpoint.supervise.host_processes import HostProcesses
from musterpoint.supervise.outcome import Explainer, Outcome
from musterpoint.supervise.policy import UNKILLABLE_SECONDS, decide
from musterpoint.supervise.state import Rules, State, code_of, first_line

if TYPE_CHECKING:
    from musterpoint.supervise.mpi_daemons import MpiDaemons

DRAIN_SECONDS = 10.0
"""How long a slow reader of our output is waited for at the end; a stop leaves less."""
DRAIN_SECONDS_STOPPED = 3.0


class Supervisor:
    """Runs one job on this host.

    ``stop_signal`` is what ranks get first. ``roster`` is what a launcher that runs as the job's program is given
    (JSON object). ``sidecars`` live on when the job has ended. Everything happens in the
    thread that calls :meth:`run`, but for the pump.
    """

    def __init__(
        self, loop: Loop, rules: Rules, peers: Peers, pump: Pump, explain: Callable[[], Explainer], *, stop_signal: int,
        say: Callable[[str], None], record: Callable[..., None], oom_kills: Callable[[], int],
        roster: Mapping[str, object] | None = None, sidecars: Sidecars | None = None,
    ) -> None:  # fmt: skip
        self._loop, self._rules, self._peers, self._pump = loop, rules, peers, pump
        self._say, self._record = say, record
        self._stop_signal = stop_signal
        self._state = State()
        self._stopped_at: float | None = None
        self._timers: dict[type, Timer] = {}
        self._queue: list[Event] = []
        self._busy = False
        self._finished = False
        self._explain = explain
        self._offer = dict(roster or {})
        spared = sidecars or Sidecars(loop)
        self._processes = HostProcesses(loop, pump, self.on_event, explain, record, oom_kills, self._greet, spared, say)
        self._mpi: MpiDaemons | None = None

    @property
    def token(self) -> str:
        """A secret that every process of the job has in its environment."""
        return self._processes.control_socket.token

    def hear(self, signo: int) -> None:
        """A signal came (called in the loop's thread)."""
        if signo == signal.SIGCHLD:
            self._processes.reap()
            if self._finished and not self._processes.left:
                self._loop.stop()
        elif signo in PASSED_ON:
            self._processes.pass_on(signo)
        elif signo in STOPPING:
            self.on_event(ev.StopAsked(signal.SIGINT if signo == signal.SIGINT else signal.SIGTERM))

    def run(self, plan: LaunchPlan | None, environ: Mapping[str, str], refusal: Failure | None = None) -> Outcome:
        """Starts ``plan`` and returns when it is over and nothing of it is left.

        ``refusal`` is why this host can't run its part; the others are told, and all end with it.
        """
        tree.adopt_orphans()
        self._peers.listen(self._told)
        try:
            if plan is not None and refusal is None:
                self._start(plan, environ)
            self._start_pump(plan)
            if refusal is not None:
                self.on_event(ev.Broken(refusal))
            self._processes.reap()
            while not self._finished:
                self._loop.turn()
            self._end_what_is_left()
        except BaseException:
            self._processes.kill()
            raise
        finally:
            self._pump.drain(DRAIN_SECONDS_STOPPED if self._state.stopped_by else DRAIN_SECONDS)
            self._processes.close()
        outcome = self._outcome(self._state)
        self._say_last(outcome)
        return outcome

    def _say_last(self, outcome: Outcome) -> None:
        """A launcher whose daemons were ended says so in a box of its own; the log's last word is why they were."""
        if outcome.code and self._pump.launcher_last:
            why = first_line(outcome.failure) if outcome.failure is not None else "the job was stopped"
            self._say(f"what ended the job: {why}")

    def _start(self, plan: LaunchPlan, environ: Mapping[str, str], owner: Connection | None = None) -> None:
        self._processes.start(plan, environ, owner)
        if self._mpi is not None:
            self._mpi.look_again()

    def _start_pump(self, plan: LaunchPlan | None) -> None:
        try:
            self._pump.start()
        except OSError as error:
            if plan is not None:
                self.on_event(ev.Broken(self._explain().cannot_start(plan.processes[0], error, "fork")))

    @property
    def _daemons(self) -> MpiDaemons:
        if self._mpi is None:
            from musterpoint.supervise.mpi_daemons import MpiDaemons  # only MPI jobs have any

            self._mpi = MpiDaemons(
                self._peers, self._processes, self._offer, self.on_event, self._explain, self._record
            )
        return self._mpi

    def _told(self, event: PeerEvent) -> None:
        """Another host said something: daemons are started as the leader asks, everything else is decided about."""
        act = _FOR_DAEMONS.get(type(event))
        if act is not None:
            act(self._daemons, event)
        else:
            self.on_event(event)

    def _outcome(self, state: State) -> Outcome:
        code = code_of(state, self._rules)
        self._record("over", code=code)
        return Outcome(
            code=code, failure=None if state.stop_signal else state.verdict or state.failure,
            stopped_by=state.stopped_by if state.stop_signal else "", ends=tuple(self._processes.ends),
            secondary=state.secondary, stopped_at=self._stopped_at, spoilt=state.spoilt,
        )  # fmt: skip

    def on_event(self, event: Event) -> None:
        """Decides and acts; events that actions cause wait their turn."""
        self._queue.append(event)
        if self._busy:
            return
        self._busy = True
        try:
            while self._queue:
                happened = self._queue.pop(0)
                if isinstance(happened, (ev.StopAsked, StopAll)) and self._stopped_at is None:
                    self._stopped_at = self._loop.clock()
                self._state, actions = decide(self._state, happened, self._rules)
                self._note(happened)
                for action in actions:
                    self._act(action)
        finally:
            self._busy = False

    def _note(self, event: Event) -> None:
        if not isinstance(event, (ev.SessionOpened, ev.RankEnded, ev.UnrankedStarted, ev.UnrankedEnded)):
            facts = {name: value for name, value in event._asdict().items() if isinstance(value, (str, int, float))}
            self._record(type(event).__name__, phase=self._state.phase, **facts)

    def _act(self, action: Action) -> None:
        _ACTS[type(action)](self, action)

    def _signal_ranks(self, action: ev.SignalRanks) -> None:
        self._processes.signal_ranks(action.signal or self._stop_signal, patient=bool(self._state.stopped_by))

    def _start_timer(self, action: ev.StartTimer) -> None:
        old = self._timers.get(type(action.event))
        if old is not None:
            old.cancel()
        self._timers[type(action.event)] = self._loop.call_later(action.seconds, lambda: self.on_event(action.event))

    def _finish(self, action: ev.Finish) -> None:
        self._finished = True

    def _end_what_is_left(self) -> None:
        """Nothing survives the job. What is killed is waited for: so long it holds its memory, devices and ports."""
        self._processes.dismiss()
        if self._processes.left:
            self._processes.kill()
            too_long = self._loop.call_later(UNKILLABLE_SECONDS, self._loop.stop)
            if self._processes.left:
                self._loop.run()
            too_long.cancel()
        self._processes.reap()

    def _greet(self, connection: Connection, line: str) -> bool:
        """mpirun's launch agents, and launchers that run as the job's program: those ask for the roster first, or say
        why they end.
        """
        if line.startswith("start "):
            return self._daemons.asked(connection, line.split())
        if line.startswith(handover.FAILED):
            return self._reported(connection, line)
        if line.strip() != handover.HELLO or not self._offer or self._processes.refusing:
            return False
        connection.route_to(lambda words, text: self._handed_over(connection, text))
        connection.send(handover.encode(self._offer))
        return True

    def _reported(self, connection: Connection, line: str) -> bool:
        self._processes.reported(self._explain().inner(handover.failure_from(line)))
        connection.ignore()
        connection.send("heard")
        return True

    def _handed_over(self, connection: Connection, text: str) -> None:
        plan, environ = handover.plan_from(text)
        if self._processes.refusing:
            connection.close()
            return
        connection.ignore()
        self._record("handed-over", launcher=plan.launcher, ranks=plan.local_ranks)
        self._start(plan, environ, connection)


_FOR_DAEMONS: dict[type, Callable[[MpiDaemons, PeerEvent], None]] = {
    StartAsked: lambda daemons, event: daemons.start_asked(event),  # type: ignore[arg-type]
    Started: lambda daemons, event: daemons.started(event),  # type: ignore[arg-type]
    StartEnded: lambda daemons, event: daemons.start_ended(event),  # type: ignore[arg-type]
}

_ACTS: dict[type, Callable[[Supervisor, Action], None]] = {
    ev.TellFailed: lambda self, action: self._peers.failed(action.failure),  # type: ignore[union-attr]
    ev.TellStopping: lambda self, action: self._peers.stopping(action.signal),  # type: ignore[union-attr]
    ev.TellArrived: lambda self, action: self._peers.arrive(action.point),  # type: ignore[union-attr]
    ev.TellDone: lambda self, action: self._peers.done(action.code, action.failures),  # type: ignore[union-attr]
    ev.SignalRanks: lambda self, action: self._signal_ranks(action),  # type: ignore[arg-type]
    ev.StartTimer: lambda self, action: self._start_timer(action),  # type: ignore[arg-type]
    ev.KillTree: lambda self, action: self._processes.kill(),
    ev.Release: lambda self, action: self._processes.release(action.session, action.code),  # type: ignore[union-attr]
    ev.Say: lambda self, action: self._say(action.text),  # type: ignore[union-attr]
    ev.Finish: lambda self, action: self._finish(action),  # type: ignore[arg-type]
}
