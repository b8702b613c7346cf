"""The decision as a whole: which events open and end a job, and what nothing follows from."""

from __future__ import annotations

from typing import get_args

import pytest

from musterpoint.base.failure import Failure, Secondary
from musterpoint.core.channel import peers
from musterpoint.core.supervise import events, policy, supervisor
from musterpoint.core.supervise import events as ev
from musterpoint.core.supervise.policy import decide
from musterpoint.core.supervise.state import RANKS_ENDED, Rules, State, code_of, session_end_point, session_of_point
from musterpoint.core.supervise.watcher import KINDS

from .history import (
    BOOM,
    FINISH,
    HERE,
    MPI1,
    OPEN0,
    OPEN1,
    OPEN2,
    ORTED,
    OUTSIDE,
    PS,
    R0,
    R1,
    SERVER,
    SYMPTOM,
    THEIRS,
    TORCHRUN,
    TORCHRUN2,
    History,
    check,
    ended,
    names,
    play,
)

HISTORIES: History = {
    "ranks are alive": ([OPEN2], HERE, "running", []),
    "one of two ranks ends": ([OPEN2, ended(R0)], HERE, "running", []),
    "a host without ranks is done at once": ([OPEN0], HERE, "waiting", ["ReportArrival", "ReportDone"]),
    "a handed-over session without ranks here has ended here": (
        [OPEN1, ev.SessionOpened(1, ())], HERE, "running", ["ReportArrival"]),
    "a peer is silent": ([OPEN1, peers.PeerSilent("algo-2", 15.0)], HERE, "running", []),
    "a peer is back": ([OPEN1, peers.PeerBack("algo-2")], HERE, "running", []),
}  # fmt: skip


@pytest.mark.parametrize("name", HISTORIES)
def test_history(name: str) -> None:
    check(HISTORIES[name])


def test_what_runs_beside_the_ranks_is_known() -> None:
    state, _ = play([TORCHRUN2, TORCHRUN, PS, SERVER, ev.ServiceOrLauncherStarted(1, "mpirun", "launcher")])
    assert state.launchers == {(0, "torchrun"), (1, "mpirun")}
    assert state.services == {(0, "ps 0")}, "others are ended, not signalled"
    assert (state.foreign, state.mpi) == ({0}, frozenset())
    state, _ = play([MPI1, ORTED])
    assert (state.foreign, state.mpi) == ({0}, {0})


def test_done_is_said_once() -> None:
    said = 0
    state = State()
    for event in [OPEN1, ended(R0), ev.StopAsked(15), peers.JobFailed(THEIRS), peers.AllDone()]:
        state, actions = decide(state, event, HERE)
        said += names(actions).count("ReportDone")
    assert said == 1


