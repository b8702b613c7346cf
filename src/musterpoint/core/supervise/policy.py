"""What the supervisor does when something happens: (state, event) → (state, actions); no I/O.

In the order of a job: processes start, ranks end, something fails, a stop comes, the ranks of all hosts have ended.
The phases are described at :data:`musterpoint.core.supervise.state.Phase`.
"""

from __future__ import annotations

from typing import Any, Callable

from musterpoint.base.failure import Failure, lost_host
from musterpoint.base.stop_budget import end_grace
from musterpoint.core.channel import peers
from musterpoint.core.job.model import Ends
from musterpoint.core.supervise import events as ev
from musterpoint.core.supervise.events import Action, Event, Whom
from musterpoint.core.supervise.state import SIGINT, Decision, Rules, State, code_of, first_line, first_lines

ROOT_CAUSE_SECONDS = 60.0
"""The last resort: longer than a symptom waits for its cause (35 s) and than it takes to notice a lost leader."""
LAUNCHER_SECONDS = 5.0
"""What a launcher gets to end by itself once all its ranks have."""
MPI_SECONDS = 0.35
"""What mpirun and its daemons get: all ranks have ended, and files that they would leave behind are removed."""
SERVICE_SECONDS = 0.35
"""What services of the user's own get when the job went well."""
UNKILLABLE_SECONDS = 5.0
"""After SIGKILL: a process that is stuck in the kernel for longer isn't waited for."""
LENT_SECONDS = 0.3
"""What other hosts get beyond the ranks here, at the end of a launch that the job above has told to end."""
LEFT_SECONDS = 3.0
"""Seconds in which the end of the job's roles explains a service's: both are on their way."""
LATE_SECONDS = 2.0
"""What a late host gets beyond its ranks' grace, to report that it is done."""


def decide(state: State, event: Event, rules: Rules) -> Decision:
    """What to do when ``event`` happens in ``state``."""
    if state.phase == "over":
        return state, []
    handler = _HANDLERS.get(type(event))
    return handler(state, event, rules) if handler else (state, [])


def _end_grace(state: State, rules: Rules) -> float:
    return end_grace(stopped=state.stopped_by != "", grace=rules.grace)


# -- plans and processes start --


def _held(state: State, event: ev.Held, rules: Rules) -> Decision:
    return state._replace(pending=event.names), []


def _plan_started(state: State, event: ev.PlanStarted, rules: Rules) -> Decision:
    live = state.live | frozenset(event.keys)
    state = state._replace(live=live, foreign=event.foreign, mpi=event.mpi, pending=state.pending - {rules.role})
    return (state, []) if live or state.pending else _all_ended_here(state, [], rules)


def _service_or_launcher_started(state: State, event: ev.ServiceOrLauncherStarted, rules: Rules) -> Decision:
    if event.role == "launcher":
        return state._replace(launchers=state.launchers | {event.name}), []
    if event.ends is not None:
        return _role_started(state, event.name, event.ends), []
    return (state._replace(services=state.services | {event.name}), []) if event.users else (state, [])


def _role_started(state: State, name: str, ends: Ends) -> State:
    """The program of a role beside this host's own runs."""
    state = state._replace(pending=state.pending - {name}, services=state.services | {name})
    if ends == "job":
        return state._replace(live=state.live | {name})
    may_leave = state.may_leave | {name} if ends == "never" else state.may_leave
    return state._replace(beside=state.beside | {name}, may_leave=may_leave)


# -- processes end --


def _rank_ended(state: State, event: ev.RankEnded, rules: Rules) -> Decision:
    state = state._replace(live=state.live - {event.key})
    actions: list[Action] = []
    if event.failure is not None and state.stopped_by:
        state, actions = _spoilt(state, event.failure, rules)
    elif event.failure is not None:
        # a launch in the program may have failed before it started ranks, or on another host
        if event.failure.rank is not None and event.failure.host == rules.host:
            state = state._replace(failed=(*state.failed, event.failure))
        state, actions = _failed_here(state, event.failure, rules)
    elif event.cut_short is not None and state.root_cause is not None:
        first, cut_short = state.root_cause, event.cut_short
        # the first one itself may have been on its way out
        if (cut_short.host, cut_short.rank) != (first.host, first.rank) and cut_short.says_what(first):
            state = state._replace(failed=(*state.failed, cut_short._replace(code=first.code)))
    return _end_of_one(state, actions, rules)


