"""Numbered messages to one peer, kept until it has them, so that a resumed session loses and doubles nothing."""

from __future__ import annotations

from musterpoint.rollcall.wire import WireError


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
