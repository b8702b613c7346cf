"""The supervisor's one decision: (state, event) → (state, actions). Pure; tested from tables of event histories.

The phases, in the order a job passes them:

``running``  ranks are alive (or expected).
``judging``  something failed here; the leader's verdict is awaited.
``ending``   the job failed or was stopped: ranks were told to end and have their time.
``waiting``  this host's ranks have ended, or it has none; the other hosts' haven't all.
``leaving``  every host is done; launchers, and services of the user's own, get a moment to end by themselves.
``over``     nothing more is decided.
"""

from __future__ import annotations

from musterpoint.channel import peers
from musterpoint.failure import Failure, lost_host
from musterpoint.supervise.events import (
    Action,
    Broken,
    Event,
    Finish,
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
    UnrankedEnded,
    UnrankedStarted,
    VerdictDue,
)
from musterpoint.supervise.state import (
    RANKS_ENDED,
    SIGINT,
    Decision,
    Rules,
    State,
    code_of,
    end_grace,
    end_of,
    first_line,
    session_of,
)

VERDICT_SECONDS = 60.0
"""Longer than a symptom waits for its cause (35 s), and a lost leader takes to be noticed: the last resort only."""
LAUNCHER_SECONDS = 5.0
"""What a launcher gets to end by itself once all its ranks have."""
MPI_SECONDS = 0.35
"""What mpirun and its daemons get: everything of value has ended, and what they would leave behind is removed."""
SERVICE_SECONDS = 0.35
"""What services of the user's own get when the job went well."""
UNKILLABLE_SECONDS = 5.0
"""After SIGKILL: a process that is stuck in the kernel for longer isn't waited for."""
LATE_SECONDS = 2.0
"""What a late host gets beyond its ranks' grace, to say that it is done."""


def decide(state: State, event: Event, rules: Rules) -> Decision:
    """What to do when ``event`` happens in ``state``."""
    if state.phase == "over":
        return state, []
    handler = _HANDLERS.get(type(event))
    return handler(state, event, rules) if handler else (state, [])  # type: ignore[operator]


def _session_opened(state: State, event: SessionOpened, rules: Rules) -> Decision:
    number = {event.session}
    state = state._replace(
        live=state.live | frozenset(event.keys),
        foreign=state.foreign | number if event.foreign else state.foreign,
        daemons=state.daemons | number if event.daemons else state.daemons,
    )
    if event.keys:
        return state, []
    if event.session:
        return state, [TellArrived(end_of(event.session))]
    return all_ended_here(state, [], rules)


def _unranked_started(state: State, event: UnrankedStarted, rules: Rules) -> Decision:
    who = {(event.session, event.name)}
    if event.role == "launcher":
        return state._replace(launchers=state.launchers | who), []
    return (state._replace(services=state.services | who), []) if event.users else (state, [])


def _rank_ended(state: State, event: RankEnded, rules: Rules) -> Decision:
    state = state._replace(live=state.live - {event.key})
    actions: list[Action] = []
    if event.failure is not None and state.stopped_by:
        state, actions = spoilt(state, event.failure)
    elif event.failure is not None:
        if event.failure.rank is not None:  # a launcher of ours in its place knows of no rank: it started none
            state = state._replace(failed=(*state.failed, event.failure))
        state, actions = failed_here(state, event.failure, rules)
    return a_rank_ended(state, event.key[0], actions, rules)


def _peer_silent(state: State, event: peers.PeerSilent, rules: Rules) -> Decision:
    return state, [Say(f"no word from {event.host} for {event.seconds:.0f} s; waiting for it to come back")]


def _peer_back(state: State, event: peers.PeerBack, rules: Rules) -> Decision:
    return state, [Say(f"{event.host} is back")]


def a_rank_ended(state: State, session: int, actions: list[Action], rules: Rules) -> Decision:
    """``session`` has one rank fewer; it may have been the last of it, or of this host."""
    if session and not any(key[0] == session for key in state.live):
        actions.append(TellArrived(end_of(session)))
        if state.phase == "ending":
            state = state._replace(released=state.released | {session})
            actions.append(Release(session, code_of(state, rules)))
    if state.live or state.phase not in ("running", "ending"):
        return state, actions
    if state.phase == "running" and state.failure is not None and state.verdict is None:
        # --on-failure finish: the failure was kept until every rank here had ended
        return state._replace(phase="judging"), [*actions, *ask_verdict(state.failure)]
    return all_ended_here(state, actions, rules)


def ask_verdict(failure: Failure) -> list[Action]:
    return [StartTimer(VERDICT_SECONDS, VerdictDue()), TellFailed(failure)]