def _end_of_one(state: State, actions: list[Action], rules: Rules) -> Decision:
    """A rank, or the program of a role that counts as one, has ended: it may be the last here."""
    if state.live or state.pending or state.phase not in ("running", "ending"):
        return state, actions
    serves = rules.ends == "with" and state.phase == "running" and state.failure is None
    if serves and not state.group_ended:
        return _leaves(state, rules.role, actions)
    if state.failure is not None and _is_kept(state, rules):
        # --on-failure finish: the failure was kept until every rank here had ended
        return state._replace(phase="judging"), [*actions, *_report(state.failure)]
    return _all_ended_here(state, actions, rules)


def _is_kept(state: State, rules: Rules) -> bool:
    """Whether a failure wasn't reported yet: with ``--on-failure finish`` the ranks here end first."""
    return not state.root_cause and not state.stop_signal and (state.phase == "running" or rules.finish_on_failure)


def _leaves(state: State, role: str, actions: list[Action]) -> Decision:
    """A role that serves others has ended with 0: because the job's own are through, which may not be known yet, or
    too early.
    """
    return state._replace(left=(*state.left, role)), [*actions, ev.StartTimer(LEFT_SECONDS, ev.LeftDue())]


def _left_due(state: State, event: ev.LeftDue, rules: Rules) -> Decision:
    if state.group_ended or state.stopped_by or not state.left or state.phase not in ("running", "waiting"):
        return state, []
    return _failed_here(state, _left_early(state.left[0], rules), rules)


def _left_early(role: str, rules: Rules) -> Failure:
    runs = f"while {rules.job_roles} still {'run' if ' and ' in rules.job_roles else 'runs'}"
    reason = f"{role} on {rules.host} left {runs}: it ended with exit code 0\n"
    reason += f'a role that serves others is told to end when they are through; ends = "never" lets {role} leave before'
    return Failure(rules.host, 1, "user", "user", reason, role=role)


def _spoilt(state: State, failure: Failure, rules: Rules) -> Decision:
    """A rank failed while it was stopping: the job still counts as stopped, but a checkpoint may be lost.

    Symptoms of other hosts' ends are ignored.
    """
    if failure.is_symptom or not state.stop_signal or rules.ends != "job":
        return state, []
    who = f"rank {failure.rank}" if failure.rank is not None else "the program"
    said = ev.Say(f"warning: {who} failed while it was stopping: {first_line(failure)}")
    return state._replace(spoilt=state.spoilt or failure), [said]


def _service_or_launcher_ended(state: State, event: ev.ServiceOrLauncherEnded, rules: Rules) -> Decision:
    """The ranks that a launcher started here need it; a service or MPI daemon is needed by other hosts' ranks, too."""
    was_beside, was_live = event.name in state.beside, event.name in state.live
    state = state._replace(
        launchers=state.launchers - {event.name},
        services=state.services - {event.name},
        beside=state.beside - {event.name},
        live=state.live - {event.name},
    )
    if was_live:
        return _rank_ended(state, ev.RankEnded(event.name, event.failure), rules)
    if was_beside and (state.group_ended or state.services_told) and state.phase != "leaving":
        return state, []
    early = event.failure is None and not state.stopped_by and state.phase in ("running", "waiting")
    if was_beside and early and event.name not in state.may_leave:
        return _leaves(state, event.name, [])
    if state.phase == "leaving":
        if state.services or (state.launchers and not code_of(state, rules)):
            return state, []
        return state._replace(phase="over"), [ev.Finish()]
    if event.failure is None or state.stopped_by:
        return state, []
    needed = event.vital or (state.live and state.phase != "waiting")
    if needed and state.phase in ("running", "judging", "waiting"):
        return _failed_here(state, event.failure, rules)
    return state, []


