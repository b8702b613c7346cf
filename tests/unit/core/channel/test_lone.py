from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from musterpoint.base.failure import Failure, Secondary
from musterpoint.base.loop import Loop
from musterpoint.core.channel.lone import LoneChannel
from musterpoint.core.channel.peers import AllDone, GroupEnded, JobFailed, PeerEvent, Stalled
from musterpoint.core.channel.topics.ended_groups import DISTRIBUTION
from musterpoint.core.channel.topics.raised_ranks import TOPIC, RaisedAsked

from ...meeting import spoken


def test_what_a_lone_host_says_comes_back() -> None:
    loop = Loop()
    peers = LoneChannel(loop)
    heard: list[PeerEvent] = []
    peers.listen(heard.append)
    boom, later = (Failure("algo-1", code, "user", "user", "boom") for code in (7, 8))
    spoken(peers).stalled("all wait")
    peers.failed(boom)
    peers.failed(later)
    peers.stopping(15)
    peers.done(7)
    loop.turn(0)
    assert heard == [Stalled("all wait"), JobFailed(boom), GroupEnded(DISTRIBUTION), AllDone(stopped=True)]
    loop.close()


def test_a_lone_host_asks_nobody_and_is_asked_by_nobody() -> None:
    loop = Loop()
    peers = LoneChannel(loop)
    with pytest.raises(ValueError, match="'algo-2'"):
        spoken(peers).start("algo-2", 7, ("orted",))
    for answer in (lambda: spoken(peers).started(7), lambda: spoken(peers).start_ended(7, 0)):
        with pytest.raises(RuntimeError):
            answer()
    loop.close()


def judged(*failures: Failure, late: tuple[str, ...] = ()) -> tuple[list[PeerEvent], int]:
    """What a lone host hears after it told these failures, and after how many seconds of a clock of our own."""
    seconds = 0
    loop = Loop(lambda: seconds)
    peers = LoneChannel(loop)
    heard: list[PeerEvent] = []

    def hear(event: PeerEvent) -> None:
        heard.append(event)
        if isinstance(event, RaisedAsked):
            peers.topic(TOPIC).late(late)

    peers.listen(hear)
    for failure in failures:
        peers.failed(failure)
    loop.turn(0)
    while not any(isinstance(event, JobFailed) for event in heard):
        seconds += 1
        loop.turn(0)
    peers.close()
    loop.close()
    return heard, seconds


SYMPTOM = Failure("algo-1", 72, "muster", "peer", "mpirun ended")
CAUSE = Failure("algo-1", 7, "user", "user", "boom")


def test_a_symptom_waits_for_its_cause() -> None:
    heard, took = judged(SYMPTOM, CAUSE)
    assert heard == [JobFailed(CAUSE, Secondary(lost=1))]
    assert took == 0


def test_a_symptom_stands_where_no_cause_follows() -> None:
    heard, took = judged(SYMPTOM)
    assert heard == [RaisedAsked(), JobFailed(SYMPTOM)]
    assert took == 3, "the clock has whole seconds"
    heard, took = judged(SYMPTOM, late=("rank 1 was not in the call: asleep",))
    reason = f"{SYMPTOM.reason}\nrank 1 was not in the call: asleep"
    assert (heard[1:], took) == ([JobFailed(SYMPTOM._replace(reason=reason))], 3)


def test_events_wait_for_a_listener_and_never_come_from_within_a_call() -> None:
    loop = Loop()
    peers = LoneChannel(loop)
    heard: list[PeerEvent] = []
    spoken(peers).stalled("one")
    loop.turn(0)
    peers.listen(heard.append)
    assert heard == []
    loop.turn(0)
    assert heard == [Stalled("one")]
    peers.done(0)
    assert heard == [Stalled("one")]
    loop.turn(0)
    assert heard == [Stalled("one"), GroupEnded(DISTRIBUTION), AllDone()]
    peers.done(0)
    peers.close()
    loop.turn(0)
    assert heard == [Stalled("one"), GroupEnded(DISTRIBUTION), AllDone()]
    loop.close()


BOOM = Failure("algo-2", 7, "user", "user", "RuntimeError: boom", 3, 1, None, 1700000000.5)