def all_ended_here(state: State, actions: list[Action], rules: Rules) -> Decision:
    """Nothing more happens here that counts."""
    code = code_of(state, rules)
    if state.phase == "ending" or (code and rules.on_failure == "end"):
        # whoever is late gets as long as its ranks may take, and a moment to say so
        actions.append(StartTimer(end_grace(state, rules) + LATE_SECONDS, LeaveDue()))
    if not rules.outside:
        actions.append(TellArrived(RANKS_ENDED))
    actions.append(TellDone(code, state.failed_beside))
    return state._replace(phase="waiting"), actions


def all_done(state: State, event: peers.AllDone, rules: Rules) -> Decision:
    """Every host is done. What was told to end before has a timer that runs; the rest is told now."""
    if state.phase != "waiting":
        return state, []
    state = state._replace(counted=event.failures)  # the same on all hosts
    code = code_of(state, rules)
    actions: list[Action] = []
    if state.failure is not None and state.verdict is None and not state.stop_signal:
        actions.append(Say(first_line(state.failure)))
    if 0 in state.foreign and not code:
        actions.append(Release(0, 0))
    if state.services and not state.told:
        actions.append(SignalRanks())
    awaited = bool(state.services) if code else state.is_attended
    if not awaited:
        return state._replace(phase="over"), [*actions, Finish()]
    if not (state.told and state.services):
        actions.append(StartTimer(_say_bye(state, rules), LeaveDue()))
    return state._replace(phase="leaving", told=True), actions


def _say_bye(state: State, rules: Rules) -> float:
    if code_of(state, rules):
        return end_grace(state, rules)
    mpi, launchers = 0 in state.daemons, any(session == 0 for session, _name in state.launchers)
    return (MPI_SECONDS if mpi else LAUNCHER_SECONDS) if launchers else SERVICE_SECONDS


def leave_due(state: State, event: LeaveDue, rules: Rules) -> Decision:
    if state.phase in ("waiting", "leaving") or state.killed:
        return state._replace(phase="over"), [Finish()]
    return state, []


def kill_due(state: State, event: KillDue, rules: Rules) -> Decision:
    if state.phase != "ending" or not state.live:
        return state, []
    return state._replace(killed=True), [
        Say(f"{len(state.live)} rank(s) had not ended by the end of their grace: killing them"), KillTree(),
        StartTimer(UNKILLABLE_SECONDS, LeaveDue()),
    ]  # fmt: skip


def arrived(state: State, event: peers.Arrived, rules: Rules) -> Decision:
    if event.point == RANKS_ENDED:
        if rules.outside and rules.outside_stops and state.live and state.phase == "running":
            return _quiet_end(state, rules)
        return state, []
    session = session_of(event.point)
    if session and session not in state.released:
        return state._replace(released=state.released | {session}), [Release(session, 0)]
    return state, []


def _quiet_end(state: State, rules: Rules) -> Decision:
    """--outside stop: the group is done, so what runs outside it is ended, which is no failure."""
    actions: list[Action] = [Say("the distribution group is done: stopping the program here (--outside stop)")]
    state = state._replace(phase="ending", stopped_by=rules.host, stop_signal=0, told=True)
    return state, [*actions, SignalRanks(), StartTimer(rules.grace, KillDue())]


def failed_here(state: State, failure: Failure, rules: Rules) -> Decision:
    """Something of this host failed; the first failure is told, later ones are counted."""
    if state.phase == "waiting":
        if state.verdict is not None:
            return state, []
        if not failure.is_symptom:  # everybody else may be done by now, and then no verdict comes
            state = state._replace(failure=state.failure or failure)
        return state, [TellFailed(failure)]
    if state.phase == "judging" and _was_symptom(state) and not failure.is_symptom:
        return state._replace(failure=failure), ask_verdict(failure)
    if state.failure is not None or state.verdict is not None:
        return state, []
    state = state._replace(failure=failure)
    if rules.on_failure == "finish" and state.live:
        return state, [Say(f"{first_line(failure)}; the other ranks go on (--on-failure finish)")]
    return state._replace(phase="judging"), ask_verdict(failure)


def _was_symptom(state: State) -> bool:
    """Whether what was told is the echo of a failure that may only be known now."""
    return state.verdict is None and state.failure is not None and state.failure.is_symptom


def unranked_ended(state: State, event: UnrankedEnded, rules: Rules) -> Decision:
    """A launcher is needed by the ranks it started here, a service or an MPI daemon by those of other hosts, too."""
    gone = {(event.session, event.name)}
    state = state._replace(launchers=state.launchers - gone, services=state.services - gone)
    if state.phase == "leaving":
        return (state, []) if state.is_attended else (state._replace(phase="over"), [Finish()])
    if event.failure is None or event.session in state.released or state.stopped_by:
        return state, []
    ranks_left = any(key[0] == event.session for key in state.live)
    needed = event.vital or (ranks_left and state.phase != "waiting")
    if needed and state.phase in ("running", "judging", "waiting"):
        return failed_here(state, event.failure, rules)
    return state, []


