"""Histories of one connection against what they must mean, with the real timeouts and a clock of our own."""

from __future__ import annotations

import socket
from typing import Any, Callable

import pytest

from musterpoint.base.loop import Loop
from musterpoint.base.untrusted import same_token
from musterpoint.core.channel import wire
from musterpoint.core.channel.connection_log import ConnectionLog
from musterpoint.core.channel.dial import NOTHING, REFUSED, VANISHED, Miss
from musterpoint.core.channel.link import Context, Link, LinkOwner
from musterpoint.core.channel.session import (
    Action,
    Back,
    Dial,
    HostState,
    Lost,
    Mailbox,
    Resume,
    Session,
    Silent,
    random_token,
)
from musterpoint.core.channel.timeouts import Timeouts
from musterpoint.core.channel.wire import WireError

from ...fixtures import closing_fixture

Step = tuple[float, Callable[[Session, float], list[Action]]]


heard, resumed, job_ending, tick = Session.received, Session.resumed, Session.job_ending, Session.tick


def tried(kind: Miss) -> Callable[[Session, float], list[Action]]:
    return lambda session, now: session.tried(now, kind)


refused, vanished, nothing = map(tried, (REFUSED, VANISHED, NOTHING))


def closed(session: Session, now: float) -> list[Action]:
    return session.ended(now, True)


def broken(session: Session, now: float) -> list[Action]:
    return session.ended(now, False)


def bye(session: Session, now: float) -> list[Action]:
    session.end()
    return []


def stood_still(session: Session, now: float) -> list[Action]:
    session.forgive(60.0, now)
    return []


WORKER, LEADER = True, False

HISTORIES: list[tuple[str, bool, list[Step], list[type[Any]]]] = [
    ("a beat in time", WORKER, [(5, heard), (10, heard), (24, tick)], []),
    ("15 s of silence: told once, dialled once", WORKER, [(14, tick), (15, tick), (20, tick)], [Silent, Dial]),
    ("the leader can't dial", LEADER, [(15, tick), (16, tick)], [Silent]),
    ("silence, then the old connection speaks", WORKER, [(15, tick), (20, heard)], [Silent, Dial, Back]),
    ("silence, then a new connection", LEADER, [(15, tick), (80, resumed), (94, tick)], [Silent, Back]),
    ("60 s of silence are no death", WORKER, [(15, tick), (40, nothing), (60, nothing), (75, resumed)],
     [Silent, Dial, Back]),
    ("300 s of silence are", LEADER, [(15, tick), (299, tick), (300, tick), (301, tick)], [Silent, Lost]),
    ("300 s are, in one step", LEADER, [(301, tick)], [Lost]),
    ("closed, and back in a moment", WORKER, [(3, closed), (4, refused), (5, resumed), (14, tick)], [Dial, Back]),
    ("closed, and refused for 10 s", WORKER, [(3, closed), (4, refused), (13, refused), (14, refused), (20, tick)],
     [Dial, Lost]),
    ("closed, and the name vanished", WORKER, [(3, closed), (4, vanished), (14, vanished)], [Dial, Lost]),
    ("closed, but the network says nothing", WORKER, [(3, closed), (4, refused), (9, nothing), (14, tick)], [Dial]),
    ("refused again after that: 10 s from then", WORKER,
     [(3, closed), (9, nothing), (12, refused), (16, refused), (22, refused)], [Dial, Silent, Lost]),
    ("the name vanishes with the network, not with the host", WORKER,
     [(15, tick), (16, vanished), (30, vanished), (40, resumed)], [Silent, Dial, Back]),
    ("refused while silent: nobody is there", WORKER, [(15, tick), (16, refused), (26, refused)], [Silent, Dial, Lost]),
    ("broken by the network: waited for like silence", WORKER, [(3, broken), (4, nothing), (14, tick), (200, resumed)],
     [Dial, Back]),
    ("closed, and nobody calls the leader", LEADER, [(3, closed), (12, tick), (13, tick), (14, tick)], [Lost]),
    ("closed, and the worker calls in time", LEADER, [(3, closed), (12, resumed), (26, tick)], [Back]),
    ("broken by the network at the leader", LEADER, [(3, broken), (14, tick), (20, tick), (299, tick)], [Silent]),
    ("a failure waits while the peer is silent", LEADER, [(15, tick), (20, job_ending)], [Silent, Lost]),
    ("a failure comes while the peer is silent: not given up at once", WORKER,
     [(15, tick), (16, job_ending), (19, tick), (20, tick)], [Silent, Dial, Lost]),
    ("a failure waits, then beats are missed, then the peer is silent", WORKER,
     [(5, job_ending), (7, tick), (7.5, tick), (14, tick), (15, tick), (19, tick), (20, tick)], [Dial, Silent, Lost]),
    ("a failure waits, beats are missed, and the old connection speaks", WORKER,
     [(5, job_ending), (8, tick), (9, heard), (16, tick)], [Dial, Back]),
    ("a failure waits, beats are missed, and the leader can't dial", LEADER, [(5, job_ending), (14, tick)], []),
    ("a failure waits while all is well", WORKER, [(5, job_ending), (6, heard), (13, tick)], []),
    ("said bye", LEADER, [(1, bye), (2, closed), (400, tick)], []),
    ("lost is lost", LEADER, [(301, tick), (302, resumed), (303, heard)], [Lost]),
    ("this host itself stood still", LEADER, [(60, stood_still), (61, tick), (74, tick), (76, tick)], [Silent]),
    ("heard right after it stood still", LEADER, [(60, heard), (60, stood_still), (74, tick), (75, tick)], [Silent]),
]  # fmt: skip


