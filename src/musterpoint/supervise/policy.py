"""The supervisor's one decision: (state, event) → (state, actions). Pure; tested from tables of event histories.

The phases, in the order a job passes them:

``running``  ranks are alive (or expected).
``judging``  something failed here; the leader's verdict is awaited.
``ending``   the job failed or was stopped: ranks were told to end and have their time.
``waiting``  this host's ranks have ended; the other hosts' haven't all.
``leaving``  every host is done; launchers get a moment to end by themselves.
``over``     nothing more is decided.
"""

from typing import NamedTuple

from musterpoint import exit_codes, peers
from musterpoint.peers import Failure
from musterpoint.supervise.events import (
    Action,
    AttendantEnded,
    Broken,
    Event,
    Finish,
    Key,
    KillDue,
    KillTree,
    LeaveDue,
    RankEnded,
    Release,
    Say,
    SessionOpened,
    SignalRanks,
    StartTimer,
    StopAsked,
    TellArrived,
    TellDone,
    TellFailed,
    TellStopping,
    VerdictDue,
)

VERDICT_SECONDS = 20.0
"""Longer than a lost leader takes to be noticed (10 s), so this is the last resort only."""

FAILURE_GRACE = 30.0
"""What ranks get to end by themselves when another failed: torchrun's figure, less where the platform gives less."""

LAUNCHER_SECONDS = 5.0
"""What a launcher gets to end by itself once all its ranks have."""

RESERVE_SHARE, LONGEST_RESERVE = 6.0, 15.0
"""Of the platform's grace, this share (at most so many seconds) is kept to report in: 15 s of 120, 5 s of 30."""

UNKILLABLE_SECONDS = 5.0
"""After SIGKILL: a process that is stuck in the kernel for longer isn't waited for."""

SIGINT = 2


def grace(platform: float, told: float | None) -> float:
    """Seconds between a rank's stop signal and SIGKILL: as told, or the platform's grace less what a report takes."""
    return told if told is not None else platform - min(LONGEST_RESERVE, platform / RESERVE_SHARE)


class Rules(NamedTuple):
    """The settings that matter here. ``grace`` is seconds between the stop signal and SIGKILL."""

    host: str
    grace: float
    on_failure: str = "end"
    stop_code: int = exit_codes.STOPPED
    outside: bool = False
    outside_stops: bool = False
    tolerates_lost_peers: bool = False


class State(NamedTuple):
    """``live`` are the ranks that haven't ended; ``foreign`` the sessions whose ranks a launcher starts.

    ``failures`` counts the ranks that failed here, ``secondary`` all failures known besides the verdict's.
    """

    phase: str = "running"
    live: frozenset[Key] = frozenset()
    foreign: frozenset[int] = frozenset()
    released: frozenset[int] = frozenset()
    failure: Failure | None = None
    verdict: Failure | None = None
    failures: int = 0
    secondary: int = 0
    stopped_by: str = ""
    stop_signal: int = 0
    killed: bool = False

    @property
    def code(self) -> int:
        """The job's exit code as far as it is known."""
        failure = self.verdict or self.failure
        return failure.code if failure else 0


Decision = tuple[State, list[Action]]
RANKS_ENDED = "ranks-ended"


def decide(state: State, event: Event, rules: Rules) -> Decision:
    """What to do when ``event`` happens in ``state``."""
    if state.phase == "over":
        return state, []
    handler = _HANDLERS.get(type(event))
    return handler(state, event, rules) if handler else (state, [])  # type: ignore[operator]


def code_of(state: State, rules: Rules) -> int:
    """The exit code of the job: the verdict's, the stop's, or 0."""
    if state.stop_signal:
        return exit_codes.of_signal(SIGINT) if state.stop_signal == SIGINT else rules.stop_code
    return state.code


def _session_opened(state: State, event: SessionOpened, rules: Rules) -> Decision:
    foreign = state.foreign | {event.session} if event.foreign else state.foreign
    return state._replace(live=state.live | frozenset(event.keys), foreign=foreign), []


def _rank_ended(state: State, event: RankEnded, rules: Rules) -> Decision:
    state = state._replace(live=state.live - {event.key})
    actions: list[Action] = []
    if event.failure is not None and not state.stopped_by:
        state = state._replace(failures=state.failures + 1)
        state, actions = _failed_here(state, event.failure, rules)
    session = event.key[0]
    if session and not any(key[0] == session for key in state.live):
        actions.append(TellArrived(_end_of(session)))
        if state.phase == "ending":
            state = state._replace(released=state.released | {session})
            actions.append(Release(session, code_of(state, rules)))
    return _after_a_rank(state, actions, rules)


