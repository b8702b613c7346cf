"""Start requests: what goes over the wire, and what the leader makes of answers and of hosts that go."""

from __future__ import annotations

import os
from typing import Any, Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from musterpoint.core.channel import codec, wire
from musterpoint.core.channel.peers import PeerEvent, StartAsked, Started, StartEnded
from musterpoint.core.channel.topics.start_requests import (
    MOST_SAID,
    DaemonEnded,
    DaemonRuns,
    LeadersStartRequests,
    WorkersStartRequests,
)

from .sides import FakeSide


def arrived(message: Any) -> Any:
    """The message as the other end gets it."""
    return codec.unpack(type(message), wire.unpack(codec.pack(message)[wire.HEAD :]))


def leader(*others: str) -> tuple[LeadersStartRequests, FakeSide]:
    side = FakeSide("leader", others)
    return LeadersStartRequests(side), side


WORD = st.binary(max_size=20).map(lambda data: os.fsdecode(data.replace(b"\0", b"")))


@given(st.integers(0, 2**53), st.lists(WORD, min_size=1, max_size=5).map(tuple))
def test_words_arrive_byte_for_byte(number: int, words: tuple[str, ...]) -> None:
    assert arrived(StartAsked(number, words)) == (number, words)


def test_all_that_a_kernel_passes_to_a_program_fits() -> None:
    words = ("\x01" * (128 * 1024 - 1),) * 16
    codec.check_bounds(StartAsked(1, words), wire.LEADER_LIMIT)
    assert arrived(StartAsked(1, words)).words == words


@pytest.mark.parametrize(
    ("number", "words", "wrong"),
    [
        (-1, ("x",), "'number' is no number from 0"),
        (2**53 + 1, ("x",), "'number' is no number from 0"),
        (1, (), "'words' is no list of 1 to 4096"),
        (1, ("x",) * 4097, "'words' is no list of 1 to 4096"),
        (1, ("x", "a\0b"), "zero byte"),
        (1, ("x" * (9 * 1024 * 1024),) * 2, "bytes, more than 16777216"),
    ],
    ids=["below 0", "too high", "no words", "too many", "zero", "too long"],
)
def test_what_the_leader_does_not_send(number: int, words: tuple[str, ...], wrong: str) -> None:
    requests, side = leader("a")
    with pytest.raises(ValueError, match=wrong):
        requests.start("a", number, words)
    assert not side.sent


@pytest.mark.parametrize("number", [None, True, 1.0, "1", -1, 2**53 + 1, [1]], ids=repr)
@pytest.mark.parametrize("kind", [StartAsked, DaemonRuns, DaemonEnded])
def test_numbers_that_are_none(kind: type[Any], number: object) -> None:
    with pytest.raises(wire.WireError, match="'number' is no number"):
        codec.unpack(kind, {"number": number, "words": ["orted"], "status": 0, "said": ""})


@pytest.mark.parametrize(
    "words",
    [None, "orted", {}, [], [1], [None], [["orted"]], ["a\0b"], ["x"] * 4097, {"0": "orted"}, True],
    ids=lambda words: repr(words)[:20],
)
def test_words_that_are_none(words: object) -> None:
    with pytest.raises(wire.WireError):
        codec.unpack(StartAsked, {"number": 1, "words": words})


@pytest.mark.parametrize(("number", "status"), [(1, -65), (1, 256), (1, 10**9), (-1, 0)])
def test_a_worker_does_not_send_what_is_no_number_or_status(number: int, status: int) -> None:
    requests = WorkersStartRequests(FakeSide("a"))
    with pytest.raises(ValueError, match="is no number from"):
        requests.start_ended(number, status)


@given(st.text(max_size=20), st.sampled_from(["x", "é", "€", "😀", "\udcff", "\0", "\ud800"]), st.integers(0, 20_000))
def test_of_what_was_said_the_end_arrives_as_whole_characters(start: str, filler: str, count: int) -> None:
    said = start + filler * count
    side = FakeSide("a")
    WorkersStartRequests(side).start_ended(1, 0, said)
    kept = arrived(side.sent[0][1]).said.encode()  # valid UTF-8, or this fails
    whole = said.encode("utf-8", "replace")
    assert whole.endswith(kept)
    assert len(kept) >= min(len(whole), MOST_SAID - 3)
    assert len(kept) <= MOST_SAID


Step = Callable[[LeadersStartRequests], None]


def ask(number: int, host: str = "a") -> Step:
    return lambda requests: requests.start(host, number, ("orted",))


def started(number: int, host: str = "a") -> Step:
    return lambda requests: requests.hear(host, DaemonRuns(number))


def ended(number: int, status: int = 0, host: str = "a") -> Step:
    return lambda requests: requests.hear(host, DaemonEnded(number, status, ""))


