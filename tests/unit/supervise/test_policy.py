"""The decision as a whole: which events open and end a job, and what nothing follows from."""

from __future__ import annotations

import pytest

from musterpoint.channel import peers
from musterpoint.failure import Failure, Secondary
from musterpoint.supervise import events as ev
from musterpoint.supervise.policy import decide
from musterpoint.supervise.state import State

from .history import (
    BOOM,
    HERE,
    MPI1,
    OPEN0,
    OPEN1,
    OPEN2,
    ORTED,
    PS,
    R0,
    R1,
    SERVER,
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
    "a host without ranks is done at once": ([OPEN0], HERE, "waiting", ["TellArrived", "TellDone"]),
    "a handed-over session without ranks here has ended here": (
        [OPEN1, ev.SessionOpened(1, ())], HERE, "running", ["TellArrived"]),
    "a peer is silent": ([OPEN1, peers.PeerSilent("algo-2", 15.0)], HERE, "running", []),
    "a peer is back": ([OPEN1, peers.PeerBack("algo-2")], HERE, "running", []),
}  # fmt: skip


@pytest.mark.parametrize("name", HISTORIES)
def test_history(name: str) -> None:
    check(HISTORIES[name])


def test_what_runs_beside_the_ranks_is_known() -> None:
    state, _ = play([TORCHRUN2, TORCHRUN, PS, SERVER, ev.UnrankedStarted(1, "mpirun", "launcher")])
    assert state.launchers == {(0, "torchrun"), (1, "mpirun")}
    assert state.services == {(0, "ps 0")}, "others are ended, not told"
    assert (state.foreign, state.daemons) == ({0}, frozenset())
    state, _ = play([MPI1, ORTED])
    assert (state.foreign, state.daemons) == ({0}, {0})


def test_done_is_said_once() -> None:
    said = 0
    state = State()
    for event in [OPEN1, ended(R0), ev.StopAsked(15), peers.JobFailed(THEIRS), peers.AllDone()]:
        state, actions = decide(state, event, HERE)
        said += names(actions).count("TellDone")
    assert said == 1


def test_later_failures_are_counted() -> None:
    late = ended(R1, BOOM._replace(rank=1))
    state, _ = play([OPEN2, ended(R0, BOOM), late, peers.JobFailed(THEIRS, secondary=Secondary(0, 1))])
    assert state.verdict == THEIRS
    assert state.secondary == Secondary(other=2)  # both of ours; the leader knew of one
    state, _ = decide(state, ended((0, 9)), HERE)
    for event in (ended(R1), ended(R0), peers.AllDone(Secondary(1, 1, 3))):
        state, _ = decide(state, event, HERE)
    assert state.secondary == Secondary(1, 1, 3)  # what all hosts counted together


def test_nothing_happens_after_the_end() -> None:
    state, _ = play([OPEN1, ended(R0), peers.AllDone()])
    for event in (ev.StopAsked(15), peers.JobFailed(THEIRS), ev.LeaveDue()):
        assert decide(state, event, HERE) == (state, [])


def test_a_launcher_that_never_had_ranks_counts_for_none() -> None:
    """Every host's ended alike: that no ranks failed after the first is what the last word says."""
    inner = Failure("algo-1", 64, "muster", "user", "muster: there is no such file")
    there = inner._replace(host="algo-2")
    state, actions = play([OPEN1, ended(R0, inner), peers.JobFailed(there, Secondary(1))])
    (done,) = [action for action in actions if isinstance(action, ev.TellDone)]
    assert (done.code, done.failures) == (64, Secondary())
    state, _ = decide(state, peers.AllDone(), HERE)
    assert state.secondary.total == 0
