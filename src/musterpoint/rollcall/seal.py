"""Frames that only the two ends of one connection can make, each once and in its order: a MAC before each payload.

Imported only where there is a secret. What is written stays readable on the way; nothing in it is confidential.
"""

from __future__ import annotations

import hashlib
import hmac

from musterpoint.rollcall.wire import HEAD, WireError

SIZE = 16
"""Bytes of a MAC: half of an HMAC-SHA256."""

_LARGE = 1024


class Seal:
    """Both directions of one connection under the ``key`` of its handshake; ``leads``: this is the leader's end.

    A MAC covers direction, number and the payload's digest, so a frame can't be reflected, repeated, left out or moved.
    """

    __slots__ = ("_in", "_key", "_out", "_received", "_sent")

    _last: tuple[bytes, bytes] = (b"", b"")

    def __init__(self, key: bytes, leads: bool) -> None:
        self._key = key
        self._out, self._in = (b"L", b"W") if leads else (b"W", b"L")
        self._sent = self._received = 0

    def close(self, frame: bytes) -> bytes:
        """The head of a frame (as :func:`wire.frame` made it) with its MAC; what follows is the frame's payload."""
        digest = self._digest(frame)
        mac = _mac(self._key, self._out, self._sent, digest)
        self._sent += 1
        return (len(frame) - HEAD + SIZE).to_bytes(HEAD, "big") + mac

    def open(self, data: bytes) -> bytes:
        """The payload in what came next. WireError: the other end did not send that next."""
        payload = data[SIZE:]
        mac = _mac(self._key, self._in, self._received, hashlib.sha256(payload).digest())
        if not hmac.compare_digest(mac, data[:SIZE]):
            raise WireError("a frame that does not bear the mark of our secret")
        self._received += 1
        return payload

    @classmethod
    def _digest(cls, frame: bytes) -> bytes:
        """The roster goes to thousands in a row: its digest is made once."""
        if len(frame) < _LARGE:
            return hashlib.sha256(memoryview(frame)[HEAD:]).digest()
        if cls._last[0] is not frame:
            cls._last = frame, hashlib.sha256(memoryview(frame)[HEAD:]).digest()
        return cls._last[1]


def _mac(key: bytes, direction: bytes, number: int, digest: bytes) -> bytes:
    return hmac.digest(key, direction + number.to_bytes(8, "big") + digest, "sha256")[:SIZE]
