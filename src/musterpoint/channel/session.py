"""When a quiet or broken connection means what: pure rules for one peer, the same at both ends.

A network blip is not a death: silence is told of, dialled against and waited out; only a closed connection that nobody
re-opens, a peer that is refused, or a very long silence is a loss.
"""

from __future__ import annotations

from typing import NamedTuple, Union

from musterpoint.channel.dial import NOTHING, REFUSED
from musterpoint.channel.timeouts import Timeouts
from musterpoint.channel.wire import WireError

UP = "up"
SILENT = "silent"
CUT = "cut"
OVER = "over"


class Dial(NamedTuple):
    """Call the peer again and resume the session (the leader can't call; it waits)."""


class Silent(NamedTuple):
    seconds: float


class Back(NamedTuple):
    """The peer is heard again."""


class Lost(NamedTuple):
    """``silence`` is the seconds of mere silence that tell of it: the network may have failed as well as the peer."""

    why: str
    silence: float = 0.0


Action = Union[Dial, Silent, Back, Lost]


class Session:
    """``state`` is UP, SILENT (connected, nothing heard), CUT (no connection) or OVER (said bye, or lost).

    ``calls`` is true for the end that dials. ``most_silence`` is how long mere silence is borne. ``closed`` says that
    the peer's side ended the last connection, and the session has not been resumed since.
    """

    __slots__ = (
        "_calls", "_cut_at", "_timeouts", "_most_silence", "_pressed", "_refused_from", "_told",
        "closed", "heard_at", "state",
    )  # fmt: skip

    def __init__(self, now: float, calls: bool, most_silence: float, timeouts: Timeouts) -> None:
        self.state = UP
        self.heard_at = now
        self._calls = calls
        self._most_silence = most_silence
        self._timeouts = timeouts
        self.closed = False
        self._cut_at = now
        self._refused_from: float | None = None
        self._told = False
        self._pressed = False

    def heard(self, now: float) -> list[Action]:
        """Any byte came on the present connection."""
        if self.state == SILENT:
            return self.resumed(now)
        if self.state == UP:
            self.heard_at = now
        return []

    def ended(self, now: float, closed: bool) -> list[Action]:
        """The connection ended without a bye; ``closed`` says that the peer's side closed it."""
        if self.state not in (UP, SILENT):
            return []
        self.state = CUT
        self.closed = closed
        self._cut_at = now
        return self._dial()

    def tried(self, now: float, kind: str) -> list[Action]:
        """A round of dialling brought nothing: REFUSED, VANISHED or NOTHING."""
        # a name can vanish with the network; after a closed connection it vanished with the host
        telling = kind == REFUSED or (kind != NOTHING and self.state == CUT and self.closed)
        if not telling:
            self._refused_from = None
        elif self._refused_from is None:
            self._refused_from = now
        return self.tick(now)

    def resumed(self, now: float) -> list[Action]:
        """The session goes on, on a new connection or on the old one."""
        if self.state == OVER:
            return []
        news = self._told or self.state != UP
        self.state = UP
        self.heard_at = now
        self.closed = False
        self._refused_from = None
        self._told = False
        return [Back()] if news else []

    def pressed(self, now: float) -> list[Action]:
        """The job is about to end, for a failure or a stop: silence is borne no longer."""
        self._pressed = True
        return self.tick(now)

    @property
    def is_away(self) -> bool:
        """The peer left, was lost, or closed its connection: its silence says nothing of the network."""
        return self.state == OVER or self.closed

    def over(self) -> None:
        """The peer said bye, or is given up."""
        self.state = OVER

    def forgive(self, seconds: float, now: float) -> None:
        """This host itself stood still for ``seconds`` before ``now``: they don't count as anybody's silence."""
        # what came after the standstill must not seem to come from the future
        self.heard_at = min(now, self.heard_at + seconds)
        self._cut_at = min(now, self._cut_at + seconds)
        if self._refused_from is not None:
            self._refused_from = min(now, self._refused_from + seconds)

    def tick(self, now: float) -> list[Action]:
        """What time alone brings."""
        if self.state == OVER:
            return []
        quiet = now - self.heard_at
        if self.state == UP:
            if quiet < self._timeouts.silence:
                return []
            self.state = SILENT
            actions = self._dial()
        else:
            actions = []
        lost = self._fatal(now, quiet)
        if lost is not None:
            self.state = OVER
            return [*actions, lost] if self._told else [lost]
        if quiet >= self._timeouts.silence and not self._told:
            self._told = True
            actions.insert(0, Silent(quiet))
        return actions

    def _fatal(self, now: float, quiet: float) -> Lost | None:
        cut = self._timeouts.cut
        if self._calls and self._refused_from is not None and now - self._refused_from >= cut:
            return Lost(f"it closed the connection or fell silent, and nobody has answered there for {cut:g} s")
        if not self._calls and self.state == CUT and self.closed and now - self._cut_at >= cut:
            return Lost(f"its connection was closed and it did not come back within {cut:g} s")
        most = min(self._most_silence, self._timeouts.silence) if self._pressed else self._most_silence
        if quiet < most:
            return None
        return Lost(f"nothing was heard of it for {most:g} s", 0.0 if self.closed else most)

    def _dial(self) -> list[Action]:
        return [Dial()] if self._calls else []


class Mailbox:
    """``received`` counts the peer's messages that came here. Messages are numbered by counting at both ends."""

    __slots__ = ("_acknowledged", "_kept", "received")

    def __init__(self) -> None:
        self.received = 0
        self._acknowledged = 0
        self._kept: list[bytes] | None = None

    def __len__(self) -> int:
        """Messages that the peer has not acknowledged."""
        return len(self._kept or ())

    def put(self, data: bytes) -> None:
        """Keeps the frame of one message until it is acknowledged."""
        if self._kept is None:
            self._kept = []
        self._kept.append(data)

    def acknowledge(self, count: int) -> None:
        """The peer has received ``count`` messages in all. WireError if that can't be."""
        kept = self._kept or []
        if count > self._acknowledged + len(kept):
            raise WireError("an acknowledgement of messages never sent")
        if count > self._acknowledged:
            self._kept = kept[count - self._acknowledged :] or None
            self._acknowledged = count

    def unacknowledged(self) -> list[bytes]:
        """The frames the peer may not have, in order."""
        return list(self._kept or ())
