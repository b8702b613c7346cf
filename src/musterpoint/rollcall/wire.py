"""Bytes to messages and back: a four-byte length, then a JSON object, a zlib-compressed one, or a beat.

A beat is the decimal count of messages received so far, which is also the acknowledgement; the leader's are answered
with one. Messages are numbered by
counting, so the same bytes can go to every connection.
"""

from __future__ import annotations

import json
from typing import Any

PROTOCOL = 1
"""Counts up when hosts of two versions can no longer muster together."""

HELLO_LIMIT = 16 * 1024
"""Bytes of a frame from somebody who hasn't been seated yet."""
MEMBER_LIMIT = 1024 * 1024
"""Bytes of a frame from a seated host."""
LEADER_LIMIT = 16 * 1024 * 1024
"""Bytes of a frame from the leader (the roster of 10,000 hosts is some 100 KB)."""
UNPACKED_LIMIT = 64 * 1024 * 1024

_HEAD = 4
_JSON = ord("{")
_ZLIB = ord("x")


class WireError(ValueError):
    """The other end doesn't speak this protocol."""


def frame(payload: bytes) -> bytes:
    return len(payload).to_bytes(_HEAD, "big") + payload


def pack(kind: str, **fields: Any) -> bytes:
    """A message as one frame."""
    return frame(json.dumps({"t": kind, **fields}, separators=(",", ":")).encode())


def pack_large(kind: str, **fields: Any) -> bytes:
    """A message as one compressed frame; only the leader sends such."""
    import zlib

    return frame(zlib.compress(pack(kind, **fields)[_HEAD:], 6))


def pack_beat(received: int) -> bytes:
    return frame(b"%d" % received)


def is_beat(payload: bytes) -> bool:
    return payload[:1].isdigit()


def beat_count(payload: bytes) -> int:
    """How many messages the other end has received, as its beat says."""
    if len(payload) > 18 or not payload.isdigit():
        raise WireError("not a beat")
    return int(payload)


def unpack(payload: bytes, compressed: bool = False) -> dict[str, Any]:
    """The message in ``payload``: a JSON object with a kind ``t``. ``compressed`` allows a compressed one.

    Raises:
        WireError: it isn't one.
    """
    first = payload[0] if payload else 0
    if compressed and first == _ZLIB:
        payload = _inflate(payload)
    elif first != _JSON:
        raise WireError("a frame that is no message")
    try:
        message = json.loads(payload)
    except (ValueError, RecursionError):
        raise WireError("a message that is not JSON") from None
    if not isinstance(message, dict) or not isinstance(message.get("t"), str):
        raise WireError("a message without a kind")
    return message


def _inflate(payload: bytes) -> bytes:
    import zlib

    inflater = zlib.decompressobj()
    try:
        data = inflater.decompress(payload, UNPACKED_LIMIT)
    except zlib.error:
        raise WireError("a compressed message that can't be expanded") from None
    if inflater.unconsumed_tail or not inflater.eof:
        raise WireError("a compressed message that is too large or cut short")
    return data


class Frames:
    """Cuts a stream into frames. ``limit`` may change between two frames."""

    __slots__ = ("_data", "limit")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._data = b""

    def feed(self, data: bytes) -> None:
        self._data = self._data + data if self._data else data

    def next(self) -> bytes | None:
        """The next whole frame's payload, or None until more has come.

        Raises:
            WireError: the frame is longer than the limit, before any of it is kept.
        """
        data = self._data
        if len(data) < _HEAD:
            return None
        end = _HEAD + int.from_bytes(data[:_HEAD], "big")
        if end - _HEAD > self.limit:
            raise WireError(f"a frame of {end - _HEAD} bytes where at most {self.limit} are expected")
        if len(data) < end:
            return None
        self._data = data[end:]
        return data[_HEAD:end]


def text(message: dict[str, Any], key: str, longest: int = 4096) -> str:
    """A text field of ``message``; WireError if it is missing, no text or too long."""
    value = message.get(key)
    if not isinstance(value, str) or len(value) > longest:
        raise WireError(f"a message {message.get('t')!r} whose {key!r} is no text of at most {longest} characters")
    return value


def number(message: dict[str, Any], key: str, most: int = 2**53, least: int = 0) -> int:
    """A whole number of ``message``, from ``least`` to ``most``; WireError else."""
    value = message.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise WireError(f"a message {message.get('t')!r} whose {key!r} is no number from {least} to {most}")
    return value


def texts(message: dict[str, Any], key: str, most: int = 64, longest: int = 255) -> tuple[str, ...]:
    """A list of at most ``most`` texts of at most ``longest`` characters; WireError else."""
    value = message.get(key)
    if not isinstance(value, list) or len(value) > most or any(type(v) is not str or len(v) > longest for v in value):
        raise WireError(f"a message {message.get('t')!r} whose {key!r} is no list of texts")
    return tuple(value)


def numbers(message: dict[str, Any], key: str, least: int, largest: int, most: int) -> tuple[int, ...]:
    """A list of at most ``most`` whole numbers from ``least`` to ``largest``; WireError else."""
    value = message.get(key)
    if not isinstance(value, list) or len(value) > most or any(type(v) is not int for v in value):
        raise WireError(f"a message {message.get('t')!r} whose {key!r} is no list of at most {most} numbers")
    if value and not least <= min(value) <= max(value) <= largest:
        raise WireError(f"a message {message.get('t')!r} whose {key!r} has a number not from {least} to {largest}")
    return tuple(value)