# -- something fails, here or elsewhere --


def _failed_here(state: State, failure: Failure, rules: Rules) -> Decision:
    """Something failed on this host: reports the first failure, counts later ones."""
    if state.phase == "waiting":
        if state.root_cause is not None:
            return state, []
        if not failure.is_symptom:  # all others may be done, so that no root cause is announced
            state = state._replace(failure=state.failure or failure)
        return state, [ev.ReportFailure(failure)]
    reported = state.failure if state.root_cause is None else None
    if state.phase == "judging" and reported is not None and reported.gives_way_to(failure):
        return state._replace(failure=failure), _report(failure)
    if state.failure is not None or state.root_cause is not None:
        return state, []
    state = state._replace(failure=failure, pending=frozenset())  # nothing starts after a failure
    if rules.finish_on_failure and state.live and rules.ends == "job":  # a service ends when the others have
        return state, [ev.Say(f"{first_line(failure)}; the other ranks go on (--on-failure finish)")]
    return state._replace(phase="judging"), _report(failure)


def _raised(state: State, event: ev.Raised, rules: Rules) -> Decision:
    """Tells the leader, in case others fail for it before its rank's end is told."""
    goes_on = state.phase in ("running", "judging") and not state.stopped_by and not rules.finish_on_failure
    return state, [ev.ReportFailure(event.failure)] if goes_on else []


def _report(failure: Failure) -> list[Action]:
    return [ev.StartTimer(ROOT_CAUSE_SECONDS, ev.RootCauseDue()), ev.ReportFailure(failure)]


def _needs_nobody(state: State, rules: Rules) -> bool:
    """Tells whether the job above a launch has told it to end: that job knows what becomes of other hosts."""
    return rules.lent and state.interrupted


def _broken(state: State, event: ev.Broken, rules: Rules) -> Decision:
    if state.phase in ("running", "judging", "waiting") and not state.stopped_by:
        return _failed_here(state, event.failure, rules)
    return state, []


def _peer_lost(state: State, event: peers.PeerLost, rules: Rules) -> Decision:
    if _needs_nobody(state, rules):
        return state, []
    if rules.tolerates_lost_peers or state.phase not in ("running", "waiting"):
        return state, [ev.Say(f"warning: {event.host} is lost: {event.why}")]
    return _failed_here(state, lost_host(event.host, event.why, apart_from=event.apart_from), rules)


def _root_cause_due(state: State, event: ev.RootCauseDue, rules: Rules) -> Decision:
    if state.phase != "judging" or state.failure is None:
        return state, []
    return _job_failed(state, peers.JobFailed(state.failure), rules)


def _job_failed(state: State, event: peers.JobFailed, rules: Rules) -> Decision:
    """The root cause is known: signals the live ranks to end.

    The leader announces none after a stop, so a stop that is known here only has come after it.
    """
    if state.root_cause is not None or state.phase in ("leaving", "over"):
        return state, []
    if state.stop_signal and rules.finish_on_failure:
        return state, []
    stopping = state.stopped_by != ""
    by = state.stopped_by if rules.finish_on_failure else ""  # a stop may still come then
    state = state._replace(root_cause=event.failure, counted=event.secondary, stopped_by=by, stop_signal=0, spoilt=None)
    state = state._replace(pending=frozenset())  # nothing starts after a failure
    where = "" if event.failure.host == rules.host else f" (first failure, on {event.failure.host})"
    actions: list[Action] = [ev.Say(f"{first_lines(event.failure)}{where}")]
    if stopping and state.phase != "judging":  # all that has to end is ending already, but for who serves it
        late = state._replace(services_told=True)
        return late, [*actions, *_tell_services(state, rules)] if not state.services_told else actions
    if state.phase == "waiting":
        # our ranks ended well: only the code changes, and how long we wait for the others
        return (state, actions) if rules.finish_on_failure else _wait_for_late_hosts(state, actions, rules)
    if rules.finish_on_failure and state.live:
        state = state._replace(phase="running")
        return _end_service(state, actions, rules) if state.group_ended and rules.ends != "job" else (state, actions)
    if rules.finish_on_failure and _serves(state, rules):
        return _all_ended_here(state, actions, rules)  # the job's own roles may need who serves them
    state = state._replace(phase="ending", signalled=True, services_told=True)
    seconds = _end_grace(state, rules)
    if not state.live:
        return _all_ended_here(state, [*actions, *_signal_services(state, rules.stop_signal, seconds)], rules)
    return state, [*actions, *_end_ranks(rules.stop_signal, seconds)]


