"""Histories of events, and what they lead to: what the tests of the supervisor's decisions are written in."""

from __future__ import annotations

from musterpoint.base.failure import Failure
from musterpoint.core.supervise import events as ev
from musterpoint.core.supervise.policy import decide
from musterpoint.core.supervise.state import Rules, State

HERE = Rules(host="algo-1", grace=105.0)
FINISH = HERE._replace(finish_on_failure=True)
OUTSIDE = HERE._replace(outside=True, ends="never")
SCRIPT = HERE._replace(tolerates_lost_peers=True)

R0, R1 = 0, 1
OPEN0 = ev.PlanStarted(())
OPEN1 = ev.PlanStarted((R0,))
OPEN2 = ev.PlanStarted((R0, R1))
TORCHRUN2 = ev.PlanStarted((R0, R1), foreign=True)
TORCHRUN = ev.ServiceOrLauncherStarted("torchrun", "launcher")
MPI1 = ev.PlanStarted((R0,), foreign=True, mpi=True)
MPI0 = ev.PlanStarted((), foreign=True, mpi=True)
ORTED = ev.ServiceOrLauncherStarted("orted", "launcher")
PS = ev.ServiceOrLauncherStarted("ps 0", "service", users=True)
SERVER = ev.ServiceOrLauncherStarted("server", "service")

BOOM = Failure("algo-1", 7, "user", "user", "ValueError: boom", rank=0, local_rank=0)
SYMPTOM = Failure("algo-1", 1, "user", "peer", "Connection closed by peer", rank=1, local_rank=1)
THEIRS = Failure("algo-2", 3, "user", "user", "KeyError: 'x'", rank=2, local_rank=0)
LAUNCHER = Failure("algo-1", 72, "muster", "infra", "muster: torchrun ended")
SERVICE = Failure("algo-1", 5, "user", "user", "OSError: no parameters")

TORCHRUN_GONE = ev.ServiceOrLauncherEnded("torchrun", "launcher", LAUNCHER)
ORTED_GONE = ev.ServiceOrLauncherEnded("orted", "launcher", LAUNCHER, vital=True)
PS_FAILED = ev.ServiceOrLauncherEnded("ps 0", "service", SERVICE, vital=True)
PS_ENDED = ev.ServiceOrLauncherEnded("ps 0", "service", None, vital=True)
SERVER_GONE = ev.ServiceOrLauncherEnded("server", "service", LAUNCHER, vital=True)

History = dict[str, tuple[list[ev.Event], Rules, str, list[str]]]
"""By name: events, rules, the phase after them, what the last one leads to."""


def ended(key: ev.Key, failure: Failure | None = None) -> ev.RankEnded:
    return ev.RankEnded(key, failure)


def play(history: list[ev.Event], rules: Rules = HERE) -> tuple[State, list[ev.Action]]:
    """The state after ``history`` and the actions of its last event."""
    state, actions = State(), []
    for event in history:
        state, actions = decide(state, event, rules)
    return state, actions


def names(actions: list[ev.Action]) -> list[str]:
    return [type(action).__name__ for action in actions if not isinstance(action, ev.Say)]


def timers(actions: list[ev.Action]) -> list[float]:
    return [action.seconds for action in actions if isinstance(action, ev.StartTimer)]


def check(history: tuple[list[ev.Event], Rules, str, list[str]]) -> None:
    events, rules, phase, expected = history
    state, actions = play(events, rules)
    assert (state.phase, names(actions)) == (phase, expected)
