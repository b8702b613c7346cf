"""Decisions about a stop: SIGTERM here or on another host, an impatient Ctrl-C."""

from __future__ import annotations

from musterpoint import peers
from musterpoint.peers import Failure
from musterpoint.supervise.ending import LATE_SECONDS
from musterpoint.supervise.events import (
    Action,
    KillDue,
    KillTree,
    LeaveDue,
    Say,
    SignalRanks,
    StartTimer,
    StopAsked,
    TellStopping,
)
from musterpoint.supervise.state import SIGINT, Decision, Rules, State, first_line


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
