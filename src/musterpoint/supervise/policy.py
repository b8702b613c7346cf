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

from musterpoint import peers
from musterpoint.supervise import ending, failing, stopping
from musterpoint.supervise.events import (
    Action,
    AttendantEnded,
    AttendantStarted,
    Broken,
    Event,
    KillDue,
    LeaveDue,
    RankEnded,
    Say,
    SessionOpened,
    StopAsked,
    TellArrived,
    VerdictDue,
)
from musterpoint.supervise.state import Decision, Rules, State, end_of


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
    return ending.all_ended_here(state, [], rules)


def _attendant_started(state: State, event: AttendantStarted, rules: Rules) -> Decision:
    who = {(event.session, event.name)}
    if event.role == "launcher":
        return state._replace(launchers=state.launchers | who), []
    return (state._replace(services=state.services | who), []) if event.users else (state, [])


def _rank_ended(state: State, event: RankEnded, rules: Rules) -> Decision:
    state = state._replace(live=state.live - {event.key})
    actions: list[Action] = []
    if event.failure is not None and not state.stopped_by:
        # a launcher of ours in its place knows of no rank: it started none
        state = state._replace(failures=state.failures + (event.failure.rank is not None))
        state, actions = failing.failed_here(state, event.failure, rules)
    return ending.a_rank_ended(state, event.key[0], actions, rules)


def _peer_silent(state: State, event: peers.PeerSilent, rules: Rules) -> Decision:
    return state, [Say(f"no word from {event.host} for {event.seconds:.0f} s; waiting for it to come back")]


def _peer_back(state: State, event: peers.PeerBack, rules: Rules) -> Decision:
    return state, [Say(f"{event.host} is back")]


_HANDLERS = {
    SessionOpened: _session_opened,
    RankEnded: _rank_ended,
    AttendantStarted: _attendant_started,
    AttendantEnded: failing.attendant_ended,
    Broken: failing.broken,
    StopAsked: stopping.stop_asked,
    KillDue: ending.kill_due,
    VerdictDue: failing.verdict_due,
    LeaveDue: ending.leave_due,
    peers.JobFailed: failing.job_failed,
    peers.StopAll: stopping.stop_all,
    peers.AllDone: ending.all_done,
    peers.Arrived: ending.arrived,
    peers.PeerLost: failing.peer_lost,
    peers.PeerSilent: _peer_silent,
    peers.PeerBack: _peer_back,
}