WORDS = st.sampled_from(["user", "muster", "platform", "host", "oom", "peer", "infra", "stopped"])
REASONS = st.text(st.characters(categories=["L", "N", "P", "S", "Zs"]) | st.sampled_from("\n\t"), max_size=200)
FAILURES = st.builds(
    Failure, host=st.from_regex(r"[a-z0-9-]{1,20}", fullmatch=True), code=st.integers(1, 255), cause=WORDS, kind=WORDS,
    reason=REASONS, rank=st.none() | st.integers(0, 2**32), local_rank=st.none() | st.integers(0, 65535),
    signal=st.none() | st.integers(0, 127), at=st.floats(0, 1e12) | st.integers(0, 10**12),
    inside=st.from_regex(r"[a-zA-Z_<>., 0-9]{0,80}", fullmatch=True),
    ended=st.lists(st.integers(0, 2**20), max_size=9).map(tuple),
    role=st.from_regex(r"[a-z0-9-]{0,40}", fullmatch=True),
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
    ({"second_hand": 1}, "second_hand"), ({"signal": {}}, "signal"),
    ({"at": None}, "at"), ({"at": "now"}, "at"), ({"at": float("nan")}, "at"),
    ({"at": float("inf")}, "at"), ({"at": 10**400}, "at"), ({"at": -1}, "at"), ({"rank": -1}, "rank"),
    ({"rank": 10**400}, "rank"), ({"local_rank": -1}, "local_rank"), ({"signal": 128}, "signal"),
    ({"signal": -9}, "signal"), ({"host": "a b"}, "host"), ({"host": "\x1b[2J"}, "host"), ({"host": ""}, "host"),
    ({"host": "x" * 254}, "host"), ({"cause": "\x1b"}, "cause"), ({"kind": "x" * 99}, "kind"), ({"kind": ""}, "kind"),
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
    assert len(failure.reason.encode()) <= 900


@pytest.mark.parametrize("reason", ["x" * 900_000, "\u00e9" * 900, "\ud800" * 900, "\x1b" * 900, "\U0001f600" * 400])
def test_a_reason_is_cut(reason: str) -> None:
    found = Failure.from_wire({**BOOM._asdict(), "reason": reason}).reason
    assert len(found.encode()) <= 900
    assert found.endswith("…")


def test_a_reason_can_not_steer_a_terminal_or_a_log() -> None:
    evil = "boom\x1b[2J\r\x85musterpoint: all is well\u2028\u202egnp\n\tat line 3"
    found = Failure.from_wire({**BOOM._asdict(), "reason": evil}).reason
    assert found == "boom\\x1b[2J\\r\\x85musterpoint: all is well\\u2028\\u202egnp\n\tat line 3"


def who(rank: int, words: str = "", code: int = 1, kind: str = "user") -> Failure:
    reason = f"{words}rank {rank} (local rank {rank % 2}) on algo-{rank // 2}, exit code {code}"
    return Failure(f"algo-{rank // 2}", code, "user", kind, reason, rank, rank % 2, at=100.0 + rank)


USAGE = "train.py: error: unrecognized arguments: --foo\n"
ALIKE = [
    ("the same words", who(3, USAGE, 2), who(0, USAGE, 2), Secondary(same=1)),
    ("the same but for numbers", who(11, "KeyError: 'shard-9'\n"), who(0, "KeyError: 'shard-10'\n"), Secondary(same=1)),
    ("no words, the same code", who(11, code=7), who(0, code=7), Secondary(same=1)),
    ("no words, another code", who(3, code=8), who(0, code=7), Secondary(other=1)),
    ("the same words, another code", who(3, USAGE, 2), who(0, USAGE, 1), Secondary(other=1)),
    ("other words", who(3, "OSError: disk\n"), who(0, USAGE), Secondary(other=1)),
    ("an echo", who(3, "Connection closed by peer\n", kind="peer"), who(0, USAGE), Secondary(lost=1)),
    ("an echo of an echo", who(3, "Connection closed by peer\n", kind="peer"),
     who(0, "Connection closed by peer\n", kind="peer"), Secondary(same=1)),
    ("the first itself", who(0, USAGE), who(0, USAGE), Secondary()),
    ("the first itself, its words cut on the way", who(0, USAGE), who(0, USAGE[:9]), Secondary()),
]  # fmt: skip


@pytest.mark.parametrize(("name", "failure", "first", "tally"), ALIKE, ids=[row[0] for row in ALIKE])
def test_what_a_failure_is_beside_the_first(name: str, failure: Failure, first: Failure, tally: Secondary) -> None:
    assert Secondary.of([failure], first) == tally
