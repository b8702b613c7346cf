"""Failures: what counts as one, what is reported, and what the root cause means on this host."""

from __future__ import annotations

import pytest

from musterpoint.base.failure import Secondary
from musterpoint.base.stop_budget import FAILURE_GRACE
from musterpoint.core.channel import peers
from musterpoint.core.supervise import events as ev

from .history import (
    BOOM,
    FINISH,
    HERE,
    INNER,
    LAUNCHER,
    MPI1,
    OPEN0,
    OPEN1,
    OPEN2,
    ORTED,
    ORTED_GONE,
    PS,
    PS_ENDED,
    PS_FAILED,
    R0,
    R1,
    SCRIPT,
    SERVER,
    SERVER_GONE,
    SYMPTOM,
    THEIRS,
    TORCHRUN,
    TORCHRUN2,
    TORCHRUN_GONE,
    History,
    check,
    ended,
    play,
    timers,
)

LOST = peers.PeerLost("algo-2", "killed")
WAITING = [OPEN1, ended(R0)]
INNER_SERVER_GONE = ev.ServiceOrLauncherEnded(1, "server", "service", LAUNCHER, vital=True)

HISTORIES: History = {
    "a rank fails": ([OPEN2, ended(R0, BOOM)], HERE, "judging", ["StartTimer", "ReportFailure"]),
    "our failure is the root cause": (
        [OPEN2, ended(R0, BOOM), peers.JobFailed(BOOM)], HERE, "ending", ["SignalRanks", "StartTimer"]),
    "the only rank failed": (
        [OPEN1, ended(R0, BOOM), peers.JobFailed(BOOM)], HERE, "waiting",
        ["StartTimer", "ReportArrival", "ReportDone"]),
    "no root cause is announced": (
        [OPEN2, ended(R0, BOOM), ev.RootCauseDue()], HERE, "ending", ["SignalRanks", "StartTimer"]),
    "a late timer for the root cause": (
        [OPEN2, ended(R0, BOOM), peers.JobFailed(BOOM), ev.RootCauseDue()], HERE, "ending", []),
    "another host's failure": ([OPEN2, peers.JobFailed(THEIRS)], HERE, "ending", ["SignalRanks", "StartTimer"]),
    "another host's failure after our end": ([*WAITING, peers.JobFailed(THEIRS)], HERE, "waiting", ["StartTimer"]),
    "a second root cause": ([OPEN2, peers.JobFailed(THEIRS), peers.JobFailed(BOOM)], HERE, "ending", []),
    "a cause after its symptom is reported, too": (
        [OPEN2, ended(R1, SYMPTOM), ended(R0, BOOM)], HERE, "judging", ["StartTimer", "ReportFailure"]),
    "a symptom after another isn't": ([OPEN2, ended(R1, SYMPTOM), ended(R0, SYMPTOM)], HERE, "judging", []),
    "a failure after the cause isn't": ([OPEN2, ended(R0, BOOM), ended(R1, BOOM)], HERE, "judging", []),
    "the launcher dies with ranks alive": (
        [TORCHRUN2, TORCHRUN, TORCHRUN_GONE], HERE, "judging", ["StartTimer", "ReportFailure"]),
    "the launcher dies when our ranks have ended": (
        [TORCHRUN2, TORCHRUN, ended(R0), ended(R1), TORCHRUN_GONE], HERE, "waiting", []),
    "an MPI's daemon dies with ranks alive": (
        [MPI1, ORTED, ORTED_GONE], HERE, "judging", ["StartTimer", "ReportFailure"]),
    "an MPI's daemon dies when our ranks have ended": (
        [MPI1, ORTED, ended(R0), ORTED_GONE], HERE, "waiting", ["ReportFailure"]),
    "an MPI's daemon dies after the root cause": (
        [MPI1, ORTED, ended(R0), peers.JobFailed(THEIRS), ORTED_GONE], HERE, "waiting", []),
    "an MPI's daemon dies in a stop": ([MPI1, ORTED, ev.StopAsked(15), ORTED_GONE], HERE, "ending", []),
    "a service dies with ranks alive": ([OPEN1, SERVER, SERVER_GONE], HERE, "judging", ["StartTimer", "ReportFailure"]),
    "a service dies when our ranks have ended": ([OPEN1, SERVER, ended(R0), SERVER_GONE], HERE, "waiting",
                                                 ["ReportFailure"]),
    "a service dies on a host without ranks": ([OPEN0, SERVER, SERVER_GONE], HERE, "waiting", ["ReportFailure"]),
    "a user's service fails": ([OPEN0, PS, PS_FAILED], HERE, "waiting", ["ReportFailure"]),
    "a user's service fails beside ranks": ([OPEN1, PS, PS_FAILED], HERE, "judging", ["StartTimer", "ReportFailure"]),
    "a user's service may end": ([OPEN1, PS, PS_ENDED], HERE, "running", []),
    "a service that was signalled to end": ([OPEN1, PS, ev.StopAsked(15), PS_FAILED], HERE, "ending", []),
    "a service of a session that ended": (
        [OPEN1, INNER, ended((1, 0)), peers.Arrived("session-1-ended"), INNER_SERVER_GONE], HERE, "running", []),
    "a service of a session that lives elsewhere": (
        [OPEN1, INNER, ended((1, 0)), INNER_SERVER_GONE], HERE, "judging", ["StartTimer", "ReportFailure"]),
    "services are signalled with the ranks": (
        [OPEN1, PS, peers.JobFailed(THEIRS)], HERE, "ending", ["SignalRanks", "StartTimer"]),
    "services are signalled where the ranks have ended": (
        [OPEN1, PS, ended(R0), peers.JobFailed(THEIRS)], HERE, "waiting", ["SignalRanks", "StartTimer"]),
    "services are signalled where the only rank failed": (
        [OPEN1, PS, ended(R0, BOOM), peers.JobFailed(BOOM)], HERE, "waiting",
        ["SignalRanks", "StartTimer", "ReportArrival", "ReportDone"]),
    "a wrong world": ([TORCHRUN2, ev.Broken(LAUNCHER)], HERE, "judging", ["StartTimer", "ReportFailure"]),
    "a rank where none was planned": ([OPEN0, ev.Broken(LAUNCHER)], HERE, "waiting", ["ReportFailure"]),
    "a wrong world in a stop": ([TORCHRUN2, ev.StopAsked(15), ev.Broken(LAUNCHER)], HERE, "ending", []),
    "finish: others go on": ([OPEN2, ended(R0, BOOM)], FINISH, "running", []),
    "finish: another host's failure doesn't end ours": ([OPEN2, peers.JobFailed(THEIRS)], FINISH, "running", []),
    "finish: another's failure after ours ended": ([*WAITING, peers.JobFailed(THEIRS)], FINISH, "waiting", []),
    "a lost peer": ([OPEN1, LOST], HERE, "judging", ["StartTimer", "ReportFailure"]),
    "a lost peer under script": ([OPEN1, LOST], SCRIPT, "running", []),
    "a lost peer after our end": ([*WAITING, LOST], HERE, "waiting", ["ReportFailure"]),
    "a handed-over rank fails": (
        [OPEN1, INNER, ended((1, 0), BOOM), peers.JobFailed(BOOM)], HERE, "ending", ["SignalRanks", "StartTimer"]),
}  # fmt: skip


@pytest.mark.parametrize("name", HISTORIES)
def test_history(name: str) -> None:
    check(HISTORIES[name])


def test_a_failure_leaves_less_time_than_a_stop() -> None:
    _, failing = play([OPEN1, peers.JobFailed(THEIRS)])
    _, stopping = play([OPEN1, ev.StopAsked(15)])
    assert timers(failing) == [FAILURE_GRACE]
    assert timers(stopping) == [105.0]


def test_the_cause_takes_the_symptoms_place() -> None:
    state, actions = play([OPEN2, ended(R1, SYMPTOM), ended(R0, BOOM)])
    assert [action.failure for action in actions if isinstance(action, ev.ReportFailure)] == [BOOM]
    assert (state.failure, state.secondary, state.failed) == (BOOM, Secondary(lost=1), (SYMPTOM, BOOM))
