"""A worker's tries to resume its session, when the connection broke or the leader is silent."""

from __future__ import annotations

import socket
from typing import Any, Callable

from musterpoint.base.loop import Timer
from musterpoint.base.records import NamedTuple
from musterpoint.base.settings import Settings
from musterpoint.base.untrusted import same_token
from musterpoint.core.channel import wire
from musterpoint.core.channel.dial import NOTHING, Dialing, Miss, OnConnect, OnMiss, Target, is_local
from musterpoint.core.channel.handshake import Handshake
from musterpoint.core.channel.link import Context, Link, LinkOwner
from musterpoint.core.channel.session import Resume, Ticket, random_token

DialerMaker = Callable[[Target, OnConnect, OnMiss], Dialing]


class Membership(NamedTuple):
    """What a worker needs to continue its session.

    ``me``: this host's name.
    ``leader``: the leader's name.
    ``hosts``: the names of all hosts of the job.
    ``address``: this host's address in the roster; it dials the leader from there.
    ``session``: the id of this job's roll call.
    ``ticket``: from the leader's welcome.
    ``endpoint``: the name or address to dial; empty: the leader's name.
    """

    me: str
    leader: str
    hosts: frozenset[str]
    address: str
    session: str
    ticket: Ticket
    endpoint: str = ""


class Dialled(NamedTuple):
    """What came of a try.

    ``resumed`` gets the new connection, and how many of our messages the leader has. ``over`` gets the leader's message
    that the job is over. ``missed``: nobody answered as the leader; another try follows.
    """

    resumed: Callable[[Link, int], None]
    over: Callable[[dict[str, Any]], None]
    missed: Callable[[Miss], None]


class Redial:
    """One try at a time: two at once would each have the same messages sent again.

    ``dialer`` makes what dials. ``received()``: how many messages have come from the leader.
    """

    def __init__(
        self,
        context: Context,
        dialer: DialerMaker,
        membership: Membership,
        settings: Settings,
        received: Callable[[], int],
        dialled: Dialled,
    ) -> None:
        self._context, self._membership, self._dialled, self._received = context, membership, dialled, received
        self._loop, self._timeouts = context.loop, context.timeouts
        self._secret = settings.secret
        source = tuple(filter(is_local, (membership.address,)))
        target = Target(membership.endpoint or membership.leader, settings.rollcall_port, lambda: source)
        self._dialer = dialer(target, self._connected, self._missed)
        self._link: Link | None = None
        self._timer: Timer | None = None
        self._handshake: Handshake

    def start(self) -> None:
        """Dials, unless a connection waits for its answer."""
        if self._link is None:
            self._dialer.start()

    def stop(self) -> None:
        """Ends the attempts to connect again."""
        self._drop()
        self._dialer.stop()

    def hand_over(self) -> None:
        """The connection that was resumed is the caller's from now on."""
        self._link = None
        self.stop()

    def _connected(self, sock: socket.socket, address: str) -> None:
        link = Link(self._context, sock, address, wire.LEADER_LIMIT, LinkOwner(self._reply, self._refused))
        self._link = link
        self._timer = self._loop.call_later(self._timeouts.hello, self._no_reply)
        nonce = random_token() if self._secret else ""
        joined = self._membership
        resume = Resume(joined.me, joined.session, joined.ticket.token, self._received(), nonce)
        self._handshake = Handshake(self._loop, link, self._secret, resume.pack())

    def _reply(self, link: Link, payload: bytes) -> None:
        taken = self._handshake.receive(payload)
        if taken is None:
            return
        message = wire.unpack(taken)
        if message["t"] == "refused" and message.get("over") is True:
            self._drop()
            self._dialled.over(message)
        elif message["t"] == "resumed" and same_token(wire.token(message, "answer"), self._membership.ticket.answer):
            self._dialled.resumed(link, wire.number(message, "got"))
        else:
            raise wire.WireError("no answer to our session")

    def _missed(self, kind: Miss, _detail: str) -> None:
        self._dialled.missed(kind)
        self._dialer.again()

    def _no_reply(self) -> None:
        if self._link is not None:
            self._refused(self._link, "no reply", True)

    def _refused(self, _link: Link, _why: str, _eof: bool) -> None:
        self._drop()
        self._missed(NOTHING, "")

    def _drop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._link is not None:
            self._link.close()
            self._link = None