def _end_ranks(signal: int, seconds: float, whom: Whom = "all") -> list[Action]:
    return [ev.SignalRanks(signal, seconds, whom), ev.StartTimer(seconds, ev.KillDue())]


def _serves(state: State, rules: Rules) -> bool:
    """A program here serves the job's own roles, and wasn't told to end."""
    return not state.services_told and bool(state.beside or (rules.ends != "job" and state.live))


def _tell_services(state: State, rules: Rules) -> list[Action]:
    """Services get the rest of a stop's grace, at least half of it."""
    if not _serves(state, rules):
        return []
    signal = SIGINT if state.stop_signal == SIGINT else rules.stop_signal
    return [ev.SignalRanks(signal, rules.grace / 2, "services")]


def _wait_for_late_hosts(state: State, actions: list[Action], rules: Rules) -> Decision:
    seconds = _end_grace(state, rules)
    late = ev.StartTimer(seconds + LATE_SECONDS, ev.LeaveDue())
    told = state._replace(signalled=True, services_told=True)
    return told, [*actions, *_signal_services(state, rules.stop_signal, seconds), late]


def _through(told: str, rules: Rules) -> str:
    """The sentence by which services are ``told`` to end."""
    are = "are" if " and " in rules.job_roles else "is"
    return f"{rules.job_roles} {are} through: {told} {'are' if ' and ' in told else 'is'} told to end"


def _signal_services(state: State, signal: int, seconds: float, whom: Whom = "all") -> list[Action]:
    return [ev.SignalRanks(signal, seconds, whom)] if state.services else []


# -- a stop --


def _stop_asked(state: State, event: ev.StopAsked, rules: Rules) -> Decision:
    again, state = state.interrupted, state._replace(interrupted=True)
    if _is_told(state):
        if event.signal == SIGINT and again and not state.killed:
            return state._replace(killed=True), [ev.Say("interrupted again: killing what is left"), ev.KillTree()]
        return state, []
    return _stop(state, rules.host, event.signal, [ev.ReportStop(event.signal)], rules)


def _is_told(state: State) -> bool:
    """Whether the ranks were told to end, by a stop or for a failure, and not only by ``--outside stop``."""
    return state.stop_signal != 0 or (state.phase == "ending" and not state.stopped_by)


def _stop_all(state: State, event: peers.StopAll, rules: Rules) -> Decision:
    if state.stop_signal:
        return state._replace(stopped_by=event.host, stop_signal=event.signal), []  # the leader heard of that one first
    if _is_told(state):
        return state, []
    return _stop(state, event.host, event.signal, [ev.Say(f"{event.host} was told to stop: stopping here too")], rules)


