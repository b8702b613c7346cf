"""The decision: which events open and end a job, fail and stop it, and what nothing follows from."""

from __future__ import annotations

from typing import get_args

import pytest

from musterpoint.base.failure import Failure, Secondary
from musterpoint.base.stop_budget import FAILURE_GRACE
from musterpoint.core.channel import peers
from musterpoint.core.channel.topics.ended_groups import DISTRIBUTION
from musterpoint.core.supervise import events as ev
from musterpoint.core.supervise import policy, supervisor
from musterpoint.core.supervise.policy import LATE_SECONDS, LAUNCHER_SECONDS, MPI_SECONDS, SERVICE_SECONDS, decide
from musterpoint.core.supervise.state import Rules, code_of
from musterpoint.core.supervise.watcher import KINDS

from .history import (
    BOOM,
    FINISH,
    HERE,
    LAUNCHER,
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

DONE, STOPPED = peers.AllDone(), peers.AllDone(stopped=True)
LOST = peers.PeerLost("algo-2", "killed")
TERM = ev.StopAsked(15)
RELEASED = [TORCHRUN2, TORCHRUN, ended(R0), ended(R1), DONE]
WAITING = [OPEN1, ended(R0)]
GROUP_ENDED = peers.GroupEnded(DISTRIBUTION)
INT, STOP_ALL = ev.StopAsked(2), peers.StopAll("algo-2", 15)

HISTORIES: History = {
    # what opens a job
    "ranks are alive": ([OPEN2], HERE, "running", []),
    "one of two ranks ends": ([OPEN2, ended(R0)], HERE, "running", []),
    "a host without ranks is done at once": ([OPEN0], HERE, "waiting", ["ReportDone"]),
    "a peer is silent": ([OPEN1, peers.PeerSilent("algo-2", 15.0)], HERE, "running", []),
    "a peer is back": ([OPEN1, peers.PeerBack("algo-2")], HERE, "running", []),
    # its end: the last rank of a host, the last host, and what takes its leave then
    "the last rank ends": ([OPEN2, ended(R0), ended(R1)], HERE, "waiting", ["ReportDone"]),
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
        ["StartTimer", "ReportDone"]),
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
        [OPEN1, peers.JobFailed(THEIRS), ended(R0)], FINISH, "waiting", ["ReportDone"]),
    "outside: the group is done": ([OPEN1, GROUP_ENDED], OUTSIDE, "ending",
                                   ["SignalRanks", "StartTimer"]),
    "outside: signalled and ended": (
        [OPEN1, GROUP_ENDED, ended(R0)], OUTSIDE, "waiting", ["StartTimer", "ReportDone"]),
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
    # failures: what counts as one, what is reported, what the root cause means here
    "a rank fails": ([OPEN2, ended(R0, BOOM)], HERE, "judging", ["StartTimer", "ReportFailure"]),
    "our failure is the root cause": (
        [OPEN2, ended(R0, BOOM), peers.JobFailed(BOOM)], HERE, "ending", ["SignalRanks", "StartTimer"]),
    "the only rank failed": (
        [OPEN1, ended(R0, BOOM), peers.JobFailed(BOOM)], HERE, "waiting",
        ["StartTimer", "ReportDone"]),
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
    "services are signalled with the ranks": (
        [OPEN1, PS, peers.JobFailed(THEIRS)], HERE, "ending", ["SignalRanks", "StartTimer"]),
    "services are signalled where the ranks have ended": (
        [OPEN1, PS, ended(R0), peers.JobFailed(THEIRS)], HERE, "waiting", ["SignalRanks", "StartTimer"]),
    "services are signalled where the only rank failed": (
        [OPEN1, PS, ended(R0, BOOM), peers.JobFailed(BOOM)], HERE, "waiting",
        ["SignalRanks", "StartTimer", "ReportDone"]),
    "a wrong world": ([TORCHRUN2, ev.Broken(LAUNCHER)], HERE, "judging", ["StartTimer", "ReportFailure"]),
    "a rank where none was planned": ([OPEN0, ev.Broken(LAUNCHER)], HERE, "waiting", ["ReportFailure"]),
    "a wrong world in a stop": ([TORCHRUN2, ev.StopAsked(15), ev.Broken(LAUNCHER)], HERE, "ending", []),
    "finish: others go on": ([OPEN2, ended(R0, BOOM)], FINISH, "running", []),
    "finish: another host's failure doesn't end ours": ([OPEN2, peers.JobFailed(THEIRS)], FINISH, "running", []),
    "finish: another's failure after ours ended": ([*WAITING, peers.JobFailed(THEIRS)], FINISH, "waiting", []),
    "a lost peer": ([OPEN1, LOST], HERE, "judging", ["StartTimer", "ReportFailure"]),
    "a lost peer under script": ([OPEN1, LOST], SCRIPT, "running", []),
    "a lost peer after our end": ([*WAITING, LOST], HERE, "waiting", ["ReportFailure"]),
    # stops: asked for here or elsewhere, once or impatiently, before and after other ends
    "SIGTERM here": ([OPEN2, TERM], HERE, "ending", ["ReportStop", "SignalRanks", "StartTimer"]),
    "SIGTERM twice": ([OPEN2, TERM, TERM], HERE, "ending", []),
    "Ctrl-C twice": ([OPEN2, INT, INT], HERE, "ending", ["KillTree"]),
    "Ctrl-C after another signal": ([OPEN2, TERM, INT], HERE, "ending", ["KillTree"]),
    "Ctrl-C thrice": ([OPEN2, INT, INT, INT], HERE, "ending", []),
    "Ctrl-C here and elsewhere": ([OPEN2, STOP_ALL, INT], HERE, "ending", []),
    "Ctrl-C elsewhere, then twice here": ([OPEN2, STOP_ALL, INT, INT], HERE, "ending", ["KillTree"]),
    "Ctrl-C when a failure is ending the ranks": ([OPEN2, peers.JobFailed(THEIRS), INT], HERE, "ending", []),
    "and again": ([OPEN2, peers.JobFailed(THEIRS), INT, INT], HERE, "ending", ["KillTree"]),
    "Ctrl-C when --outside stop is ending the program": (
        [OPEN1, GROUP_ENDED, INT], OUTSIDE, "ending", ["ReportStop", "SignalRanks", "StartTimer"]),
    "and once more": ([OPEN1, GROUP_ENDED, INT, INT], OUTSIDE, "ending", ["KillTree"]),
    "SIGTERM elsewhere": ([OPEN2, peers.StopAll("algo-2", 15)], HERE, "ending", ["SignalRanks", "StartTimer"]),
    "SIGTERM here and elsewhere": ([OPEN2, TERM, peers.StopAll("algo-2", 15)], HERE, "ending", []),
    "SIGTERM while a root cause is awaited": (
        [OPEN2, ended(R0, BOOM), TERM], HERE, "ending", ["ReportStop", "SignalRanks", "StartTimer"]),
    "SIGTERM while a root cause is awaited, all ranks ended": (
        [OPEN1, ended(R0, BOOM), TERM], HERE, "waiting", ["ReportStop", "StartTimer", "ReportDone"]),
    "SIGTERM when a root cause is known": ([OPEN1, ended(R0), peers.JobFailed(THEIRS), TERM], HERE, "waiting",
                                           ["ReportStop"]),
    "SIGTERM after our ranks ended": ([OPEN1, ended(R0), TERM], HERE, "waiting", ["ReportStop", "StartTimer"]),
    "a stop, then the ranks end": ([OPEN1, TERM, ended(R0)], HERE, "waiting",
                                   ["StartTimer", "ReportDone"]),
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


