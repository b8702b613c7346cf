"""What a host says first on a connection: who it is (:class:`Hello`), or which session it resumes (:class:`Resume`)."""

from __future__ import annotations

import os
from typing import Any, NamedTuple

from musterpoint.rollcall import wire
from musterpoint.rollcall.roster import MOST_PORTS, Offer


class Hello(NamedTuple):
    """``incarnation`` is drawn once per start of a host. ``sees`` are the addresses it sees for the leader's name,
    ``dialled`` is the one it connected to. ``nonce`` is empty without a secret. ``stop`` is the signal by which this
    host was told to stop before it called, or 0.
    """

    host: str
    offer: Offer
    incarnation: str
    sees: tuple[str, ...] = ()
    dialled: str = ""
    nonce: str = ""
    protocol: int = wire.PROTOCOL
    stop: int = 0

    def pack(self) -> bytes:
        return wire.pack(
            "hello", protocol=self.protocol, host=self.host, job=self.offer.job, launcher=self.offer.launcher,
            slots=self.offer.slots, version=self.offer.version, room=self.offer.room, ports=list(self.offer.ports),
            incarnation=self.incarnation, sees=list(self.sees), dialled=self.dialled, nonce=self.nonce,
            stop=self.stop,
        )  # fmt: skip

    @classmethod
    def from_wire(cls, message: dict[str, Any]) -> Hello:
        """Raises WireError. Of another protocol only the host and the protocol are looked at."""
        host, protocol = wire.text(message, "host", 253), wire.number(message, "protocol")
        if protocol != wire.PROTOCOL:
            return cls(host, Offer("", "", 0, ""), "", protocol=protocol)
        offer = Offer(
            wire.text(message, "job"), wire.text(message, "launcher", 64),
            wire.number(message, "slots", 65536), wire.text(message, "version", 64),
            wire.number(message, "room", 65536), wire.numbers(message, "ports", 1, 65535, MOST_PORTS),
        )  # fmt: skip
        return cls(
            host, offer, wire.text(message, "incarnation", 64), wire.texts(message, "sees"),
            wire.text(message, "dialled", 64), wire.text(message, "nonce", 64), protocol,
            wire.number(message, "stop", 255),
        )  # fmt: skip


class Resume(NamedTuple):
    """``token`` is what the leader gave this host with its welcome; ``got`` counts the messages received so far."""

    host: str
    session: str
    token: str
    got: int

    def pack(self) -> bytes:
        return wire.pack("resume", protocol=wire.PROTOCOL, **self._asdict())

    @classmethod
    def from_wire(cls, message: dict[str, Any]) -> Resume:
        """Raises WireError."""
        return cls(
            wire.text(message, "host", 253), wire.text(message, "session", 64),
            wire.text(message, "token", 64), wire.number(message, "got"),
        )  # fmt: skip


def draw() -> str:
    """128 random bits as text: an incarnation, a session, a token, a nonce."""
    return os.urandom(16).hex()
