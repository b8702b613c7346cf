"""Failures on their way between hosts: what is sent arrives, and garbage is a ValueError."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from musterpoint import exit_codes
from musterpoint.peers import Failure, Tally, lost_host

BOOM = Failure("algo-2", 7, "user", "user", "RuntimeError: boom", 3, 1, None, 1700000000.5)

NUMBERS = st.none() | st.integers(0, 2**40)
FAILURES = st.builds(
    Failure, host=st.text(), code=st.integers(1, 255), cause=st.text(), kind=st.text(), reason=st.text(),
    rank=NUMBERS, local_rank=NUMBERS, signal=NUMBERS, at=st.floats(0, 1e12) | st.integers(0, 10**12),
)  # fmt: skip
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(FAILURES)
def test_it_survives_the_wire(failure: Failure) -> None:
    assert Failure.from_wire(json.loads(json.dumps(failure._asdict()))) == failure


def test_unknown_keys_are_dropped_and_the_rest_has_defaults() -> None:
    sent = {"host": "a", "code": 1, "cause": "user", "kind": "user", "reason": "r", "colour": "red"}
    assert Failure.from_wire(sent) == Failure("a", 1, "user", "user", "r")


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"host": 1}, "host"), ({"code": "7"}, "code"), ({"code": True}, "code"), ({"code": 1.0}, "code"),
    ({"code": 0}, "code"), ({"code": 256}, "code"), ({"code": -9}, "code"), ({"cause": None}, "cause"),
    ({"kind": []}, "kind"), ({"reason": b"x"}, "reason"), ({"rank": "0"}, "rank"), ({"local_rank": 0.5}, "local_rank"),
    ({"signal": {}}, "signal"), ({"at": None}, "at"), ({"at": "now"}, "at"), ({"second_hand": 1}, "second_hand"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "key"), WRONG)
def test_a_wrong_type_or_code_is_named(change: dict[str, Any], key: str) -> None:
    with pytest.raises(ValueError, match=rf"\b{key}\b"):
        Failure.from_wire({**BOOM._asdict(), **change})


@pytest.mark.parametrize("missing", ["host", "code", "cause", "kind", "reason"])
def test_a_key_that_is_missing_is_named(missing: str) -> None:
    sent = BOOM._asdict()
    del sent[missing]
    with pytest.raises(ValueError, match=missing):
        Failure.from_wire(sent)


@given(JSON | st.fixed_dictionaries({}, optional=dict.fromkeys(Failure._fields, JSON)))
def test_garbage_is_a_value_error_and_nothing_else(garbage: Any) -> None:
    try:
        failure = Failure.from_wire(garbage)
    except ValueError:
        return
    assert 1 <= failure.code <= 255
    assert isinstance(failure.reason, str)


def test_a_lost_host_is_76_with_its_name_and_how_it_was_seen() -> None:
    failure = lost_host("algo-3", "connection refused", 5.0)
    assert (failure.host, failure.code, failure.cause, failure.kind) == ("algo-3", 76, "host", "infra")
    assert failure.code == exit_codes.HOST_LOST
    assert failure.reason == "muster: host algo-3 was lost: connection refused"
    assert (failure.rank, failure.at) == (None, 5.0)


def who(rank: int, words: str = "", code: int = 1, kind: str = "user") -> Failure:
    reason = f"{words}rank {rank} (local rank {rank % 2}) on algo-{rank // 2}, exit code {code}"
    return Failure(f"algo-{rank // 2}", code, "user", kind, reason, rank, rank % 2, at=100.0 + rank)


USAGE = "train.py: error: unrecognized arguments: --foo\n"
ALIKE = [
    ("the same words", who(3, USAGE, 2), who(0, USAGE, 2), Tally(same=1)),
    ("the same but for numbers", who(11, "KeyError: 'shard-9'\n"), who(0, "KeyError: 'shard-10'\n"), Tally(same=1)),
    ("no words, the same code", who(11, code=7), who(0, code=7), Tally(same=1)),
    ("no words, another code", who(3, code=8), who(0, code=7), Tally(other=1)),
    ("the same words, another code", who(3, USAGE, 2), who(0, USAGE, 1), Tally(other=1)),
    ("other words", who(3, "OSError: disk\n"), who(0, USAGE), Tally(other=1)),
    ("an echo", who(3, "Connection closed by peer\n", kind="peer"), who(0, USAGE), Tally(lost=1)),
    ("an echo of an echo", who(3, "Connection closed by peer\n", kind="peer"),
     who(0, "Connection closed by peer\n", kind="peer"), Tally(same=1)),
    ("the first itself", who(0, USAGE), who(0, USAGE), Tally()),
    ("the first itself, its words cut on the way", who(0, USAGE), who(0, USAGE[:9]), Tally()),
]  # fmt: skip


@pytest.mark.parametrize(("name", "failure", "first", "tally"), ALIKE, ids=[row[0] for row in ALIKE])
def test_what_a_failure_is_beside_the_first(name: str, failure: Failure, first: Failure, tally: Tally) -> None:
    assert Tally.of([failure], first) == tally


def test_tallies_add_up() -> None:
    assert Tally(1, 2, 3).plus(Tally(10, 20, 30)) == Tally(11, 22, 33)
    assert Tally(11, 22, 33).total == 66