def test_what_runs_beside_the_ranks_is_known() -> None:
    state, _ = play([TORCHRUN2, TORCHRUN, PS, SERVER, ev.ServiceOrLauncherStarted("mpirun", "launcher")])
    assert state.launchers == {"torchrun", "mpirun"}
    assert state.services == {"ps 0"}, "others are ended, not signalled"
    assert (state.foreign, state.mpi) == (True, False)
    state, _ = play([MPI1, ORTED])
    assert (state.foreign, state.mpi) == (True, True)


def test_later_failures_are_counted() -> None:
    late = ended(R1, BOOM._replace(rank=1))
    state, _ = play([OPEN2, ended(R0, BOOM), late, peers.JobFailed(THEIRS, secondary=Secondary(0, 1))])
    assert state.root_cause == THEIRS
    assert state.secondary == Secondary(other=2)  # both of ours; the leader knew of one
    state, _ = decide(state, ended(9), HERE)
    for event in (ended(R1), ended(R0), peers.AllDone(Secondary(1, 1, 3))):
        state, _ = decide(state, event, HERE)
    assert state.secondary == Secondary(1, 1, 3)  # what all hosts counted together


def test_ranks_that_were_cut_short_are_counted_where_they_had_failed_the_same_way() -> None:
    same = BOOM._replace(code=1, rank=1, local_rank=1)
    cases = (
        (same, Secondary(same=1)),
        (same._replace(reason="KeyError: 'x'"), Secondary()),
        (BOOM._replace(at=7.0), Secondary()),  # the first one itself, which was on its way out
    )
    for cut_short, counted in cases:
        state, _ = play([OPEN2, ended(R0, BOOM), peers.JobFailed(BOOM), ev.RankEnded(R1, None, cut_short)])
        assert (state.phase, state.secondary) == ("waiting", counted)