def _stop(state: State, host: str, signal: int, actions: list[Action], rules: Rules) -> Decision:
    """What comes first at the leader counts: a failure that is only reported comes after a stop that it tells of."""
    if state.phase == "leaving" or (state.root_cause is not None and not rules.finish_on_failure):
        return state, actions  # it is ending anyway, with the failure that came first
    state = state._replace(stopped_by=host, stop_signal=signal, pending=frozenset())
    if state.failure is not None:
        state, said = _spoilt(state, state.failure, rules)
        actions = [*actions, *said]
    sent = SIGINT if signal == SIGINT else rules.stop_signal  # Ctrl-C reaches the ranks as it is
    # a checkpoint of the job's own roles may need who serves them
    whom: Whom = "job" if _serves(state, rules) else "all"
    actions = [*actions, ev.StartTimer(rules.grace / 2, ev.ServicesDue())] if whom == "job" else actions
    if state.phase == "waiting":
        services = [] if state.signalled else _signal_services(state, sent, rules.grace, whom)
        late = ev.StartTimer(rules.grace + LATE_SECONDS, ev.LeaveDue())
        return state._replace(signalled=True), [*actions, *services, late]
    state = state._replace(phase="ending", signalled=True)
    if not state.live:
        return _all_ended_here(state, [*actions, *_signal_services(state, sent, rules.grace, whom)], rules)
    return state, [*actions, *_end_ranks(sent, rules.grace, whom)]


def _services_due(state: State, event: ev.ServicesDue, rules: Rules) -> Decision:
    """Half of a stop's grace is over."""
    actions = _tell_services(state, rules)
    return state._replace(services_told=True), actions


def _end_service(state: State, actions: list[Action], rules: Rules) -> Decision:
    """The job's own roles are through: the program here, which served them, is ended, which is no failure."""
    outside = "the distribution group is done: stopping the program here (--outside stop)"
    actions = [*actions, ev.Say(_through(rules.role, rules) if rules.role else outside)]
    state = state._replace(phase="ending", stopped_by=rules.host, stop_signal=0, signalled=True, services_told=True)
    state = state._replace(pending=frozenset())
    if not state.live:
        return _all_ended_here(state, [*actions, *_signal_services(state, rules.stop_signal, rules.grace)], rules)
    return state, [*actions, *_end_ranks(rules.stop_signal, rules.grace)]


def _kill_due(state: State, event: ev.KillDue, rules: Rules) -> Decision:
    if state.phase not in ("ending", "waiting", "leaving") or not (state.live or state.services):
        return state, []
    if not state.live:  # services had the same grace; how long other hosts are waited for is another matter
        late = f"{' and '.join(sorted(state.services))} had not ended by the end of the grace: killing what is left"
        return state._replace(killed=True), [ev.Say(late), ev.KillTree()]
    return state._replace(killed=True), [
        ev.Say(_too_late(len(state.live), rules)),
        ev.KillTree(),
        ev.StartTimer(UNKILLABLE_SECONDS, ev.LeaveDue()),
    ]


def _too_late(live: int, rules: Rules) -> str:
    if rules.ends != "job" and rules.role:
        return f"{rules.role} had not ended by the end of its grace: killing it"
    if rules.outside:
        return "the program had not ended by the end of its grace: killing it"
    return f"{live} rank{'s' if live > 1 else ''} had not ended by the end of their grace: killing them"


# -- the ranks have ended: here, then everywhere --


def _all_ended_here(state: State, actions: list[Action], rules: Rules) -> Decision:
    """All ranks here have ended: reports this host as done and waits for the others."""
    code = code_of(state, rules)
    if _needs_nobody(state, rules):
        actions.append(ev.StartTimer(LENT_SECONDS, ev.LeaveDue()))
    elif state.stopped_by or (not rules.finish_on_failure and (state.phase == "ending" or code)):
        # late hosts get the grace of their ranks, and a moment to report
        actions.append(ev.StartTimer(_end_grace(state, rules) + LATE_SECONDS, ev.LeaveDue()))
    actions.append(ev.ReportDone(code, state.secondary_here))
    return state._replace(phase="waiting"), actions


def _group_ended(state: State, event: peers.GroupEnded, rules: Rules) -> Decision:
    """The job's own programs have ended everywhere, or nobody could tell it."""
    if state.phase in ("running", "judging"):
        return _job_is_through(state._replace(group_ended=True), rules) if rules.ends != "job" else (state, [])
    state = state._replace(group_ended=True)
    actions = _tell_services(state, rules)
    if actions and not state.stop_signal and state.phase == "waiting":
        seconds = rules.grace + LATE_SECONDS
        told = ev.Say(_through(" and ".join(sorted(state.beside)) or rules.role, rules))
        actions = [told, *_end_ranks(rules.stop_signal, rules.grace, "services")]
        actions.append(ev.StartTimer(seconds, ev.LeaveDue()))
    return state._replace(services_told=True), actions


