"""Frames and messages, whole, in pieces, and as garbage."""

from __future__ import annotations

import zlib
from typing import Any, Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from musterpoint.core.channel import wire
from musterpoint.core.channel.secret import check_proof, prove

MESSAGES = st.dictionaries(st.text(max_size=8), st.integers() | st.text(max_size=20), max_size=4).map(
    lambda fields: {key: value for key, value in fields.items() if key not in ("t", "kind")}
)


def drain(frames: wire.Frames) -> list[bytes]:
    found = []
    while (payload := frames.next()) is not None:
        found.append(payload)
    return found


@given(st.lists(MESSAGES, max_size=5), st.data())
def test_messages_survive_any_cutting(messages: list[dict[str, Any]], data: st.DataObject) -> None:
    stream = b"".join(wire.pack("m", **message) for message in messages)
    frames = wire.Frames(wire.MEMBER_LIMIT)
    got = []
    while stream:
        size = data.draw(st.integers(1, len(stream)))
        frames.feed(stream[:size])
        stream = stream[size:]
        got += drain(frames)
    assert [wire.unpack(payload) for payload in got] == [{"t": "m", **message} for message in messages]


@given(st.binary(max_size=200))
def test_garbage_is_a_wire_error_or_nothing(garbage: bytes) -> None:
    frames = wire.Frames(100)
    frames.feed(garbage)
    try:
        for payload in drain(frames):
            wire.read_beat(payload) if wire.is_beat(payload) else wire.unpack(payload, compressed=True)
    except wire.WireError:
        pass


def test_too_long_a_frame_is_refused_before_it_has_come() -> None:
    frames = wire.Frames(100)
    frames.feed(b"GET / HTTP/1.1\r\n")
    with pytest.raises(wire.WireError, match="at most 100"):
        frames.next()


def test_the_limit_may_change_between_frames() -> None:
    frames = wire.Frames(10)
    frames.feed(wire.frame(b"1234567890") + wire.frame(b"x" * 50))
    assert frames.next() == b"1234567890"
    frames.set_limit(50)
    assert frames.next() == b"x" * 50


@pytest.mark.parametrize(
    "payload",
    [b"", b"[]", b"{}", b'{"t":1}', b'{"t":"x"', b"\xff\xfe", b"{" * 5000, b'{"t":' + b"[" * 50000],
    ids=["empty", "list", "no kind", "kind no text", "cut", "binary", "braces", "deep"],
)
def test_what_is_no_message(payload: bytes) -> None:
    with pytest.raises(wire.WireError):
        wire.unpack(payload)


def test_compressed_messages_only_where_expected() -> None:
    payload = wire.pack_large("roster", seats=["algo-1"] * 1000)[4:]
    assert len(payload) < 200
    assert wire.unpack(payload, compressed=True)["seats"][999] == "algo-1"
    with pytest.raises(wire.WireError):
        wire.unpack(payload)


def test_a_bomb_is_not_expanded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "UNPACKED_LIMIT", 1000)
    with pytest.raises(wire.WireError, match="too large"):
        wire.unpack(zlib.compress(b'{"t":"' + b"x" * 2000 + b'"}'), compressed=True)


@pytest.mark.parametrize("piece", [b"[],", b"{},", b'"ab",', b"[[]],", b"1000,"])
@pytest.mark.parametrize("compressed", [True, False])
def test_a_message_of_many_small_values_is_not_decoded(piece: bytes, compressed: bool) -> None:
    """Decoded, each takes many times its bytes."""
    payload = b'{"t":"roster","roster":[' + piece * (wire.LEADER_LIMIT // len(piece) - 16) + b"0]}"
    with pytest.raises(wire.WireError, match="more than 1,048,576 values"):
        wire.unpack(zlib.compress(payload, 1) if compressed else payload, compressed=compressed)


def test_the_roster_of_ten_thousand_hosts_with_all_their_ports_is_read() -> None:
    seats = [[f"{number:0253}", "::ffff:127.0.0.1", 8, True, "1" * 64, 8, [65535] * 64] for number in range(10_000)]
    payload = wire.pack_large("roster", seats=seats)[4:]
    assert len(wire.unpack(payload, compressed=True)["seats"]) == 10_000


@pytest.mark.parametrize(
    "payload", [b"1x", b"1" * 30, b"-1", b"1 2", b"1 2 3 4", b"1 2 x", b"1  2", b"1 2 " + b"9" * 19, b"9" * 19]
)
def test_what_is_no_beat(payload: bytes) -> None:
    with pytest.raises(wire.WireError):
        wire.read_beat(payload)


@pytest.mark.parametrize("times", [(), (7_000_000, 8_000_000)])
def test_a_beat_counts_and_may_have_times(times: tuple[int, ...]) -> None:
    payload = wire.pack_beat(12, *times)[wire.HEAD :]
    assert wire.is_beat(payload)
    assert wire.read_beat(payload) == wire.Beat(12, *times)


Read = Callable[..., Any]
WRONG: list[tuple[Read, tuple[int, ...], list[Any]]] = [
    (wire.number, (), [None, -1, 2**60, True, "1", 1.5]),
    (wire.number, (255, -64), [-65, 256, True, 1.0, "1"]),
    (wire.text, (), [None, 1, "x" * 5000]),
    (wire.texts, (), [None, "ab", [1], ["x"] * 65]),
    (wire.texts, (1, 300), [["x" * 301]]),
    (wire.numbers, (1, 9, 3), [
        None, 1, "12", {"1": 2}, [1.0], [True], [None], ["1"], [[1]], [0], [-1], [10], [float("nan")], [10**400],
        [1] * 4, [1] * 10**6,
    ]),
]  # fmt: skip
"""How a field is read, with which bounds, and what it is not then."""
RIGHT: list[tuple[Read, tuple[int, ...], Any, Any]] = [
    (wire.number, (255, -64), -64, -64),
    (wire.texts, (1, 300), ["x" * 300], ("x" * 300,)),
    *((wire.numbers, (1, 9, 3), value, tuple(value)) for value in ([], [1], [9, 1, 9])),
]


@pytest.mark.parametrize(("read", "bounds", "values"), WRONG)
def test_fields_are_checked(read: Read, bounds: tuple[int, ...], values: list[Any]) -> None:
    for value in values:
        with pytest.raises(wire.WireError):
            read({"t": "m", "n": value}, "n", *bounds)


@pytest.mark.parametrize(("read", "bounds", "value", "found"), RIGHT)
def test_fields_are_read(read: Read, bounds: tuple[int, ...], value: Any, found: Any) -> None:
    assert read({"t": "m", "n": value}, "n", *bounds) == found


def test_a_proof_depends_on_everything() -> None:
    proofs = {
        prove("secret", b"hello", "nonce"),
        prove("other", b"hello", "nonce"),
        prove("secret", b"hallo", "nonce"),
        prove("secret", b"hello", "other"),
    }
    assert len({proof for proof, _key in proofs}) == len({key for _proof, key in proofs}) == 4
    assert not {proof for proof, _key in proofs} & {key.hex() for _proof, key in proofs}


@pytest.mark.parametrize("wrong", ["b", "", "0" * 32])
def test_only_the_right_proof_gives_the_key(wrong: str) -> None:
    proof, key = prove("secret", b"hello", "nonce")
    assert check_proof("secret", b"hello", "nonce", proof) == key
    assert check_proof("secret", b"hello", "nonce", wrong) is None


def test_any_secret_can_be_used() -> None:
    assert len({prove(secret, b"hello", "nonce") for secret in ("\udcff", "\u00e9", " ", "x" * 10_000)}) == 4
