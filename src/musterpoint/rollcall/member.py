"""What the leader keeps of each other host; one per host, so it is small."""

from __future__ import annotations

from musterpoint.rollcall import wire
from musterpoint.rollcall.hello import Hello, draw
from musterpoint.rollcall.link import Link
from musterpoint.rollcall.mailbox import Mailbox
from musterpoint.rollcall.seats import Call
from musterpoint.rollcall.session import Session


class Member:
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
