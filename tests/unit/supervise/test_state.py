"""Codes and times, as far as a history has decided them."""

from __future__ import annotations

import pytest

from musterpoint.channel import peers
from musterpoint.supervise import events as ev
from musterpoint.supervise.state import RANKS_ENDED, Rules, State, code_of, end_of, session_of

from .history import BOOM, ECHO, HERE, OPEN1, OUTSIDE, R0, THEIRS, ended, play

CODES: dict[str, tuple[list[ev.Event], Rules, int]] = {
    "all well": ([OPEN1, ended(R0), peers.AllDone()], HERE, 0),
    "our failure": ([OPEN1, ended(R0, BOOM), peers.JobFailed(BOOM)], HERE, 7),
    "theirs wins": ([OPEN1, ended(R0, BOOM), peers.JobFailed(THEIRS)], HERE, 3),
    "theirs after our end": ([OPEN1, ended(R0), peers.JobFailed(THEIRS), peers.AllDone()], HERE, 3),
    "stopped": ([OPEN1, ev.StopAsked(15), ended(R0), peers.AllDone()], HERE, 143),
    "stopped, other code": ([OPEN1, ev.StopAsked(15), ended(R0)], HERE._replace(stop_code=0), 0),
    "interrupted": ([OPEN1, ev.StopAsked(2), ended(R0)], HERE, 130),
    "stop during a verdict": ([OPEN1, ended(R0, BOOM), ev.StopAsked(15), peers.JobFailed(BOOM)], HERE, 7),
    "outside, told to end": ([OPEN1, peers.Arrived(RANKS_ENDED), ended(R0), peers.AllDone()], OUTSIDE, 0),
    "a host lost after our end": ([OPEN1, ended(R0), peers.PeerLost("algo-2", "killed"), peers.AllDone()], HERE, 76),
    "a symptom after our end": ([OPEN1, ended(R0), ev.Broken(ECHO), peers.AllDone()], HERE, 0),
    "a lost host": ([OPEN1, peers.PeerLost("algo-2", "killed"), ev.VerdictDue()], HERE, 76),
}


@pytest.mark.parametrize("name", CODES)
def test_code(name: str) -> None:
    history, rules, code = CODES[name]
    state, _ = play(history, rules)
    assert code_of(state, rules) == code


def test_a_session_is_known_by_the_point_of_its_end() -> None:
    assert [session_of(end_of(number)) for number in (1, 12)] == [1, 12]
    assert session_of(RANKS_ENDED) == 0


@pytest.mark.parametrize(
    ("state", "attended"),
    [
        (State(), False),
        (State(launchers=frozenset({(0, "mpirun")})), True),
        (State(launchers=frozenset({(1, "mpirun")})), False),
        (State(services=frozenset({(1, "ps 0")})), True),
    ],
)
def test_what_may_still_end_by_itself(state: State, attended: bool) -> None:
    assert state.is_attended is attended