def test_a_lost_connection_gives_way_to_a_rank_that_ended_without_a_word() -> None:
    """The rank that was killed is seen after the one that noticed it."""
    noticed = BOOM._replace(lost_connection=True, inside="gather")
    killed = BOOM._replace(rank=1, signal=9)
    raised = killed._replace(signal=None, inside="step")
    for second, reported in ((killed, killed), (raised, noticed)):
        state, _ = play([OPEN2, ended(R0, noticed), ended(R1, second)])
        assert state.failure == reported


def test_nothing_happens_after_the_end() -> None:
    state, _ = play([OPEN1, ended(R0), peers.AllDone()])
    for event in (ev.StopAsked(15), peers.JobFailed(THEIRS), ev.LeaveDue()):
        assert decide(state, event, HERE) == (state, [])


def test_a_launcher_that_never_had_ranks_counts_for_none() -> None:
    """Every host's ended alike: that no ranks failed after the first is what the last word says."""
    inner = Failure("algo-1", 64, "muster", "user", "muster: there is no such file")
    there = inner._replace(host="algo-2")
    state, actions = play([OPEN1, ended(R0, inner), peers.JobFailed(there, Secondary(1))])
    (done,) = [action for action in actions if isinstance(action, ev.ReportDone)]
    assert (done.code, done.failures) == (64, Secondary())
    state, _ = decide(state, peers.AllDone(), HERE)
    assert state.secondary.total == 0


CODES: dict[str, tuple[list[ev.Event], Rules, int]] = {
    "all well": ([OPEN1, ended(R0), DONE], HERE, 0),
    "our failure": ([OPEN1, ended(R0, BOOM), peers.JobFailed(BOOM)], HERE, 7),
    "theirs wins": ([OPEN1, ended(R0, BOOM), peers.JobFailed(THEIRS)], HERE, 3),
    "theirs after our end": ([OPEN1, ended(R0), peers.JobFailed(THEIRS), DONE], HERE, 3),
    "stopped": ([OPEN1, TERM, ended(R0), STOPPED], HERE, 143),
    "stopped when all hosts were done": ([OPEN1, ended(R0), TERM, DONE], HERE, 0),
    "stopped, but a failure came first": ([OPEN1, TERM, peers.JobFailed(THEIRS)], HERE, 3),
    "stopped after our end, but a failure came first": (
        [OPEN1, ended(R0), TERM, peers.JobFailed(THEIRS), DONE], HERE, 3),
    "a stop comes first": ([OPEN2, ended(R0, SYMPTOM), peers.StopAll("algo-2", 15)], HERE, 143),
    "another signal came first": ([OPEN1, ev.StopAsked(2), peers.StopAll("algo-2", 15)], HERE, 143),
    "a stop after a failure": ([OPEN2, ended(R0), ended(R1), peers.JobFailed(THEIRS), TERM], HERE, 3),
    "a stop while the others finish": (
        [OPEN2, ended(R0, BOOM), ended(R1), peers.JobFailed(BOOM), TERM, STOPPED], FINISH, 143),
    "stopped, and then a failure, while the others finish": ([OPEN1, TERM, peers.JobFailed(THEIRS)], FINISH, 143),
    "a failure when all hosts were done": ([OPEN1, ended(R0), ev.Broken(BOOM), DONE], HERE, 0),
    "outside, signalled to end, then stopped": (
        [OPEN1, GROUP_ENDED, peers.StopAll("algo-2", 15), ended(R0), STOPPED], OUTSIDE, 143),
    "outside, signalled to end, then a failure": (
        [OPEN1, GROUP_ENDED, ended(R0), peers.JobFailed(THEIRS), DONE], OUTSIDE, 3),
    "stopped, other code": ([OPEN1, TERM, ended(R0)], HERE._replace(stop_code=0), 0),
    "interrupted": ([OPEN1, ev.StopAsked(2), ended(R0)], HERE, 130),
    "stop while a root cause is awaited": ([OPEN1, ended(R0, BOOM), TERM, peers.JobFailed(BOOM)], HERE, 7),
    "outside, signalled to end": ([OPEN1, GROUP_ENDED, ended(R0), DONE], OUTSIDE, 0),
    "a host lost after our end": ([OPEN1, ended(R0), LOST, DONE], HERE, 76),
    "a symptom after our end": ([OPEN1, ended(R0), ev.Broken(SYMPTOM), DONE], HERE, 0),
    "a lost host": ([OPEN1, LOST, ev.RootCauseDue()], HERE, 76),
}  # fmt: skip


