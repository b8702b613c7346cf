"""Start requests: what goes over the wire, and what the leader makes of answers and of hosts that go."""

from __future__ import annotations

import os
from typing import Any, Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from musterpoint.core.channel import wire
from musterpoint.core.channel.peers import PeerEvent, Started, StartEnded
from musterpoint.core.channel.start_requests import (
    MOST_SAID,
    Requests,
    pack_ended,
    pack_start,
    pack_started,
    read_start,
)


def as_sent(frame: bytes) -> dict[str, Any]:
    return wire.unpack(frame[4:])


WORD = st.binary(max_size=20).map(lambda data: os.fsdecode(data.replace(b"\0", b"")))


@given(st.integers(0, 2**53), st.lists(WORD, min_size=1, max_size=5).map(tuple))
def test_words_arrive_byte_for_byte(number: int, words: tuple[str, ...]) -> None:
    assert read_start(as_sent(pack_start(number, words))) == (number, words)


def test_all_that_a_kernel_passes_to_a_program_fits() -> None:
    words = ("\x01" * (128 * 1024 - 1),) * 16
    assert read_start(as_sent(pack_start(1, words)))[1] == words


@pytest.mark.parametrize(
    ("number", "words", "wrong"),
    [
        (-1, ("x",), "number is -1"),
        (2**53 + 1, ("x",), "number is 9007199254740993"),
        (1, (), "start request 1 has 0 words, not 1 to 4096"),
        (1, ("x",) * 4097, "start request 1 has 4097 words"),
        (1, ("x", "a\0b"), "zero byte"),
        (1, ("x" * (17 * 1024 * 1024),), "bytes, more than 16777152"),
    ],
    ids=["below 0", "too high", "no words", "too many", "zero", "too long"],
)
def test_what_the_leader_does_not_send(number: int, words: tuple[str, ...], wrong: str) -> None:
    with pytest.raises(ValueError, match=wrong):
        pack_start(number, words)


@pytest.mark.parametrize("number", [None, True, 1.0, "1", -1, 2**53 + 1, [1]], ids=repr)
@pytest.mark.parametrize("kind", ["start", "started", "ended"])
def test_numbers_that_are_none(kind: str, number: object) -> None:
    message = {"t": kind, "number": number, "words": ["orted"], "status": 0, "said": ""}
    with pytest.raises(wire.WireError):
        read_start(message) if kind == "start" else Requests({}, print).answer("algo-2", message)


@pytest.mark.parametrize(
    "words",
    [None, "orted", {}, [], [1], [None], [["orted"]], ["a\0b"], ["x"] * 4097, {"0": "orted"}, True],
    ids=lambda words: repr(words)[:20],
)
def test_words_that_are_none(words: object) -> None:
    with pytest.raises(wire.WireError):
        read_start({"t": "start", "number": 1, "words": words})


@pytest.mark.parametrize("status", [-65, 256, 10**9])
def test_a_worker_does_not_send_what_is_no_status(status: int) -> None:
    with pytest.raises(ValueError, match=f"ended with {status}, not -64 to 255"):
        pack_ended(1, status, "")


def test_a_worker_does_not_send_what_is_no_number() -> None:
    with pytest.raises(ValueError, match="-1"):
        pack_started(-1)
    with pytest.raises(ValueError, match="-1"):
        pack_ended(-1, 0, "")


@given(st.text(max_size=20), st.sampled_from(["x", "é", "€", "😀", "\udcff", "\0", "\ud800"]), st.integers(0, 20_000))
def test_of_what_was_said_the_end_arrives_as_whole_characters(start: str, filler: str, count: int) -> None:
    said = start + filler * count
    sent = as_sent(pack_ended(1, 0, said))["said"]
    kept = sent.encode()  # valid UTF-8, or this fails
    whole = said.encode("utf-8", "replace")
    assert whole.endswith(kept)
    assert len(kept) >= min(len(whole), MOST_SAID - 3)
    assert len(kept) <= MOST_SAID


class Sent:
    """What a member was sent."""

    def __init__(self) -> None:
        self.frames: list[bytes] = []

    def post(self, data: bytes) -> None:
        self.frames.append(data)


Step = Callable[[Requests], None]


def ask(number: int, host: str = "a") -> Step:
    return lambda requests: requests.ask(host, number, ("orted",))


def started(number: int, host: str = "a") -> Step:
    return lambda requests: requests.answer(host, as_sent(pack_started(number)))


def ended(number: int, status: int = 0, host: str = "a") -> Step:
    return lambda requests: requests.answer(host, as_sent(pack_ended(number, status, "")))


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
    events: list[PeerEvent] = []
    requests = Requests({"a": Sent(), "b": Sent()}, events.append)  # type: ignore[dict-item]
    for step in history:
        step(requests)
    assert events == expected


def test_who_is_gone_is_sent_nothing() -> None:
    members = {"a": Sent(), "b": Sent()}
    requests = Requests(members, lambda event: None)  # type: ignore[arg-type]
    for step in (ask(1), gone(), ask(2), ask(3, "b")):
        step(requests)
    assert [len(member.frames) for member in members.values()] == [1, 1]


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
    events: list[PeerEvent] = []
    requests = Requests({"a": Sent(), "b": Sent()}, events.append)  # type: ignore[dict-item]
    for step in history:
        step(requests)
    before = len(events)
    with pytest.raises(wire.WireError):
        last(requests)
    assert len(events) == before


@pytest.mark.parametrize(
    "change",
    [{"status": status} for status in (None, True, 1.0, "0", -65, 256)]
    + [{"said": said} for said in (None, 1, [], "x" * (MOST_SAID + 1))],
    ids=lambda change: repr(change)[:20],
)
def test_an_end_that_is_none_ends_nothing(change: dict[str, Any]) -> None:
    events: list[PeerEvent] = []
    requests = Requests({"a": Sent()}, events.append)  # type: ignore[dict-item]
    ask(1)(requests)
    with pytest.raises(wire.WireError):
        requests.answer("a", {**as_sent(pack_ended(1, 0, "")), **change})
    ended(1)(requests)
    assert events == [StartEnded("a", 1, 0)]


def test_what_a_daemon_said_is_cut_and_can_not_steer_a_terminal() -> None:
    events: list[PeerEvent] = []
    requests = Requests({"a": Sent()}, events.append)  # type: ignore[dict-item]
    ask(1)(requests)
    with pytest.raises(wire.WireError, match="no text"):
        requests.answer("a", {"t": "ended", "number": 1, "status": 0, "said": "\ud800"})
    requests.answer("a", {"t": "ended", "number": 1, "status": 0, "said": "é" * 8000 + "\n\x1b[2J"})
    (event,) = events
    assert isinstance(event, StartEnded)
    assert event.said == "é" * 4093 + "\n\\x1b[2J"


def test_what_cannot_be_sent_is_not_open() -> None:
    sent = Sent()
    requests = Requests({"a": sent}, lambda event: None)  # type: ignore[dict-item]
    with pytest.raises(ValueError, match="0 words"):
        requests.ask("a", 1, ())
    requests.ask("a", 1, ("orted",))
    with pytest.raises(ValueError, match="start request 1 on a has not ended yet"):
        requests.ask("a", 1, ("orted",))
    with pytest.raises(ValueError, match="no other host"):
        requests.ask("b", 2, ("orted",))
    assert len(sent.frames) == 1
