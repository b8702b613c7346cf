from __future__ import annotations

from typing import Any

import pytest

from musterpoint.core.channel import wire
from musterpoint.core.channel.session import random_token
from musterpoint.core.rollcall.hello import Hello, validate
from musterpoint.core.rollcall.roster import Offer

OFFER = Offer("job", "torchrun", 2, "0.1")
HELLO = Hello("algo-2", Offer("job", "torchrun", 8, "0.1", 8, (7777, 21000)), "abc", ("10.0.0.1",), "10.0.0.1", "nonce")


def as_sent(frame: bytes) -> dict[str, Any]:
    return wire.unpack(frame[4:])


def test_a_hello_survives_the_wire() -> None:
    assert Hello.from_wire(as_sent(HELLO.pack())) == HELLO


@pytest.mark.parametrize(
    "key", ["host", "job", "launcher", "slots", "version", "room", "ports", "incarnation", "sees", "protocol"]
)
@pytest.mark.parametrize("value", [None, {}, -1])
def test_a_bad_hello_is_a_wire_error(key: str, value: object) -> None:
    with pytest.raises(wire.WireError):
        Hello.from_wire({**as_sent(HELLO.pack()), key: value})


OFFERED: list[tuple[str, dict[str, Any], list[Any]]] = [
    ("ports", {"ports": (7777,)}, [
        "7777", 7777, [7777.0], [True], [-1], [0], [65536], [70000], [None], [[7777]], ["7777"], [21000] * 65,
    ]),
    ("ssh_key", {"ssh_key": "ssh-ed25519 AAAAC3Nz+/="},
     ["ssh-rsa AAAA", "ssh-ed25519 A\ncommand=x", 7, "ssh-ed25519 " + "A" * 300]),
    ("libraries", {"libraries": ("NCCL=2.27.3",)}, ["NCCL", [1], ["x" * 129], ["NCCL=1"] * 17, None]),
    ("place_in_network", {"place": "s0.s4.algo-2"}, ["x" * 513, 7, None]),
]  # fmt: skip
"""A key of the message, what an offer may have there, and what none has."""


@pytest.mark.parametrize(("key", "right", "wrong"), OFFERED)
def test_what_is_offered_survives_the_wire_and_else_is_refused(key: str, right: Any, wrong: list[Any]) -> None:
    told = HELLO._replace(offer=HELLO.offer._replace(**right))
    assert Hello.from_wire(as_sent(told.pack())) == told
    for value in wrong:
        with pytest.raises(wire.WireError, match=key):
            Hello.from_wire({**as_sent(HELLO.pack()), key: value})


def test_a_million_ports_are_no_hello() -> None:
    frames = wire.Frames(wire.HELLO_LIMIT)
    frames.feed(HELLO._replace(offer=HELLO.offer._replace(ports=(21000,) * 10**6)).pack())
    with pytest.raises(wire.WireError, match="at most 16384"):
        frames.next()


def test_a_usual_hello_is_small() -> None:
    assert len(HELLO._replace(nonce=random_token(), incarnation=random_token()).pack()) < 400


def test_of_another_protocol_only_the_number_counts() -> None:
    hello = Hello.from_wire({"t": "hello", "protocol": 99, "host": "algo-2", "new": "field"})
    assert (hello.host, hello.protocol) == ("algo-2", 99)


PLAIN = Hello("algo-2", OFFER, "one")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, ""),
        ({"secret": True}, "algo-1 has a secret and algo-2 has none (--secret, MUSTER_SECRET)"),
        ({"stop": 15}, ""),
        ({"protocol": 999}, "algo-2 speaks protocol 999, algo-1 protocol"),
        ({"host": "algo-1"}, "algo-1 is the leader itself: two hosts have this name"),
        ({"host": "algo-9"}, "algo-9 is not one of the 3 hosts of job"),
        ({"nonce": "abc"}, "algo-2 has a secret and algo-1 has none (--secret, MUSTER_SECRET)"),
        ({"offer": OFFER._replace(job="other")}, "algo-2 belongs to job 'other', algo-1 to 'job'"),
        ({"offer": OFFER._replace(launcher="mpi")}, "algo-2 would start the launcher mpi, algo-1 torchrun"),
        ({"offer": OFFER._replace(launcher="")}, ""),
        ({"host": "algo-3", "offer": OFFER._replace(launcher="script")}, ""),
    ],
)
def test_what_is_said(changes: dict[str, object], words: str) -> None:
    others, grouped = frozenset({"algo-2", "algo-3"}), frozenset({"algo-1", "algo-2"})
    hello = PLAIN._replace(**{key: value for key, value in changes.items() if key != "secret"})
    said = validate(hello, "algo-1", OFFER, others, grouped, "secret" in changes)
    assert (said.reason if said else "").startswith(words) and bool(said) == bool(words)


@pytest.mark.parametrize("evil", ["\x1b[2J", "a\nmusterpoint: all is well", "\u202e", "x" * 300])
@pytest.mark.parametrize(
    "changes", [{"host": "algo-9"}, {"protocol": 7}, {"nonce": "n"}, {"launcher": ""}, {}], ids=repr
)
def test_nobody_hears_or_reads_the_callers_own_words(changes: dict[str, object], evil: str) -> None:
    offer = OFFER._replace(**({"launcher": evil} if "launcher" in changes else {"job": evil}))
    hello = PLAIN._replace(offer=offer, **{key: value for key, value in changes.items() if key != "launcher"})
    said = validate(hello, "algo-1", OFFER, frozenset({"algo-2"}), frozenset({"algo-2"}), secret=False)
    assert said is not None
    assert evil not in said.answer + said.claim
    assert "job" not in said.answer.replace("this job", "").replace("the job", "")
    assert said.reason.isprintable()
    assert len(said.reason) < 500
