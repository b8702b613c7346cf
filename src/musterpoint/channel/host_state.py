"""What the leader keeps of each other host; one per host, so it is small."""

from __future__ import annotations

from musterpoint.channel import wire
from musterpoint.channel.link import Link
from musterpoint.channel.session import Mailbox, Session, Ticket


class HostState:
    """``link`` is None while the host is cut off.

    ``code`` is the exit code its ranks ended with, None before; ``failed`` counts the failures it reported.
    ``ticket`` is what it can resume its session with.
    """

    __slots__ = ("code", "failed", "link", "mailbox", "name", "session", "ticket")

    def __init__(self, name: str, link: Link, session: Session) -> None:
        self.name = name
        self.link: Link | None = link
        self.session = session
        self.ticket = Ticket.draw()
        self.mailbox = Mailbox()
        self.code: int | None = None
        self.failed = 0

    def connect(self, link: Link) -> None:
        """It is connected by ``link`` from now on."""
        self.link = link

    def disconnect(self) -> None:
        """Closes its connection, if it has one."""
        if self.link is not None:
            self.link.close()
            self.link = None

    def count_failure(self) -> int:
        """It reported a failure; how many by now."""
        self.failed += 1
        return self.failed

    def done(self, code: int) -> None:
        """Its ranks ended with ``code``."""
        self.code = code

    def post(self, data: bytes) -> None:
        """Sends a numbered message now, or when the session is resumed."""
        self.mailbox.put(data)
        if self.link is not None:
            self.link.send(data)

    def beat(self) -> None:
        """Sends a beat, which asks for one and acknowledges; not while the host doesn't read."""
        if self.link is not None and not self.link.busy:
            self.link.send(wire.pack_beat(self.mailbox.received))