def broken(state: State, event: Broken, rules: Rules) -> Decision:
    if state.phase in ("running", "judging", "waiting") and not state.stopped_by:
        return failed_here(state, event.failure, rules)
    return state, []


def verdict_due(state: State, event: VerdictDue, rules: Rules) -> Decision:
    if state.phase != "judging" or state.failure is None:
        return state, []
    return job_failed(state, peers.JobFailed(state.failure), rules)


def job_failed(state: State, event: peers.JobFailed, rules: Rules) -> Decision:
    if state.verdict is not None or state.stopped_by or state.phase in ("leaving", "over"):
        return state, []
    state = state._replace(verdict=event.failure, counted=event.secondary)
    where = "" if event.failure.host == rules.host else f" (first failure, on {event.failure.host})"
    actions: list[Action] = [Say(f"{first_line(event.failure)}{where}")]
    if state.phase == "waiting":
        # our ranks ended well; the verdict only changes the code, and how long the others are waited for
        return _others_end(state, actions, rules)
    if rules.on_failure == "finish" and state.live:
        return state._replace(phase="running"), actions
    state = state._replace(phase="ending", told=True)
    if not state.live:
        services: list[Action] = [SignalRanks()] if state.services else []
        return all_ended_here(state, [*actions, *services], rules)
    return state, [*actions, SignalRanks(), StartTimer(end_grace(state, rules), KillDue())]


def _others_end(state: State, actions: list[Action], rules: Rules) -> Decision:
    if rules.on_failure != "end":
        return state, actions
    if state.services:
        actions.append(SignalRanks())
    late = StartTimer(end_grace(state, rules) + LATE_SECONDS, LeaveDue())
    return state._replace(told=True), [*actions, late]


def peer_lost(state: State, event: peers.PeerLost, rules: Rules) -> Decision:
    if rules.tolerates_lost_peers or state.phase not in ("running", "waiting"):
        return state, [Say(f"warning: {event.host} is lost: {event.why}")]
    return failed_here(state, lost_host(event.host, event.why, apart_from=event.apart_from), rules)


def stop_asked(state: State, event: StopAsked, rules: Rules) -> Decision:
    if state.stopped_by or state.phase == "ending":
        if event.signal == SIGINT and not state.killed:
            return state._replace(killed=True), [Say("interrupted again: killing what is left"), KillTree()]
        return state, []
    return _stop(state, rules.host, event.signal, [TellStopping(event.signal)], rules)


def stop_all(state: State, event: peers.StopAll, rules: Rules) -> Decision:
    if state.stopped_by or state.phase == "ending":
        return state, []
    return _stop(state, event.host, event.signal, [Say(f"{event.host} was told to stop: stopping here too")], rules)


def spoilt(state: State, failure: Failure) -> Decision:
    """A rank failed while it was stopping: the job is stopped all the same, and whoever looks for what it saved learns
    of it. That the others have left is no news.
    """
    if failure.is_symptom or not state.stop_signal:
        return state, []
    said = Say(f"warning: rank {failure.rank} failed while it was stopping: {first_line(failure)}")
    return state._replace(spoilt=state.spoilt or failure), [said]


def _stop(state: State, host: str, signal: int, actions: list[Action], rules: Rules) -> Decision:
    if state.phase in ("judging", "leaving"):
        return state, actions  # it is ending anyway, and a failure that came first stays the truth
    state = state._replace(stopped_by=host, stop_signal=signal)
    signo = SIGINT if signal == SIGINT else 0
    if state.phase == "waiting":
        services: list[Action] = [SignalRanks(signo)] if state.services and not state.told else []
        late = StartTimer(rules.grace + LATE_SECONDS, LeaveDue())
        return state._replace(told=True), [*actions, *services, late]
    state = state._replace(phase="ending", told=True)
    return state, [*actions, SignalRanks(signo), StartTimer(rules.grace, KillDue())]


_HANDLERS = {
    SessionOpened: _session_opened,
    RankEnded: _rank_ended,
    UnrankedStarted: _unranked_started,
    UnrankedEnded: unranked_ended,
    Broken: broken,
    StopAsked: stop_asked,
    KillDue: kill_due,
    VerdictDue: verdict_due,
    LeaveDue: leave_due,
    peers.JobFailed: job_failed,
    peers.StopAll: stop_all,
    peers.AllDone: all_done,
    peers.Arrived: arrived,
    peers.PeerLost: peer_lost,
    peers.PeerSilent: _peer_silent,
    peers.PeerBack: _peer_back,
}
