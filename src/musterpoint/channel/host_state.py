"""What the leader keeps of each other host; one per host, so it is small."""

from __future__ import annotations

from typing import Iterable

from musterpoint.channel import wire
from musterpoint.channel.link import Link
from musterpoint.channel.session import Mailbox, Session
from musterpoint.rollcall.hello import Hello, draw
from musterpoint.rollcall.seats import Call


class HostState:
    """A host that said hello. ``link`` is None while it is cut off; ``code`` is what it was done with, ``failed`` how
    many failures it told of.

    ``token`` lets it resume its session; ``answer`` shows it that it resumed with the leader who gave the token.
    """

    __slots__ = ("answer", "call", "code", "failed", "hello", "link", "mailbox", "session", "token")

    def __init__(self, hello: Hello, link: Link, session: Session, now: float) -> None:
        self.hello = hello
        self.link: Link | None = link
        self.session = session
        self.call = Call(hello.host, self, hello.incarnation, link.peer, now)
        self.token = draw()
        self.answer = draw()
        self.mailbox = Mailbox()
        self.code: int | None = None
        self.failed = 0

    @property
    def name(self) -> str:
        return self.hello.host

    def welcome(self, leader: str) -> bytes:
        """The leader's reply to the hello."""
        return wire.pack("welcome", host=leader, job=self.hello.offer.job, token=self.token, answer=self.answer)

    def post(self, data: bytes) -> None:
        """Sends a numbered message now, or when the session is resumed."""
        self.mailbox.put(data)
        if self.link is not None:
            self.link.send(data)

    def beat(self) -> None:
        """A sign of life, which is answered with one, and acknowledges; not while the member doesn't read."""
        if self.link is not None and not self.link.busy:
            self.link.send(wire.pack_beat(self.mailbox.received))


SHARES = 5
"""Rounds in which everybody gets one beat."""


class Beats:
    """:meth:`next` gives each member once in ``SHARES`` rounds."""

    def __init__(self, members: Iterable[HostState] = ()) -> None:
        self._shares: list[dict[HostState, None]] = [{} for _ in range(SHARES)]
        self._turn = 0
        for member in members:
            self.add(member)

    def add(self, member: HostState) -> None:
        min(self._shares, key=len)[member] = None

    def remove(self, member: HostState) -> None:
        for share in self._shares:
            share.pop(member, None)

    def next(self) -> list[HostState]:
        self._turn = (self._turn + 1) % SHARES
        return list(self._shares[self._turn])
