"""What the leader keeps of a host: messages that wait for it, and signs of life that don't."""

from __future__ import annotations

import socket
from typing import Iterator

import pytest

from musterpoint.channel import wire
from musterpoint.channel.connection_log import ConnectionLog
from musterpoint.channel.context import Context
from musterpoint.channel.host_state import HostState
from musterpoint.channel.link import Link, LinkOwner
from musterpoint.channel.session import Session
from musterpoint.channel.timeouts import Timeouts
from musterpoint.loop import Loop


class Ends:
    """A member and the other end of its connection."""

    def __init__(self) -> None:
        self.loop = Loop()
        here, self.there = socket.socketpair()
        self.there.settimeout(60)
        context = Context(self.loop, Timeouts(), ConnectionLog(print, lambda *a, **k: None))
        owner = LinkOwner(lambda link, payload: None, lambda link, why, eof: None)
        link = Link(context, here, "10.0.0.2", 1000, owner)
        self.member = HostState("algo-2", link, Session(0.0, False, 300.0, Timeouts()))

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
    drawn = {*ends.member.ticket, *other.member.ticket}
    assert len(drawn) == 4
    other.close()


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