def _job_is_through(state: State, rules: Rules) -> Decision:
    """A program that serves the job's own roles runs here, or has just failed: the leader knows what came first."""
    if state.phase == "judging" and rules.role and state.failure is not None:
        if state.failure.cause == "host":
            return state, []  # the root cause is on its way
        state = state._replace(failure=None)
    return _end_service(state, [], rules)


def _all_done(state: State, event: peers.AllDone, rules: Rules) -> Decision:
    """Every host is done: signals the services that were not signalled before, and leaves when they have ended."""
    if state.phase != "waiting":
        return state, []
    state = state._replace(counted=event.failures)  # the same on all hosts
    if not event.stopped:
        state = state._replace(stopped_by="", stop_signal=0)  # a stop that is known here only came after it
    actions: list[Action] = []
    if state.failure is not None and state.root_cause is None and not state.stop_signal:
        if state.failure.cause == "host":  # the leader told all hosts before that they were done
            actions.append(ev.Say(first_line(state.failure)))
        else:  # it was done when it heard of this one: the other hosts never do
            actions.append(ev.Say(f"warning: after all ranks had ended well: {first_line(state.failure)}"))
            state = state._replace(failure=None)
    code = code_of(state, rules)
    if state.foreign and not code:
        actions.append(ev.Release())
    seconds = _time_to_leave(state, code, rules)
    if not state.signalled or _serves(state, rules):
        actions += _signal_services(state, rules.stop_signal, seconds)
    if not state.services and (code or not state.launchers):
        return state._replace(phase="over"), [*actions, ev.Finish()]
    state = state._replace(services_told=True)
    if not (state.signalled and state.services):
        actions.append(ev.StartTimer(seconds, ev.LeaveDue()))
    return state._replace(phase="leaving", signalled=True), actions


def _time_to_leave(state: State, code: int, rules: Rules) -> float:
    """Seconds that launchers and services get when all hosts are done."""
    if code:
        return _end_grace(state, rules)
    if state.beside:
        return rules.grace
    if state.launchers:
        return MPI_SECONDS if state.mpi else LAUNCHER_SECONDS
    return SERVICE_SECONDS


def _leave_due(state: State, event: ev.LeaveDue, rules: Rules) -> Decision:
    if state.phase in ("waiting", "leaving") or state.killed:
        return state._replace(phase="over"), [ev.Finish()]
    return state, []


# -- connections --


def _peer_silent(state: State, event: peers.PeerSilent, rules: Rules) -> Decision:
    return state, [ev.Say(f"no word from {event.host} for {event.seconds:.0f} s; waiting for it to come back")]


def _peer_back(state: State, event: peers.PeerBack, rules: Rules) -> Decision:
    return state, [ev.Say(f"{event.host} is back")]


_HANDLERS: dict[type[Event], Callable[[State, Any, Rules], Decision]] = {
    ev.Held: _held,
    ev.PlanStarted: _plan_started,
    ev.ServiceOrLauncherStarted: _service_or_launcher_started,
    ev.RankEnded: _rank_ended,
    ev.Raised: _raised,
    ev.ServiceOrLauncherEnded: _service_or_launcher_ended,
    ev.Broken: _broken,
    peers.PeerLost: _peer_lost,
    ev.RootCauseDue: _root_cause_due,
    peers.JobFailed: _job_failed,
    ev.StopAsked: _stop_asked,
    peers.StopAll: _stop_all,
    ev.ServicesDue: _services_due,
    ev.LeftDue: _left_due,
    ev.KillDue: _kill_due,
    peers.GroupEnded: _group_ended,
    peers.AllDone: _all_done,
    ev.LeaveDue: _leave_due,
    peers.PeerSilent: _peer_silent,
    peers.PeerBack: _peer_back,
}
