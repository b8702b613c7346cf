"""The worker's half of the handshake: it proves that it knows the secret, and accepts only a leader that does."""

from __future__ import annotations

from musterpoint.base.loop import Loop
from musterpoint.base.untrusted import printable
from musterpoint.core.channel import wire
from musterpoint.core.channel.link import Link
from musterpoint.core.channel.secret import Seal, prove

_PATIENCE = 0.5


class Handshake:
    """Sends ``opening`` (a hello or a resume, as a frame) over ``link``; without a ``secret`` nothing more.

    With a secret it waits up to half a second for the leader's challenge, to send opening and proof together. A leader
    without a secret sends no challenge.
    """

    def __init__(self, loop: Loop, link: Link, secret: str, opening: bytes) -> None:
        self._link = link
        self._secret = secret
        self._opening = opening
        self._opened = False
        self._key = b""
        if secret:
            loop.call_later(_PATIENCE, self._open)
        else:
            self._open()

    def _open(self) -> None:
        if not self._opened:
            self._opened = True
            self._link.send(self._opening)

    def receive(self, payload: bytes) -> bytes | None:
        """Checks one frame: returns its payload if the leader sent it, None if it was part of the handshake.

        Raises:
            WireError: there is a secret, and the frame doesn't prove that the other end knows it.
        """
        if not self._secret or self._link.sealed:
            return payload
        if self._key:
            seal = Seal(self._key, leads=False)
            try:
                payload = seal.open(payload)
            except wire.WireError:
                if payload[:1] != b"{":
                    raise
            else:
                self._link.use_seal(seal)
                return payload
        message = wire.unpack(payload)
        if message["t"] == "challenge" and not self._key:
            proof, self._key = prove(self._secret, self._opening[wire.HEAD :], wire.token(message, "nonce"))
            self._open()
            self._link.send(wire.pack("proof", proof=proof))
            return None
        said = f" ({printable(wire.text(message, 'reason'), 200)})" if message["t"] == "refused" else ""
        raise wire.WireError(f"a {message['t']!r} that does not bear the mark of our secret{said}")
