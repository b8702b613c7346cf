"""Decisions about failures: what counts as one, whom to tell, and what the verdict means here."""

from __future__ import annotations

from musterpoint import peers
from musterpoint.peers import Failure
from musterpoint.supervise.ending import LATE_SECONDS, all_ended_here, ask_verdict
from musterpoint.supervise.events import (
    Action,
    AttendantEnded,
    Broken,
    Finish,
    KillDue,
    LeaveDue,
    Say,
    SignalRanks,
    StartTimer,
    TellFailed,
    VerdictDue,
)
from musterpoint.supervise.state import Decision, Rules, State, end_grace, first_line


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


def attendant_ended(state: State, event: AttendantEnded, rules: Rules) -> Decision:
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
    return failed_here(state, peers.lost_host(event.host, event.why, apart_from=event.apart_from), rules)
