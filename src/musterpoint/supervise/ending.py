"""Decisions about the end: the last rank here, the last host, and what may take its leave."""

from __future__ import annotations

from musterpoint import peers
from musterpoint.peers import Failure
from musterpoint.supervise.events import (
    Action,
    Finish,
    KillDue,
    KillTree,
    LeaveDue,
    Release,
    Say,
    SignalRanks,
    StartTimer,
    TellArrived,
    TellDone,
    TellFailed,
    VerdictDue,
)
from musterpoint.supervise.state import (
    RANKS_ENDED,
    Decision,
    Rules,
    State,
    code_of,
    end_grace,
    end_of,
    first_line,
    session_of,
)

VERDICT_SECONDS = 20.0
"""Longer than a lost leader takes to be noticed (10 s), so this is the last resort only."""

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
    actions.append(TellDone(code, state.failures))
    return state._replace(phase="waiting"), actions


def all_done(state: State, event: peers.AllDone, rules: Rules) -> Decision:
    """Every host is done. What was told to end before has a timer that runs; the rest is told now."""
    if state.phase != "waiting":
        return state, []
    # the same number on all hosts: ranks that failed, not hosts that could not even start theirs
    first = 1 if state.verdict is not None and state.verdict.rank is not None else 0
    state = state._replace(secondary=max(0, event.failures - first))
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
        actions.append(StartTimer(_farewell(state, rules), LeaveDue()))
    return state._replace(phase="leaving", told=True), actions


def _farewell(state: State, rules: Rules) -> float:
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
