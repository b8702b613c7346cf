"""Stops: asked for here or elsewhere, once or impatiently, before and after other ends."""

from __future__ import annotations

import pytest

from musterpoint.core.channel import peers
from musterpoint.core.supervise import events as ev
from musterpoint.core.supervise.policy import LATE_SECONDS

from .history import (
    BOOM,
    HERE,
    OPEN0,
    OPEN1,
    OPEN2,
    PS,
    R0,
    R1,
    SERVER,
    SYMPTOM,
    THEIRS,
    History,
    check,
    ended,
    play,
    timers,
)

TERM = ev.StopAsked(15)

HISTORIES: History = {
    "SIGTERM here": ([OPEN2, TERM], HERE, "ending", ["ReportStop", "SignalRanks", "StartTimer"]),
    "SIGTERM twice": ([OPEN2, TERM, TERM], HERE, "ending", []),
    "Ctrl-C twice": ([OPEN2, ev.StopAsked(2), ev.StopAsked(2)], HERE, "ending", ["KillTree"]),
    "SIGTERM elsewhere": ([OPEN2, peers.StopAll("algo-2", 15)], HERE, "ending", ["SignalRanks", "StartTimer"]),
    "SIGTERM here and elsewhere": ([OPEN2, TERM, peers.StopAll("algo-2", 15)], HERE, "ending", []),
    "SIGTERM while a root cause is awaited": (
        [OPEN2, ended(R0, BOOM), TERM], HERE, "ending", ["ReportStop", "SignalRanks", "StartTimer"]),
    "SIGTERM while a root cause is awaited, all ranks ended": (
        [OPEN1, ended(R0, BOOM), TERM], HERE, "waiting", ["ReportStop", "StartTimer", "ReportArrival", "ReportDone"]),
    "SIGTERM when a root cause is known": ([OPEN1, ended(R0), peers.JobFailed(THEIRS), TERM], HERE, "waiting",
                                           ["ReportStop"]),
    "SIGTERM after our ranks ended": ([OPEN1, ended(R0), TERM], HERE, "waiting", ["ReportStop", "StartTimer"]),
    "a stop, then the ranks end": ([OPEN1, TERM, ended(R0)], HERE, "waiting",
                                   ["StartTimer", "ReportArrival", "ReportDone"]),
    "a failure during a stop is none": ([OPEN2, TERM, ended(R0, BOOM)], HERE, "ending", []),
    "a root cause that came before a stop": ([OPEN2, TERM, peers.JobFailed(THEIRS)], HERE, "ending", []),
    "services of the user's are signalled where ranks have ended": (
        [OPEN1, PS, ended(R0), TERM], HERE, "waiting", ["ReportStop", "SignalRanks", "StartTimer"]),
    "and where there never were any": (
        [OPEN0, PS, peers.StopAll("algo-2", 15)], HERE, "waiting", ["SignalRanks", "StartTimer"]),
    "services of ours aren't": ([OPEN0, SERVER, TERM], HERE, "waiting", ["ReportStop", "StartTimer"]),
}  # fmt: skip


@pytest.mark.parametrize("name", HISTORIES)
def test_history(name: str) -> None:
    check(HISTORIES[name])


@pytest.mark.parametrize("stop", [TERM, ev.StopAsked(2), peers.StopAll("algo-2", 15)])
def test_what_fails_while_it_stops_is_named(stop: ev.Event) -> None:
    state, actions = play([OPEN2, stop, ended(R0, BOOM)])
    assert (state.spoilt, state.secondary.total) == (BOOM, 0)
    assert actions == [ev.Say("warning: rank 0 failed while it was stopping: ValueError: boom")]
    state, _ = play([OPEN2, stop, ended(R0, BOOM), ended(R1, THEIRS)])
    assert state.spoilt == BOOM, "the first"


def test_that_others_have_left_is_no_failure_to_stop() -> None:
    state, actions = play([OPEN2, TERM, ended(R0, SYMPTOM)])
    assert (state.spoilt, actions) == (None, [])


@pytest.mark.parametrize(("signal", "sent"), [(15, 10), (2, 2)])
def test_which_signal_is_sent(signal: int, sent: int) -> None:
    """The one of the settings; what a person types is passed on."""
    for history in ([OPEN1, ev.StopAsked(signal)], [OPEN0, PS, ev.StopAsked(signal)]):
        _, actions = play(history, HERE._replace(stop_signal=10))
        assert [action.signal for action in actions if isinstance(action, ev.SignalRanks)] == [sent]


def test_services_have_the_whole_grace() -> None:
    _, actions = play([OPEN0, PS, TERM])
    assert timers(actions) == [HERE.grace + LATE_SECONDS]