@pytest.mark.parametrize("name", CODES)
def test_code(name: str) -> None:
    history, rules, code = CODES[name]
    state, _ = play(history, rules)
    assert code_of(state, rules) == code


def test_every_event_has_one_handler() -> None:
    between_attempts = {peers.TopicEvent}
    everything = {*get_args(ev.LocalEvent), *get_args(peers.PeerEvent)} - between_attempts
    others = {*supervisor._FOR_DAEMONS, *(event for kind in KINDS for event in kind.hears)}
    assert set(policy._HANDLERS) | others == everything
    assert not set(policy._HANDLERS) & others


def test_the_supervisor_can_carry_out_every_action() -> None:
    assert set(supervisor._ACTS) == set(get_args(ev.Action))


@pytest.mark.parametrize(
    ("history", "rules", "seconds"),
    [
        (RELEASED, HERE, LAUNCHER_SECONDS),
        ([MPI1, ORTED, ended(R0), DONE], HERE, MPI_SECONDS),
        ([OPEN0, PS, DONE], HERE, SERVICE_SECONDS),
        ([MPI1, ORTED, PS, ended(R0), DONE], HERE, MPI_SECONDS),
        ([OPEN1, PS, peers.JobFailed(THEIRS), ended(R0), DONE], FINISH, FAILURE_GRACE),
        ([OPEN1, peers.JobFailed(THEIRS)], HERE, FAILURE_GRACE),
        ([OPEN1, TERM], HERE, HERE.grace),
        ([OPEN0, PS, TERM], HERE, HERE.grace + LATE_SECONDS),
    ],
)
def test_how_long_an_end_may_take(history: list[ev.Event], rules: Rules, seconds: float) -> None:
    assert timers(play(history, rules)[1]) == [seconds]


def test_the_cause_takes_the_symptoms_place() -> None:
    state, actions = play([OPEN2, ended(R1, SYMPTOM), ended(R0, BOOM)])
    assert [action.failure for action in actions if isinstance(action, ev.ReportFailure)] == [BOOM]
    assert (state.failure, state.secondary, state.failed) == (BOOM, Secondary(lost=1), (SYMPTOM, BOOM))


@pytest.mark.parametrize("stop", [TERM, ev.StopAsked(2), peers.StopAll("algo-2", 15)])
def test_what_fails_while_it_stops_is_named(stop: ev.Event) -> None:
    state, actions = play([OPEN2, stop, ended(R0, BOOM)])
    assert (state.spoilt, state.secondary.total) == (BOOM, 0)
    assert actions == [ev.Say("warning: rank 0 failed while it was stopping: ValueError: boom")]
    state, _ = play([OPEN2, stop, ended(R0, BOOM), ended(R1, THEIRS)])
    assert state.spoilt == BOOM, "the first"
    state, actions = play([OPEN2, stop, ended(R0, SYMPTOM)])
    assert (state.spoilt, actions) == (None, []), "that others have left is no failure to stop"


@pytest.mark.parametrize(("signal", "sent"), [(15, 10), (2, 2)])
def test_which_signal_is_sent(signal: int, sent: int) -> None:
    """The one of the settings; what a person types is passed on."""
    for history in ([OPEN1, ev.StopAsked(signal)], [OPEN0, PS, ev.StopAsked(signal)]):
        _, actions = play(history, HERE._replace(stop_signal=10))
        assert [action.signal for action in actions if isinstance(action, ev.SignalRanks)] == [sent]
