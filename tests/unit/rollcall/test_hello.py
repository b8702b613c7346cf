from __future__ import annotations

from typing import Any

import pytest

from musterpoint.rollcall import wire
from musterpoint.rollcall.hello import Hello, Resume, draw
from musterpoint.rollcall.roster import Offer

HELLO = Hello("algo-2", Offer("job", "torchrun", 8, "0.1", 8), "abc", ("10.0.0.1",), "10.0.0.1", "nonce")
RESUME = Resume("algo-2", "session", "token", 3)


def as_sent(frame: bytes) -> dict[str, Any]:
    return wire.unpack(frame[4:])


def test_both_survive_the_wire() -> None:
    assert Hello.from_wire(as_sent(HELLO.pack())) == HELLO
    assert Resume.from_wire(as_sent(RESUME.pack())) == RESUME


@pytest.mark.parametrize("key", ["host", "job", "launcher", "slots", "version", "incarnation", "sees", "protocol"])
@pytest.mark.parametrize("value", [None, {}, -1])
def test_a_bad_hello_is_a_wire_error(key: str, value: object) -> None:
    with pytest.raises(wire.WireError):
        Hello.from_wire({**as_sent(HELLO.pack()), key: value})


def test_of_another_protocol_only_the_number_counts() -> None:
    hello = Hello.from_wire({"t": "hello", "protocol": 99, "host": "algo-2", "new": "field"})
    assert (hello.host, hello.protocol) == ("algo-2", 99)


def test_draws_differ() -> None:
    assert draw() != draw()
    assert len(draw()) == 32
