"""The session with one peer: it outlives connections. Rules for silence and loss are the same at both ends.

A silent peer is reported and dialled again. It is lost only if a closed connection isn't opened again, if dialling is
refused for some time, or after a very long silence. :class:`Resume` continues the session on a new connection, and
:class:`Mailbox` keeps the messages that the peer may have missed.
"""

from __future__ import annotations

import os
from typing import Any, Final, Literal, Union

from musterpoint.base.records import NamedTuple
from musterpoint.core.channel import wire
from musterpoint.core.channel.clocks import ClockDifference, microseconds
from musterpoint.core.channel.dial import NOTHING, REFUSED, Miss
from musterpoint.core.channel.link import Link
from musterpoint.core.channel.timeouts import Timeouts

State = Literal["up", "silent", "cut", "over"]
UP: Final = "up"
SILENT: Final = "silent"
"""Connected, but nothing comes."""
CUT: Final = "cut"
"""Without a connection."""
OVER: Final = "over"
"""The peer said bye, or is lost."""


class Dial(NamedTuple):
    """Dial the peer and resume the session (the leader can't dial; it waits)."""


class Silent(NamedTuple):
    """Nothing has come from the peer for ``seconds``."""

    seconds: float


class Back(NamedTuple):
    """The peer sends again. ``reported``: :class:`Silent` had been returned. ``late``: only beats had been missed."""

    reported: bool
    late: bool = False


class Lost(NamedTuple):
    """The peer is lost. ``silence``: seconds, if silence is the only sign: the network may have failed instead."""

    why: str
    silence: float = 0.0


Action = Union[Dial, Silent, Back, Lost]


class Session:
    """The state of one peer. Each method takes what happened and the time, and returns what to do.

    ``dials`` is true for the end that dials. ``most_silence``: seconds of silence after which the peer is lost.
    ``received_at`` is when the last bytes came, later by what :meth:`forgive` forgives; ``signs`` counts how often some
    came. ``closed``: the peer's side closed the last connection, and the session has not been resumed since.
    """

    __slots__ = (
        "_cut_at",
        "_dials",
        "_ending",
        "_most_silence",
        "_refused_from",
        "_reported",
        "_timeouts",
        "closed",
        "received_at",
        "signs",
        "state",
    )

    def __init__(self, now: float, dials: bool, most_silence: float, timeouts: Timeouts) -> None:
        self.state: State = UP
        self.received_at = now
        self.signs = 0
        self._dials = dials
        self._most_silence = most_silence
        self._timeouts = timeouts
        self.closed = False
        self._cut_at = now
        self._refused_from: float | None = None
        self._reported = False
        self._ending = False

    def received(self, now: float) -> list[Action]:
        """Bytes came on the present connection."""
        self.signs += 1
        if self.state == SILENT:
            return self.resumed(now)
        if self.state == UP:
            self.received_at = now
        return []

    def ended(self, now: float, closed: bool) -> list[Action]:
        """The connection ended without a bye; ``closed`` says that the peer's side closed it."""
        if self.state not in (UP, SILENT):
            return []
        self.state = CUT
        self.closed = closed
        self._cut_at = now
        return self._dial()

    def tried(self, now: float, kind: Miss) -> list[Action]:
        """A round of dialling brought no connection."""
        # a name may vanish because of the network; after the peer closed the connection, the host is gone
        gone = kind == REFUSED or (kind != NOTHING and self.state == CUT and self.closed)
        if not gone:
            self._refused_from = None
        elif self._refused_from is None:
            self._refused_from = now
        return self.tick(now)

    def resumed(self, now: float) -> list[Action]:
        """The session goes on, on a new connection or on the old one."""
        if self.state == OVER:
            return []
        self.signs += 1
        late = not self._reported and self.state == SILENT
        actions: list[Action] = [Back(self._reported, late)] if self._reported or self.state != UP else []
        self.state = UP
        self.received_at = now
        self.closed = False
        self._refused_from = None
        self._reported = False
        return actions

    def job_ending(self, now: float) -> list[Action]:
        """The job is about to end, for a failure or a stop: what is said now has to arrive, so a peer whose beats are
        missed is dialled at once. One that stays silent is not waited for as long as before.
        """
        self._ending = True
        return self.tick(now)

    def job_goes_on(self) -> None:
        """The job goes on or is started again: a silent peer is waited for as before."""
        self._ending = False

    @property
    def is_away(self) -> bool:
        """The peer left, is lost, or closed its connection: its silence says nothing about the network."""
        return self.state == OVER or self.closed

    def end(self) -> None:
        """The peer said bye, or is given up."""
        self.state = OVER

    def forgive(self, seconds: float, now: float) -> None:
        """This process itself stood still for ``seconds`` before ``now``: they don't count as the peer's silence."""
        # bytes that came after the standstill must not get a time in the future
        self.received_at = min(now, self.received_at + seconds)
        self._cut_at = min(now, self._cut_at + seconds)
        if self._refused_from is not None:
            self._refused_from = min(now, self._refused_from + seconds)

    def tick(self, now: float) -> list[Action]:
        """Judges the peer's silence at the time ``now``."""
        if self.state == OVER:
            return []
        quiet = now - self.received_at
        if self.state == UP:
            if quiet < (self._timeouts.late if self._ending and self._dials else self._timeouts.silence):
                return []
            self.state = SILENT
            actions = self._dial()
        else:
            actions = []
        lost = self._fatal(now, quiet)
        if lost is not None:
            self.state = OVER
            return [*actions, lost] if self._reported else [lost]
        if quiet >= self._timeouts.silence and not self._reported:
            self._reported = True
            actions.insert(0, Silent(quiet))
        return actions

    def _fatal(self, now: float, quiet: float) -> Lost | None:
        cut = self._timeouts.cut
        if self._dials and self._refused_from is not None and now - self._refused_from >= cut:
            return Lost(f"it closed the connection or fell silent, and nobody has answered there for {cut:g} s")
        if not self._dials and self.state == CUT and self.closed and now - self._cut_at >= cut:
            return Lost(f"its connection was closed and it did not come back within {cut:g} s")
        most = min(self._most_silence, self._timeouts.ending) if self._ending else self._most_silence
        if quiet < most:
            return None
        return Lost(f"nothing was heard of it for {most:g} s", 0.0 if self.closed else most)

    def _dial(self) -> list[Action]:
        return [Dial()] if self._dials else []