@pytest.mark.parametrize(("name", "calls", "history", "expected"), HISTORIES, ids=[row[0] for row in HISTORIES])
def test_histories(name: str, calls: bool, history: list[Step], expected: list[type[Any]]) -> None:
    session = Session(0.0, calls, 300.0, Timeouts())
    got = [action for when, step in history for action in step(session, when)]
    assert [type(action) for action in got] == expected


def test_a_loss_says_how_it_was_seen() -> None:
    session = Session(0.0, LEADER, 300.0, Timeouts())
    closed(session, 1.0)
    assert session.tick(11.0) == [Lost("its connection was closed and it did not come back within 10 s")]


def test_a_return_says_whether_the_silence_was_reported() -> None:
    session = Session(0.0, LEADER, 300.0, Timeouts())
    closed(session, 1.0)
    assert session.resumed(2.0) == [Back(reported=False)]
    assert session.tick(17.0) == [Silent(15.0)]
    assert session.received(18.0) == [Back(reported=True)]
    closed(session, 19.0)
    assert session.resumed(20.0) == [Back(reported=False)]


def test_messages_are_kept_until_acknowledged() -> None:
    box = Mailbox()
    for data in (b"a", b"b", b"c"):
        box.put(data)
    assert box.unacknowledged() == [b"a", b"b", b"c"]
    box.acknowledge(2)
    box.acknowledge(1)  # an old count says nothing new
    assert box.unacknowledged() == [b"c"]
    box.put(b"d")
    box.acknowledge(4)
    assert box.unacknowledged() == []


@pytest.mark.parametrize("count", [1, 99])
def test_nobody_has_what_was_never_sent(count: int) -> None:
    with pytest.raises(WireError):
        Mailbox().acknowledge(count)


def test_a_resume_survives_the_wire() -> None:
    resume = Resume("algo-2", "session", "token", 3, "nonce")
    assert Resume.from_wire(wire.unpack(resume.pack()[wire.HEAD :])) == resume


def test_draws_differ() -> None:
    assert random_token() != random_token()
    assert len(random_token()) == 32


@pytest.mark.parametrize("other", ["b", "", "\ud800", "\u00e9", "a\0"])
def test_tokens_that_are_not_the_same(other: str) -> None:
    assert same_token("a", "a")
    assert not same_token("a", other)


class Ends:
    """A member and the other end of its connection."""

    def __init__(self) -> None:
        self.loop = Loop()
        here, self.there = socket.socketpair()
        self.there.settimeout(500)
        context = Context(self.loop, Timeouts(), ConnectionLog(print, lambda *a, **k: None))
        owner = LinkOwner(lambda link, payload: None, lambda link, why, eof: None)
        link = Link(context, here, "10.0.0.2", 1000, owner)
        self.member = HostState("algo-2", link, Session(0.0, False, 300.0, Timeouts()))

    def close(self) -> None:
        if self.member.link is not None:
            self.member.link.close()
        self.there.close()
        self.loop.close()


ends = closing_fixture(Ends)


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
    assert wire.read_beat(payload).received == 7


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
