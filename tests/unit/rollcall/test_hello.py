from __future__ import annotations

from typing import Any

import pytest

from musterpoint.channel import wire
from musterpoint.rollcall.hello import Hello, Resume, draw
from musterpoint.rollcall.roster import Offer

HELLO = Hello("algo-2", Offer("job", "torchrun", 8, "0.1", 8, (7777, 21000)), "abc", ("10.0.0.1",), "10.0.0.1", "nonce")
RESUME = Resume("algo-2", "session", "token", 3, "nonce")


def as_sent(frame: bytes) -> dict[str, Any]:
    return wire.unpack(frame[4:])


def test_both_survive_the_wire() -> None:
    assert Hello.from_wire(as_sent(HELLO.pack())) == HELLO
    assert Resume.from_wire(as_sent(RESUME.pack())) == RESUME


@pytest.mark.parametrize(
    "key", ["host", "job", "launcher", "slots", "version", "room", "ports", "incarnation", "sees", "protocol"]
)
@pytest.mark.parametrize("value", [None, {}, -1])
def test_a_bad_hello_is_a_wire_error(key: str, value: object) -> None:
    with pytest.raises(wire.WireError):
        Hello.from_wire({**as_sent(HELLO.pack()), key: value})


@pytest.mark.parametrize(
    "ports",
    ["7777", 7777, [7777.0], [True], [-1], [0], [65536], [70000], [None], [[7777]], ["7777"], [21000] * 65],
    ids=repr,
)
def test_ports_that_are_none(ports: object) -> None:
    with pytest.raises(wire.WireError, match="ports"):
        Hello.from_wire({**as_sent(HELLO.pack()), "ports": ports})


def test_a_million_ports_are_no_hello() -> None:
    frames = wire.Frames(wire.HELLO_LIMIT)
    frames.feed(HELLO._replace(offer=HELLO.offer._replace(ports=(21000,) * 10**6)).pack())
    with pytest.raises(wire.WireError, match="at most 16384"):
        frames.next()


def test_a_usual_hello_is_small() -> None:
    assert len(HELLO._replace(nonce=draw(), incarnation=draw()).pack()) < 400


def test_of_another_protocol_only_the_number_counts() -> None:
    hello = Hello.from_wire({"t": "hello", "protocol": 99, "host": "algo-2", "new": "field"})
    assert (hello.host, hello.protocol) == ("algo-2", 99)


def test_draws_differ() -> None:
    assert draw() != draw()
    assert len(draw()) == 32
