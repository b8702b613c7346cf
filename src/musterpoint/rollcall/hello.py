"""What a host says first on a connection: who it is (:class:`Hello`), or which session it resumes (:class:`Resume`)."""

from __future__ import annotations

import os
from typing import Any, NamedTuple

from musterpoint.rollcall import wire
from musterpoint.rollcall.roster import MOST_PORTS, MOST_SLOTS, Offer

MOST_ADDRESSES = 8
"""Of the leader's addresses, as a host sees them, that many are told."""


class Hello(NamedTuple):
    """``incarnation`` is drawn once per start of a host. ``sees`` are the addresses it sees for the leader's name,
    ``dialled`` is the one it connected to. ``nonce`` is empty without a secret. ``stop`` is the signal by which this
    host was told to stop before it called, or 0. Without a proof of the secret all of it is only what somebody says.
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
        host, protocol = wire.host(message), wire.number(message, "protocol")
        if protocol != wire.PROTOCOL:
            return cls(host, Offer("", "", 0, ""), "", protocol=protocol)
        offer = Offer(
            wire.text(message, "job", 1024), wire.text(message, "launcher", 64),
            wire.number(message, "slots", MOST_SLOTS), wire.text(message, "version", 64),
            wire.number(message, "room", MOST_SLOTS), wire.numbers(message, "ports", 1, 65535, MOST_PORTS),
        )  # fmt: skip
        dialled = wire.text(message, "dialled", 64)
        if dialled and not wire.is_address(dialled):
            raise wire.WireError("a message 'hello' whose 'dialled' is no numeric address")
        return cls(
            host, offer, wire.token(message, "incarnation"), wire.addresses(message, "sees", MOST_ADDRESSES), dialled,
            wire.token(message, "nonce", least=0), protocol, _stop_of(message),
        )  # fmt: skip


def _stop_of(message: dict[str, Any]) -> int:
    return wire.number(message, "stop", 0) if message.get("stop") == 0 else wire.stop_signal(message, "stop")


class Resume(NamedTuple):
    """``token`` is what the leader gave this host with its welcome; ``got`` counts the messages received so far.
    ``nonce`` is empty without a secret.
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
            wire.host(message), wire.token(message, "session"), wire.token(message, "token"),
            wire.number(message, "got"), wire.token(message, "nonce", least=0),
        )  # fmt: skip


def draw() -> str:
    """128 random bits as text: an incarnation, a session, a token, a nonce."""
    return os.urandom(16).hex()