def _after_a_rank(state: State, actions: list[Action], rules: Rules) -> Decision:
    """The last rank of this host may just have ended."""
    if state.live or state.phase not in ("running", "ending"):
        return state, actions
    if state.phase == "running" and state.failure is not None and state.verdict is None:
        # --on-failure finish: the failure was kept until every rank here had ended
        return state._replace(phase="judging"), [*actions, *_ask_verdict(state.failure)]
    return _all_ended_here(state, actions, rules)


def _all_ended_here(state: State, actions: list[Action], rules: Rules) -> Decision:
    code = code_of(state, rules)
    if state.phase == "ending" or (code and rules.on_failure == "end"):
        # whoever is late gets as long as its ranks may take, and a moment to say so
        actions.append(StartTimer(_end_grace(state, rules) + 2.0, LeaveDue()))
    if not rules.outside:
        actions.append(TellArrived(RANKS_ENDED))
    actions.append(TellDone(code, state.failures))
    return state._replace(phase="waiting"), actions


def _failed_here(state: State, failure: Failure, rules: Rules) -> Decision:
    if state.failure is not None or state.verdict is not None:
        return state._replace(secondary=state.secondary + 1), []
    state = state._replace(failure=failure)
    if rules.on_failure == "finish" and state.live:
        return state, [Say(f"{_first_line(failure)}; the other ranks go on (--on-failure finish)")]
    return state._replace(phase="judging"), _ask_verdict(failure)


def _ask_verdict(failure: Failure) -> list[Action]:
    return [StartTimer(VERDICT_SECONDS, VerdictDue()), TellFailed(failure)]


def _attendant_ended(state: State, event: AttendantEnded, rules: Rules) -> Decision:
    ranks_left = any(key[0] == event.session for key in state.live)
    if state.phase in ("running", "judging") and ranks_left and event.session not in state.released:
        state, actions = _failed_here(state, event.failure, rules)
        return state, actions
    if state.phase == "leaving" and event.role == "launcher":
        return state._replace(phase="over"), [Finish()]
    return state, []


def _broken(state: State, event: Broken, rules: Rules) -> Decision:
    if state.phase in ("running", "judging") and not state.stopped_by:
        return _failed_here(state, event.failure, rules)
    return state, []


def _verdict_due(state: State, event: VerdictDue, rules: Rules) -> Decision:
    if state.phase != "judging" or state.failure is None:
        return state, []
    return _job_failed(state, peers.JobFailed(state.failure), rules)


def _job_failed(state: State, event: peers.JobFailed, rules: Rules) -> Decision:
    if state.verdict is not None or state.stopped_by:
        return state, []
    ours = state.secondary + (1 if state.failure is not None and state.failure != event.failure else 0)
    seen = max(ours, event.secondary)
    state = state._replace(verdict=event.failure, secondary=seen)
    where = "" if event.failure.host == rules.host else f" (first failure, on {event.failure.host})"
    actions: list[Action] = [Say(f"{_first_line(event.failure)}{where}")]
    if state.phase == "waiting":
        # our ranks ended well; the verdict only changes the code, and how long the others are waited for
        late = [StartTimer(_end_grace(state, rules) + 2.0, LeaveDue())] if rules.on_failure == "end" else []
        return state, [*actions, *late]
    if rules.on_failure == "finish" and state.live:
        return state._replace(phase="running"), actions
    state = state._replace(phase="ending")
    if not state.live:
        return _all_ended_here(state, actions, rules)
    return state, [*actions, SignalRanks(), StartTimer(_end_grace(state, rules), KillDue())]


def _stop_asked(state: State, event: StopAsked, rules: Rules) -> Decision:
    if state.stopped_by or state.phase == "ending":
        if event.signal == SIGINT and not state.killed:
            return state._replace(killed=True), [Say("interrupted again: killing what is left"), KillTree()]
        return state, []
    return _stop(state, rules.host, event.signal, [TellStopping(event.signal)], rules)


def _stop_all(state: State, event: peers.StopAll, rules: Rules) -> Decision:
    if state.stopped_by or state.phase == "ending":
        return state, []
    return _stop(state, event.host, event.signal, [Say(f"{event.host} was told to stop: stopping here too")], rules)