def test_later_failures_are_counted() -> None:
    late = ended(R1, BOOM._replace(rank=1))
    state, _ = play([OPEN2, ended(R0, BOOM), late, peers.JobFailed(THEIRS, secondary=Secondary(0, 1))])
    assert state.root_cause == THEIRS
    assert state.secondary == Secondary(other=2)  # both of ours; the leader knew of one
    state, _ = decide(state, ended((0, 9)), HERE)
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
    "all well": ([OPEN1, ended(R0), peers.AllDone()], HERE, 0),
    "our failure": ([OPEN1, ended(R0, BOOM), peers.JobFailed(BOOM)], HERE, 7),
    "theirs wins": ([OPEN1, ended(R0, BOOM), peers.JobFailed(THEIRS)], HERE, 3),
    "theirs after our end": ([OPEN1, ended(R0), peers.JobFailed(THEIRS), peers.AllDone()], HERE, 3),
    "stopped": ([OPEN1, ev.StopAsked(15), ended(R0), peers.AllDone(stopped=True)], HERE, 143),
    "stopped when all hosts were done": ([OPEN1, ended(R0), ev.StopAsked(15), peers.AllDone()], HERE, 0),
    "stopped, but a failure came first": ([OPEN1, ev.StopAsked(15), peers.JobFailed(THEIRS)], HERE, 3),
    "stopped after our end, but a failure came first": (
        [OPEN1, ended(R0), ev.StopAsked(15), peers.JobFailed(THEIRS), peers.AllDone()],
        HERE,
        3,
    ),
    "a stop comes first": ([OPEN2, ended(R0, SYMPTOM), peers.StopAll("algo-2", 15)], HERE, 143),
    "another signal came first": ([OPEN1, ev.StopAsked(2), peers.StopAll("algo-2", 15)], HERE, 143),
    "a stop after a failure": ([OPEN2, ended(R0), ended(R1), peers.JobFailed(THEIRS), ev.StopAsked(15)], HERE, 3),
    "a stop while the others finish": (
        [OPEN2, ended(R0, BOOM), ended(R1), peers.JobFailed(BOOM), ev.StopAsked(15), peers.AllDone(stopped=True)],
        FINISH,
        143,
    ),
    "stopped, and then a failure, while the others finish": (
        [OPEN1, ev.StopAsked(15), peers.JobFailed(THEIRS)],
        FINISH,
        143,
    ),
    "a failure when all hosts were done": ([OPEN1, ended(R0), ev.Broken(BOOM), peers.AllDone()], HERE, 0),
    "outside, signalled to end, then stopped": (
        [OPEN1, peers.Arrived(RANKS_ENDED), peers.StopAll("algo-2", 15), ended(R0), peers.AllDone(stopped=True)],
        OUTSIDE,
        143,
    ),
    "outside, signalled to end, then a failure": (
        [OPEN1, peers.Arrived(RANKS_ENDED), ended(R0), peers.JobFailed(THEIRS), peers.AllDone()],
        OUTSIDE,
        3,
    ),
    "stopped, other code": ([OPEN1, ev.StopAsked(15), ended(R0)], HERE._replace(stop_code=0), 0),
    "interrupted": ([OPEN1, ev.StopAsked(2), ended(R0)], HERE, 130),
    "stop while a root cause is awaited": ([OPEN1, ended(R0, BOOM), ev.StopAsked(15), peers.JobFailed(BOOM)], HERE, 7),
    "outside, signalled to end": ([OPEN1, peers.Arrived(RANKS_ENDED), ended(R0), peers.AllDone()], OUTSIDE, 0),
    "a host lost after our end": ([OPEN1, ended(R0), peers.PeerLost("algo-2", "killed"), peers.AllDone()], HERE, 76),
    "a symptom after our end": ([OPEN1, ended(R0), ev.Broken(SYMPTOM), peers.AllDone()], HERE, 0),
    "a lost host": ([OPEN1, peers.PeerLost("algo-2", "killed"), ev.RootCauseDue()], HERE, 76),
}


@pytest.mark.parametrize("name", CODES)
def test_code(name: str) -> None:
    history, rules, code = CODES[name]
    state, _ = play(history, rules)
    assert code_of(state, rules) == code


def test_a_session_is_known_by_the_point_of_its_end() -> None:
    assert [session_of_point(session_end_point(number)) for number in (1, 12)] == [1, 12]
    assert session_of_point(RANKS_ENDED) == 0


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        (State(), False),
        (State(launchers=frozenset({(0, "mpirun")})), True),
        (State(launchers=frozenset({(1, "mpirun")})), False),
        (State(services=frozenset({(1, "ps 0")})), True),
    ],
)
def test_what_may_still_end_by_itself(state: State, expected: bool) -> None:
    assert bool(state.services or state.has_own_launcher) is expected


def test_every_event_has_one_handler() -> None:
    between_attempts = {peers.TopicEvent}
    everything = {*get_args(events.LocalEvent), *get_args(peers.PeerEvent)} - between_attempts
    others = {*supervisor._FOR_DAEMONS, *(event for kind in KINDS for event in kind.hears)}
    assert set(policy._HANDLERS) | others == everything
    assert not set(policy._HANDLERS) & others


def test_the_supervisor_can_carry_out_every_action() -> None:
    assert set(supervisor._ACTS) == set(get_args(events.Action))
