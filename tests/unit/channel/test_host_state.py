"""What the leader keeps of a host: messages that wait for it, and signs of life that don't."""

from __future__ import annotations

import socket
from typing import Iterator

import pytest

from musterpoint.channel import wire
from musterpoint.channel.host_state import HostState
from musterpoint.channel.journal import Journal
from musterpoint.channel.link import Link
from musterpoint.channel.session import Session
from musterpoint.channel.timeouts import Timeouts
from musterpoint.loop import Loop
from musterpoint.rollcall.hello import Hello
from musterpoint.rollcall.roster import Offer

HELLO = Hello("algo-2", Offer("digits", "torchrun", 2, "0.1"), "incarnation")


class Ends:
    """A member and the other end of its connection."""

    def __init__(self) -> None:
        self.loop = Loop()
        here, self.there = socket.socketpair()
        self.there.settimeout(60)
        link = Link(self.loop, here, "10.0.0.2", 1000, lambda link, payload: None, lambda link, why, eof: None,
                    Journal(print, lambda *a, **k: None))  # fmt: skip
        self.member = HostState(HELLO, link, Session(0.0, False, 300.0, Timeouts()), 0.0)

    def close(self) -> None:
        if self.member.link is not None:
            self.member.link.close()
        self.there.close()
        self.loop.close()


@pytest.fixture
def ends() -> Iterator[Ends]:
    made = Ends()
    yield made
    made.close()


def test_two_members_share_no_secret(ends: Ends) -> None:
    other = Ends()
    drawn = {ends.member.token, ends.member.answer, other.member.token, other.member.answer}
    assert len(drawn) == 4
    other.close()


def test_its_welcome_holds_what_it_needs_to_come_back(ends: Ends) -> None:
    message = wire.unpack(ends.member.welcome("algo-1")[4:])
    assert message == {
        "t": "welcome", "host": "algo-1", "job": "digits", "token": ends.member.token, "answer": ends.member.answer,
    }  # fmt: skip


def test_a_message_goes_out_and_is_kept_until_it_has_come(ends: Ends) -> None:
    ends.member.post(wire.pack("stop", signal=15))
    assert wire.unpack(ends.there.recv(1000)[4:]) == {"t": "stop", "signal": 15}
    assert len(ends.member.mailbox.unacknowledged()) == 1


def test_while_it_is_cut_off_messages_wait_and_beats_do_not(ends: Ends) -> None:
    assert ends.member.link is not None
    ends.member.link.close()
    ends.member.link = None
    ends.member.post(wire.pack("stop", signal=15))
    ends.member.beat()
    assert len(ends.member.mailbox.unacknowledged()) == 1
    assert ends.there.recv(1000) == b""


def test_a_beat_says_how_much_has_come(ends: Ends) -> None:
    ends.member.mailbox.received = 7
    ends.member.beat()
    payload = ends.there.recv(1000)[4:]
    assert wire.is_beat(payload)
    assert wire.beat_count(payload) == 7


def test_who_does_not_read_gets_no_more_beats(ends: Ends) -> None:
    assert ends.member.link is not None
    ends.member.link.send(b"x" * 4_000_000)
    assert ends.member.link.busy
    ends.member.beat()
    ends.member.link.close()
    ends.member.link = None
    rest = b""
    while data := ends.there.recv(1 << 20):
        rest += data
    assert rest.strip(b"x") == b""
