"""Proves a shared secret without sending it, and makes the key of a connection from it: HMAC-SHA256.

The worker proves first. The leader then proves itself by sealing its frames with the connection's key.
"""

from __future__ import annotations

# both load OpenSSL (3 MiB), so this module is imported only where there is a secret
from hashlib import sha256
from hmac import compare_digest, digest

from musterpoint.core.channel.wire import HEAD, WireError


def prove(secret: str, opening: bytes, nonce: str) -> tuple[str, bytes]:
    """The proof with which a worker answers the leader's ``nonce``, and the key of that one connection.

    ``opening`` is the worker's hello or resume as it was sent, with a nonce of its own. Proof and key are the halves of
    one HMAC: the proof says nothing about the key.
    """
    message = b"\0".join((b"muster", nonce.encode(), sha256(opening).digest()))
    mac = digest(secret.encode("utf-8", "surrogateescape"), message, "sha256")
    return mac[:16].hex(), mac[16:]


def check_proof(secret: str, opening: bytes, nonce: str, proof: str) -> bytes | None:
    """The key of the connection if ``proof`` is the right one, else None."""
    expected, key = prove(secret, opening, nonce)
    return key if compare_digest(proof.encode(), expected.encode()) else None


def derived(secret: str, purpose: str) -> str:
    """A token for one ``purpose``, which says nothing about the ``secret`` or about other tokens of it."""
    return digest(secret.encode("utf-8", "surrogateescape"), f"muster token {purpose}".encode(), "sha256").hex()


SIZE = 16
"""Bytes of a MAC: half of an HMAC-SHA256."""

_LARGE = 1024


class Seal:
    """Adds and checks the MACs of one connection, with the ``key`` of its handshake; ``leads``: the leader's end.

    A MAC covers direction, number and payload, so frames can't be reflected, repeated, dropped or reordered. For a
    large payload it covers the digest, and the direction's letter is lower-case.
    """

    __slots__ = ("_in", "_key", "_out", "_received", "_sent")

    _last: tuple[bytes, bytes] = (b"", b"")

    def __init__(self, key: bytes, leads: bool) -> None:
        self._key = key
        self._out, self._in = (b"L", b"W") if leads else (b"W", b"L")
        self._sent = self._received = 0

    def close(self, frame: bytes) -> bytes:
        """The head of a frame (as :func:`wire.frame` made it) with its MAC; what follows is the frame's payload."""
        if len(frame) - HEAD > _LARGE:
            mac = self._mac(self._out.lower(), self._sent, self._digest(frame))
        else:
            mac = self._mac(self._out, self._sent, frame[HEAD:])
        self._sent += 1
        return (len(frame) - HEAD + SIZE).to_bytes(HEAD, "big") + mac

    def open(self, data: bytes) -> bytes:
        """The payload in what came next. WireError: the other end did not send that next."""
        payload = data[SIZE:]
        if len(payload) > _LARGE:
            mac = self._mac(self._in.lower(), self._received, sha256(payload).digest())
        else:
            mac = self._mac(self._in, self._received, payload)
        if not compare_digest(mac, data[:SIZE]):
            raise WireError("a frame that does not bear the mark of our secret")
        self._received += 1
        return payload

    def _mac(self, direction: bytes, number: int, said: bytes) -> bytes:
        return digest(self._key, direction + number.to_bytes(8, "big") + said, "sha256")[:SIZE]

    @classmethod
    def _digest(cls, frame: bytes) -> bytes:
        """The SHA-256 of a frame's payload; the last one is kept, since one roster goes to thousands of hosts."""
        if cls._last[0] is not frame:
            cls._last = frame, sha256(memoryview(frame)[HEAD:]).digest()
        return cls._last[1]