def gone(host: str = "a", why: str = "gone") -> Step:
    return lambda requests: requests.gone(host, why)


HISTORIES: list[tuple[str, list[Step], list[PeerEvent]]] = [
    ("asked, runs, ends", [ask(1), started(1), ended(1, 3)], [Started("a", 1), StartEnded("a", 1, 3)]),
    ("refused at once", [ask(1), ended(1, 1)], [StartEnded("a", 1, 1)]),
    ("killed", [ask(1), started(1), ended(1, -9)], [Started("a", 1), StartEnded("a", 1, -9)]),
    ("one number on two hosts", [ask(1), ask(1, "b"), ended(1, 0, "b"), started(1)],
     [StartEnded("b", 1, 0), Started("a", 1)]),
    ("in another order", [ask(1), ask(2), ended(2), started(1), ended(1)],
     [StartEnded("a", 2, 0), Started("a", 1), StartEnded("a", 1, 0)]),
    ("a number again after its end", [ask(1), ended(1), ask(1), ended(1, 2)],
     [StartEnded("a", 1, 0), StartEnded("a", 1, 2)]),
    ("gone with nothing open", [ask(1), ended(1), gone()], [StartEnded("a", 1, 0)]),
    ("gone with requests open", [ask(1), ask(2), started(2), ask(3, "b"), gone()],
     [Started("a", 2), StartEnded("a", 1, 255, "gone"), StartEnded("a", 2, 255, "gone")]),
    ("gone before it was asked", [gone(), ask(1), ask(1)],
     [StartEnded("a", 1, 255, "gone"), StartEnded("a", 1, 255, "gone")]),
    ("gone twice", [ask(1), gone(), gone("a", "later"), ask(2)],
     [StartEnded("a", 1, 255, "gone"), StartEnded("a", 2, 255, "gone")]),
]  # fmt: skip


@pytest.mark.parametrize(("name", "history", "expected"), HISTORIES, ids=[row[0] for row in HISTORIES])
def test_histories(name: str, history: list[Step], expected: list[PeerEvent]) -> None:
    requests, side = leader("a", "b")
    for step in history:
        step(requests)
    assert side.events == expected


def test_who_is_gone_is_sent_nothing() -> None:
    requests, side = leader("a", "b")
    for step in (ask(1), gone(), ask(2), ask(3, "b")):
        step(requests)
    assert side.sent == [("a", StartAsked(1, ("orted",))), ("b", StartAsked(3, ("orted",)))]


WRONG: list[tuple[str, list[Step], Step]] = [
    ("never asked", [], started(1)),
    ("never asked, and ended", [], ended(1)),
    ("asked of another", [ask(1, "b")], started(1)),
    ("runs twice", [ask(1), started(1)], started(1)),
    ("ended twice", [ask(1), ended(1)], ended(1)),
    ("runs after its end", [ask(1), ended(1)], started(1)),
    ("after it was gone", [ask(1), gone()], ended(1)),
]


@pytest.mark.parametrize(("name", "history", "last"), WRONG, ids=[row[0] for row in WRONG])
def test_answers_that_nobody_owes(name: str, history: list[Step], last: Step) -> None:
    requests, side = leader("a", "b")
    for step in history:
        step(requests)
    before = len(side.events)
    with pytest.raises(wire.WireError):
        last(requests)
    assert len(side.events) == before


@pytest.mark.parametrize(
    "change",
    [{"status": status} for status in (None, True, 1.0, "0", -65, 256)]
    + [{"said": said} for said in (None, 1, [], "\ud800", "x" * (MOST_SAID + 1))],
    ids=lambda change: repr(change)[:20],
)
def test_an_end_that_is_none(change: dict[str, Any]) -> None:
    with pytest.raises(wire.WireError):
        codec.unpack(DaemonEnded, {"number": 1, "status": 0, "said": "", **change})


def test_what_a_daemon_said_is_cut_and_can_not_steer_a_terminal() -> None:
    requests, side = leader("a")
    ask(1)(requests)
    requests.hear("a", DaemonEnded(1, 0, "é" * 8000 + "\n\x1b[2J"))
    (event,) = side.events
    assert isinstance(event, StartEnded)
    assert event.said == "é" * 4093 + "\n\\x1b[2J"


def test_what_cannot_be_sent_is_not_open() -> None:
    requests, side = leader("a")
    with pytest.raises(ValueError, match="no list of 1 to 4096"):
        requests.start("a", 1, ())
    requests.start("a", 1, ("orted",))
    with pytest.raises(ValueError, match="start request 1 on a has not ended yet"):
        requests.start("a", 1, ("orted",))
    with pytest.raises(ValueError, match="no other host"):
        requests.start("b", 2, ("orted",))
    assert len(side.sent) == 1
