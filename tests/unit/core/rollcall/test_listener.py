"""Strangers at the leader's port while the hosts gather, and afterwards."""

from __future__ import annotations

import resource
import time
from typing import Any, Callable

import pytest

from musterpoint.core.channel import wire
from musterpoint.core.channel.session import Resume
from musterpoint.core.rollcall.hello import ANOTHER_SECRET, Hello
from musterpoint.core.rollcall.listener import raise_file_limit
from musterpoint.core.rollcall.roster import Offer

from ...meeting import EVER, TIMEOUTS, connect, read_to_end, replies

Start = Callable[..., Any]
HELLO = Hello("algo-2", Offer("job", "torchrun", 2, "0.1"), "abc", (), "127.0.0.1")
SECRET = "an example of a secret"


@pytest.mark.parametrize(
    "said",
    [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"\0" * 64, b"\xff" * 64, wire.frame(b"garbage"), wire.pack("hello"),
        wire.pack("roster", roster={}), wire.pack("bye"), wire.frame(b"{" * 9000), wire.pack_large("hello"),
        wire.pack_beat(1), wire.pack("hello", host=["x"], protocol=1),
    ],
    ids=["http", "zeros", "ones", "frame", "empty hello", "roster", "bye", "deep", "zip", "beat", "wrong types"],
)  # fmt: skip
def test_garbage_is_shown_the_door_and_the_hosts_muster(start: Start, port: int, said: bytes) -> None:
    leader = start(1, 2)
    with connect(port) as stranger:
        stranger.sendall(said)
        assert replies(stranger) == []
        start(2, 2).gathered()
        leader.gathered()


def test_who_says_nothing_or_drips_is_cut_off(start: Start, port: int) -> None:
    leader = start(1, 2, timeouts=TIMEOUTS._replace(hello=0.4))
    with connect(port) as silent, connect(port) as dripping:
        with pytest.raises(OSError):
            for byte in HELLO.pack():
                dripping.sendall(bytes([byte]))
                time.sleep(0.1)
        assert read_to_end(silent) == b""
    start(2, 2).gathered()
    leader.gathered()


def test_a_crowd_of_silent_callers_keeps_nobody_out(start: Start, port: int) -> None:
    leader = start(1, 2, timeouts=TIMEOUTS._replace(hello=EVER))
    crowd = [connect(port) for _ in range(200)]
    start(2, 2).gathered()
    leader.gathered()
    for sock in crowd:
        sock.close()


def test_half_a_hello_then_gone(start: Start, port: int) -> None:
    leader = start(1, 2)
    with connect(port) as stranger:
        stranger.sendall(HELLO.pack()[:20])
    start(2, 2).gathered()
    leader.gathered()


def test_another_protocol_is_refused_by_name(start: Start, port: int) -> None:
    leader = start(1, 2)
    with connect(port) as old:
        old.sendall(HELLO._replace(protocol=99).pack())
        (reply,) = replies(old)
    assert reply["t"] == "refused"
    speaks = f"algo-2 speaks protocol 99, algo-1 protocol {wire.PROTOCOL}: install the same version"
    assert reply["reason"].startswith(speaks)
    assert reply["reason"] in str(leader.failed())


def test_a_session_of_an_earlier_leader_is_over(start: Start, port: int) -> None:
    start(1, 2)
    with connect(port) as ghost:
        ghost.sendall(Resume("algo-2", "session", "token", 0).pack())
        (reply,) = replies(ghost)
    assert (reply["t"], reply["over"]) == ("refused", True)


def test_a_guessed_secret_gets_nobody_in(start: Start, port: int) -> None:
    leader = start(1, 2, secret=SECRET)
    with connect(port) as thief:
        thief.sendall(HELLO._replace(nonce="0" * 32).pack())
        thief.sendall(wire.pack("proof", proof="0" * 64))
        challenge, refused = replies(thief)
    assert sorted(challenge) == ["nonce", "t"]
    assert refused == {"t": "refused", "reason": ANOTHER_SECRET}
    start(2, 2, secret=SECRET).gathered()
    leader.gathered()


def test_another_secret_is_in_the_leaders_table_and_ends_nothing(start: Start, port: int) -> None:
    said = wire.pack("proof", proof="0" * 64)
    leader = start(1, 3, secret=SECRET, rollcall_timeout=5.0)
    for host in ("algo-2", "algo-9"):
        with connect(port, "127.0.0.5") as caller:
            caller.sendall(HELLO._replace(host=host, nonce="0" * 32).pack() + said)
            assert [reply["t"] for reply in replies(caller)] == ["challenge", "refused"]
    start(3, 3, secret=SECRET)
    lines = str(leader.failed()).splitlines()
    assert lines[0].endswith("and algo-2 is not here (seen from algo-1)")
    assert lines[2] == (
        "algo-2  hello    127.0.0.5: refused: somebody there calls itself algo-2 and has another secret "
        "(--secret, MUSTER_SECRET)"
    )
    assert "algo-9" not in str(leader.failed())
    assert leader.moments.count("hello-refused") == 1


@pytest.mark.parametrize(
    "said",
    [
        wire.pack("proof"), wire.pack("proof", proof=1), wire.pack("proof", proof="é"), wire.pack("hello"), b"\0" * 9,
        wire.pack("proof", proof="\ud800"), wire.pack("proof", proof=["0"]), wire.pack("proof", proof="0" * 9999),
        wire.frame(b'{"t":"proof","proof":' + b"[" * 9000), wire.pack("doubt"), wire.pack_beat(1), wire.frame(b""),
        wire.frame(b'{"t":"proof","proof":' + b"1" * 5000 + b"}"), wire.frame(b'{"t":"proof","proof":NaN}'),
    ],
    ids=[
        "none", "a number", "no hexadecimal", "a hello", "garbage", "half a pair", "a list", "long", "deep", "doubt",
        "a beat", "nothing", "5,000 digits", "no number",
    ],
)  # fmt: skip
def test_garbage_for_a_proof(start: Start, port: int, said: bytes) -> None:
    leader = start(1, 2, secret=SECRET)
    with connect(port) as caller:
        caller.sendall(HELLO._replace(nonce="0" * 32).pack() + said)
        assert "welcome" not in [reply["t"] for reply in replies(caller)]
    start(2, 2, secret=SECRET).gathered()
    leader.gathered()


@pytest.mark.parametrize("mustered", [False, True])
def test_without_the_secret_nobody_does_harm(start: Start, port: int, mustered: bool) -> None:
    leader = start(1, 2, secret=SECRET)
    if mustered:
        start(2, 2, secret=SECRET).gathered()
        leader.gathered()
    with connect(port) as stranger:
        stranger.sendall(HELLO.pack())
        _challenge, reply = replies(stranger)
    assert reply["reason"] == ANOTHER_SECRET
    if not mustered:
        start(2, 2, secret=SECRET).gathered()
        leader.gathered()
    leader.say("stopping", 15)
    assert leader.events == []


def test_room_for_connections() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    raise_file_limit(1)
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == before
    soft = min(2000, before[1])
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, before[1]))
    try:
        raise_file_limit(3000)
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == min(3512, before[1])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