class Mailbox:
    """The messages that the peer may not have. Both ends number messages by counting; ``received``: the peer's."""

    __slots__ = ("_acknowledged", "_kept", "received")

    def __init__(self) -> None:
        self.received = 0
        self._acknowledged = 0
        self._kept: list[bytes] | None = None

    def __len__(self) -> int:
        """How many messages the peer has not acknowledged."""
        return len(self._kept or ())

    def put(self, data: bytes) -> None:
        """Keeps the frame of a message until it is acknowledged."""
        if self._kept is None:
            self._kept = []
        self._kept.append(data)

    def count_received(self) -> None:
        """A message came."""
        self.received += 1

    def acknowledge(self, count: int) -> None:
        """The peer has received ``count`` messages in all. WireError if fewer were sent."""
        kept = self._kept or []
        if count > self._acknowledged + len(kept):
            raise wire.WireError("an acknowledgement of messages never sent")
        if count > self._acknowledged:
            self._kept = kept[count - self._acknowledged :] or None
            self._acknowledged = count

    def unacknowledged(self) -> list[bytes]:
        """The frames the peer may not have, in order."""
        return list(self._kept or ())


def random_token() -> str:
    """128 random bits as text: an incarnation, a session, a token, a nonce."""
    return os.urandom(16).hex()


class Ticket(NamedTuple):
    """What the leader gives a worker for its session.

    ``token`` lets the worker resume it; ``answer`` shows the worker that it reached the leader who gave the token.
    """

    token: str
    answer: str

    @classmethod
    def draw(cls) -> Ticket:
        return cls(random_token(), random_token())


class Resume(NamedTuple):
    """A worker's first message on a connection that continues a session.

    ``token`` is that of its :class:`Ticket`; ``got``: messages received so far. ``nonce`` is empty without a
    secret.
    """

    host: str
    session: str
    token: str
    got: int
    nonce: str = ""

    def pack(self) -> bytes:
        return wire.pack("resume", protocol=wire.PROTOCOL, **self._asdict())

    @classmethod
    def from_wire(cls, message: dict[str, Any]) -> Resume:
        """Raises WireError."""
        return cls(
            wire.host(message),
            wire.token(message, "session"),
            wire.token(message, "token"),
            wire.number(message, "got"),
            wire.token(message, "nonce", least=0),
        )


class PeerState:
    """One peer, at either end of the channel. ``link`` is None while it has no connection."""

    __slots__ = ("link", "mailbox", "name", "session")

    def __init__(self, name: str, link: Link, session: Session) -> None:
        self.name = name
        self.link: Link | None = link
        self.session = session
        self.mailbox = Mailbox()

    def rename(self, name: str) -> None:
        """``name`` is its name from now on."""
        self.name = name

    def connect(self, link: Link) -> None:
        """``link`` is its connection from now on."""
        self.link = link

    def disconnect(self) -> None:
        """Closes its connection, if it has one."""
        if self.link is not None:
            self.link.close()
            self.link = None

    def post(self, data: bytes) -> None:
        """Sends a numbered message now, or when the session is resumed."""
        self.mailbox.put(data)
        if self.link is not None:
            self.link.send(data)

    def beat(self, asked: int = 0, at: int = 0) -> None:
        """Sends a beat, which acknowledges messages; not while earlier bytes are unsent. Times as in :class:`Beat`."""
        if self.link is not None and not self.link.busy:
            self.link.send(wire.pack_beat(self.mailbox.received, asked, at))


class HostState(PeerState):
    """What the leader keeps of another host; one per host, so it is small.

    ``code`` is the exit code its ranks ended with, None before; ``failed`` counts the failures it reported. ``ticket``
    is what it can resume its session with. ``clock``: how its clock differs from ours.
    """

    __slots__ = ("clock", "code", "failed", "ticket")

    def __init__(self, name: str, link: Link, session: Session) -> None:
        super().__init__(name, link, session)
        self.ticket = Ticket.draw()
        self.clock = ClockDifference()
        self.code: int | None = None
        self.failed = 0

    def ask(self, now: float) -> None:
        """Sends a beat that asks for one. ``now`` is our wall clock."""
        self.beat(microseconds(now))

    def take_beat(self, payload: bytes, now: float) -> None:
        """A beat came; WireError if it is none."""
        beat = wire.read_beat(payload)
        self.mailbox.acknowledge(beat.received)
        self.clock.compare(beat, now)

    def count_failure(self) -> int:
        """Counts one more reported failure; returns how many there are now."""
        self.failed += 1
        return self.failed

    def done(self, code: int) -> None:
        """Its ranks ended with ``code``."""
        self.code = code

    def begin(self) -> None:
        """Its ranks are started again."""
        self.code = None
        self.failed = 0
        self.session.job_goes_on()
