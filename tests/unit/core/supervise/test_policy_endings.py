"""The end of a job: the last rank of a host, the last host, and what takes its leave then."""

from __future__ import annotations

import pytest

from musterpoint.base.stop_budget import FAILURE_GRACE
from musterpoint.core.channel import peers
from musterpoint.core.supervise import events as ev
from musterpoint.core.supervise.policy import LAUNCHER_SECONDS, MPI_SECONDS, SERVICE_SECONDS
from musterpoint.core.supervise.state import RANKS_ENDED

from .history import (
    BOOM,
    FINISH,
    HERE,
    INNER,
    MPI0,
    MPI1,
    OPEN0,
    OPEN1,
    OPEN2,
    ORTED,
    ORTED_GONE,
    OUTSIDE,
    PS,
    PS_ENDED,
    PS_FAILED,
    R0,
    R1,
    SERVER,
    SERVER_GONE,
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

DONE = peers.AllDone()
RELEASED = [TORCHRUN2, TORCHRUN, ended(R0), ended(R1), DONE]

HISTORIES: History = {
    "the last rank ends": ([OPEN2, ended(R0), ended(R1)], HERE, "waiting", ["ReportArrival", "ReportDone"]),
    "all hosts done": ([OPEN1, ended(R0), DONE], HERE, "over", ["Finish"]),
    "all hosts done, and we weren't": ([OPEN1, DONE], HERE, "running", []),
    "all hosts done, stubs held": (RELEASED, HERE, "leaving", ["Release", "StartTimer"]),
    "the launcher leaves after its release": ([*RELEASED, TORCHRUN_GONE], HERE, "over", ["Finish"]),
    "the launcher won't leave": ([*RELEASED, ev.LeaveDue()], HERE, "over", ["Finish"]),
    "the launcher is gone already": (
        [TORCHRUN2, TORCHRUN, ended(R0), ended(R1), TORCHRUN_GONE, DONE], HERE, "over", ["Release", "Finish"]),
    "an MPI's daemon leaves": ([MPI1, ORTED, ended(R0), DONE, ORTED_GONE], HERE, "over", ["Finish"]),
    "a host where mpirun had no daemon started": ([MPI0, DONE], HERE, "over", ["Release", "Finish"]),
    "ranks end after the root cause": (
        [OPEN2, peers.JobFailed(THEIRS), ended(R0), ended(R1)], HERE, "waiting",
        ["StartTimer", "ReportArrival", "ReportDone"]),
    "launchers aren't waited for after a failure": (
        [TORCHRUN2, TORCHRUN, peers.JobFailed(THEIRS), ended(R0), ended(R1), DONE], HERE, "over", ["Finish"]),
    "a rank outlives its grace": ([OPEN1, peers.JobFailed(THEIRS), ev.KillDue()], HERE, "ending",
                                  ["KillTree", "StartTimer"]),
    "a rank ends within its grace": ([OPEN1, peers.JobFailed(THEIRS), ended(R0), ev.KillDue()], HERE, "waiting", []),
    "a rank can't even be killed": (
        [OPEN1, peers.JobFailed(THEIRS), ev.KillDue(), ev.LeaveDue()], HERE, "over", ["Finish"]),
    "the say_bye takes too long": ([OPEN1, peers.JobFailed(THEIRS), ended(R0), ev.LeaveDue()], HERE, "over",
                                    ["Finish"]),
    "a timer of the say_bye that came too early": ([OPEN1, ev.LeaveDue()], HERE, "running", []),
    "finish: the last one ends": ([OPEN2, ended(R0, BOOM), ended(R1)], FINISH, "judging",
                                  ["StartTimer", "ReportFailure"]),
    "finish: ours ends after another's failure": (
        [OPEN1, peers.JobFailed(THEIRS), ended(R0)], FINISH, "waiting", ["ReportArrival", "ReportDone"]),
    "outside: the group is done": ([OPEN1, peers.Arrived(RANKS_ENDED)], OUTSIDE, "ending",
                                   ["SignalRanks", "StartTimer"]),
    "outside: signalled and ended": (
        [OPEN1, peers.Arrived(RANKS_ENDED), ended(R0)], OUTSIDE, "waiting", ["StartTimer", "ReportDone"]),
    "a handed-over session ends": ([OPEN1, INNER, ended((1, 0))], HERE, "running", ["ReportArrival"]),
    "a handed-over session ended everywhere": (
        [OPEN1, INNER, ended((1, 0)), peers.Arrived("session-1-ended")], HERE, "running", ["Release"]),
    "a handed-over session ends in a stop": (
        [OPEN1, INNER, ev.StopAsked(15), ended((1, 0))], HERE, "ending", ["ReportArrival", "Release"]),
    # services: those of the user's own are signalled, and have a moment; ours are ended with the rest
    "a user's service is signalled when all hosts are done": (
        [OPEN1, PS, ended(R0), DONE], HERE, "leaving", ["SignalRanks", "StartTimer"]),
    "also on a host that has nothing else": ([OPEN0, PS, DONE], HERE, "leaving", ["SignalRanks", "StartTimer"]),
    "it leaves": ([OPEN0, PS, DONE, PS_FAILED], HERE, "over", ["Finish"]),
    "it won't leave": ([OPEN0, PS, DONE, ev.LeaveDue()], HERE, "over", ["Finish"]),
    "it had left before": ([OPEN0, PS, PS_ENDED, DONE], HERE, "over", ["Finish"]),
    "a service of ours": ([OPEN1, SERVER, ended(R0), DONE], HERE, "over", ["Finish"]),
    "a service of ours goes while another leaves": ([OPEN0, PS, SERVER, DONE, SERVER_GONE], HERE, "leaving", []),
    "a launcher and a service leave": (
        [MPI1, ORTED, PS, ended(R0), DONE], HERE, "leaving", ["Release", "SignalRanks", "StartTimer"]),
    "the launcher was first": ([MPI1, ORTED, PS, ended(R0), DONE, ORTED_GONE], HERE, "leaving", []),
    "the service was last": ([MPI1, ORTED, PS, ended(R0), DONE, ORTED_GONE, PS_FAILED], HERE, "over", ["Finish"]),
    "a service that a stop has signalled has its timer": (
        [OPEN1, PS, ev.StopAsked(15), ended(R0), DONE], HERE, "leaving", []),
    "it ends within it": ([OPEN1, PS, ev.StopAsked(15), ended(R0), DONE, PS_FAILED], HERE, "over", ["Finish"]),
    "it doesn't": ([OPEN1, PS, ev.StopAsked(15), ended(R0), DONE, ev.LeaveDue()], HERE, "over", ["Finish"]),
    "finish: services are signalled when all hosts are done": (
        [OPEN1, PS, peers.JobFailed(THEIRS), ended(R0), DONE], FINISH, "leaving", ["SignalRanks", "StartTimer"]),
}  # fmt: skip


@pytest.mark.parametrize("name", HISTORIES)
def test_history(name: str) -> None:
    check(HISTORIES[name])


@pytest.mark.parametrize(
    ("history", "seconds"),
    [
        (RELEASED, LAUNCHER_SECONDS),
        ([MPI1, ORTED, ended(R0), DONE], MPI_SECONDS),
        ([OPEN0, PS, DONE], SERVICE_SECONDS),
        ([MPI1, ORTED, PS, ended(R0), DONE], MPI_SECONDS),
    ],
)
def test_how_long_a_farewell_may_take(history: list[ev.Event], seconds: float) -> None:
    assert timers(play(history)[1]) == [seconds]


def test_under_finish_services_have_a_failures_time() -> None:
    _, actions = play([OPEN1, PS, peers.JobFailed(THEIRS), ended(R0), DONE], FINISH)
    assert timers(actions) == [FAILURE_GRACE]