def _stop(state: State, host: str, signal: int, actions: list[Action], rules: Rules) -> Decision:
    if state.phase in ("judging", "leaving"):
        return state, actions  # it is ending anyway, and a failure that came first stays the truth
    state = state._replace(stopped_by=host, stop_signal=signal)
    if state.phase == "waiting":
        return state, [*actions, StartTimer(rules.grace + 2.0, LeaveDue())]
    signo = SIGINT if signal == SIGINT else 0
    return state._replace(phase="ending"), [*actions, SignalRanks(signo), StartTimer(rules.grace, KillDue())]


def _kill_due(state: State, event: KillDue, rules: Rules) -> Decision:
    if state.phase != "ending" or not state.live:
        return state, []
    return state._replace(killed=True), [
        Say(f"{len(state.live)} rank(s) had not ended by the end of their grace: killing them"), KillTree(),
        StartTimer(UNKILLABLE_SECONDS, LeaveDue()),
    ]  # fmt: skip


def _leave_due(state: State, event: LeaveDue, rules: Rules) -> Decision:
    if state.phase in ("waiting", "leaving") or state.killed:
        return state._replace(phase="over"), [Finish()]
    return state, []


def _all_done(state: State, event: peers.AllDone, rules: Rules) -> Decision:
    if state.phase != "waiting":
        return state, []
    if event.failures:  # the same number on all hosts
        first = 1 if state.verdict is not None and state.verdict.rank is not None else 0
        state = state._replace(secondary=event.failures - first)
    if 0 in state.foreign and not code_of(state, rules):
        return state._replace(phase="leaving"), [Release(0, 0), StartTimer(LAUNCHER_SECONDS, LeaveDue())]
    return state._replace(phase="over"), [Finish()]


def _arrived(state: State, event: peers.Arrived, rules: Rules) -> Decision:
    if event.point == RANKS_ENDED:
        if rules.outside and rules.outside_stops and state.live and state.phase == "running":
            return _quiet_end(state, rules)
        return state, []
    session = _session_of(event.point)
    if session and session not in state.released:
        return state._replace(released=state.released | {session}), [Release(session, 0)]
    return state, []


def _quiet_end(state: State, rules: Rules) -> Decision:
    """--outside stop: the group is done, so what runs outside it is ended, which is no failure."""
    actions: list[Action] = [Say("the distribution group is done: stopping the program here (--outside stop)")]
    state = state._replace(phase="ending", stopped_by=rules.host, stop_signal=0)
    return state, [*actions, SignalRanks(), StartTimer(rules.grace, KillDue())]


def _peer_lost(state: State, event: peers.PeerLost, rules: Rules) -> Decision:
    if rules.tolerates_lost_peers or state.phase not in ("running", "waiting"):
        return state, [Say(f"warning: {event.host} is lost: {event.why}")]
    failure = peers.lost_host(event.host, event.why)
    if state.phase == "waiting":
        return state, [TellFailed(failure)]
    return _failed_here(state, failure, rules)


def _peer_silent(state: State, event: peers.PeerSilent, rules: Rules) -> Decision:
    return state, [Say(f"no word from {event.host} for {event.seconds:.0f} s; waiting for it to come back")]


def _peer_back(state: State, event: peers.PeerBack, rules: Rules) -> Decision:
    return state, [Say(f"{event.host} is back")]


def _end_grace(state: State, rules: Rules) -> float:
    return rules.grace if state.stopped_by else min(rules.grace, FAILURE_GRACE)


def _first_line(failure: Failure) -> str:
    return failure.reason.partition("\n")[0].removeprefix("muster: ")


def _end_of(session: int) -> str:
    return f"session-{session}-ended"


def _session_of(point: str) -> int:
    number = point.removeprefix("session-").removesuffix("-ended")
    return int(number) if number.isdecimal() else 0


_HANDLERS = {
    SessionOpened: _session_opened,
    RankEnded: _rank_ended,
    AttendantEnded: _attendant_ended,
    Broken: _broken,
    StopAsked: _stop_asked,
    KillDue: _kill_due,
    VerdictDue: _verdict_due,
    LeaveDue: _leave_due,
    peers.JobFailed: _job_failed,
    peers.StopAll: _stop_all,
    peers.AllDone: _all_done,
    peers.Arrived: _arrived,
    peers.PeerLost: _peer_lost,
    peers.PeerSilent: _peer_silent,
    peers.PeerBack: _peer_back,
}
