"""Bytes to messages and back: a four-byte length, then a JSON object, a zlib-compressed one, or a beat.

A beat is the decimal count of messages received so far, which is also the acknowledgement; the leader's are answered
with one. It may have two times, by which the leader compares clocks. Messages carry no number (both ends count), so the
same bytes can go to every connection. Nothing received is trusted: every field has limits, and a message that exceeds
them is a :class:`WireError`.
"""

from __future__ import annotations

import json
import zlib
from typing import Any

from musterpoint.base.failure import Failure
from musterpoint.base.records import NamedTuple
from musterpoint.base.untrusted import is_host_name
from musterpoint.core.channel.bounds import STOP_SIGNALS, is_address
from musterpoint.core.channel.bounds import WireError as WireError

PROTOCOL = 11
"""Counts up when hosts of two versions can no longer muster together."""

HELLO_LIMIT = 16 * 1024
"""Bytes of a frame from a caller that has no seat yet."""
MEMBER_LIMIT = 1024 * 1024
"""Bytes of a frame from a seated host."""
LEADER_LIMIT = 16 * 1024 * 1024
"""Bytes of a frame from the leader (the roster of 100,000 hosts is some 300 KB)."""
UNPACKED_LIMIT = LEADER_LIMIT
MOST_VALUES = 1024 * 1024
"""Most values in one message: a decoded value may take 30 times its bytes. A roster has up to 71 a host, and few
where hosts are alike."""

HEAD = 4
"""Bytes of a frame before its payload."""

_LONGEST_KIND = 16
_JSON = ord("{")
_ZLIB = ord("x")


def _no_number(name: str) -> Any:
    raise ValueError(f"{name} is no number")


_DECODER = json.JSONDecoder(parse_constant=_no_number)
_ENCODER = json.JSONEncoder(separators=(",", ":"))


def frame(payload: bytes) -> bytes:
    return len(payload).to_bytes(HEAD, "big") + payload


def pack(kind: str, **fields: Any) -> bytes:
    """A message as one frame."""
    return frame(_ENCODER.encode({"t": kind, **fields}).encode())


def pack_large(kind: str, **fields: Any) -> bytes:
    """A message as one compressed frame; only the leader sends these."""
    return frame(zlib.compress(pack(kind, **fields)[HEAD:], 6))


class Beat(NamedTuple):
    """``received``: how many messages have come so far. The leader's beat says when it was ``asked`` for an answer; the
    answer repeats that, and says when it was given (``at``). Both are microseconds since the epoch, 0: unknown.
    """

    received: int
    asked: int = 0
    at: int = 0


def pack_beat(received: int, asked: int = 0, at: int = 0) -> bytes:
    return frame(b"%d %d %d" % (received, asked, at) if asked else b"%d" % received)


def is_beat(payload: bytes) -> bool:
    return payload[:1].isdigit()


def read_beat(payload: bytes) -> Beat:
    """Raises WireError."""
    numbers = payload.split(b" ", 3)
    if len(numbers) not in (1, 3) or not all(each.isdigit() and len(each) <= 18 for each in numbers):
        raise WireError("not a beat")
    return Beat(*map(int, numbers))


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
    if len(payload) > MOST_VALUES and sum(map(payload.count, (b",", b"[", b"{"))) > MOST_VALUES:
        raise WireError(f"a message with more than {MOST_VALUES:,} values")
    try:
        message = _DECODER.decode(payload.decode())
    except (ValueError, RecursionError):
        raise WireError("a message that is not JSON") from None
    kind = message.get("t") if isinstance(message, dict) else None
    if not isinstance(kind, str) or not kind.isalpha() or not kind.isascii() or len(kind) > _LONGEST_KIND:
        raise WireError("a message without a kind")
    found: dict[str, Any] = message
    return found


def _inflate(payload: bytes) -> bytes:
    inflater = zlib.decompressobj()
    try:
        data = inflater.decompress(payload, UNPACKED_LIMIT)
    except zlib.error:
        raise WireError("a compressed message that can't be expanded") from None
    if inflater.unconsumed_tail or not inflater.eof:
        raise WireError("a compressed message that is too large or cut short")
    return data


class Frames:
    """Cuts a stream into frames of at most ``limit`` bytes."""

    __slots__ = ("_at", "_data", "_limit")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._data: bytes | bytearray = b""
        self._at = 0

    def set_limit(self, limit: int) -> None:
        """The next frames may have ``limit`` bytes."""
        self._limit = limit

    def feed(self, data: bytes) -> None:
        if self._at == len(self._data):
            self._data = data
        else:  # the rest is moved once per feed, not once per frame
            if isinstance(self._data, bytes):
                self._data = bytearray(memoryview(self._data)[self._at :])
            else:
                del self._data[: self._at]
            self._data += data
        self._at = 0

    def next(self) -> bytes | None:
        """The next whole frame's payload, or None until more has come.

        Raises:
            WireError: the frame is longer than the limit, before any of it is kept.
        """
        data, start = self._data, self._at + HEAD
        if len(data) < start:
            return None
        end = start + int.from_bytes(data[self._at : start], "big")
        if end - start > self._limit:
            raise WireError(f"a frame of {end - start} bytes where at most {self._limit} are expected")
        if len(data) < end:
            return None
        payload = bytes(data[start:end])
        if end == len(data):
            self._data, self._at = b"", 0
        else:
            self._at = end
        return payload


def text(message: dict[str, Any], key: str, longest: int = 4096) -> str:
    """A text field of ``message``; WireError if it is missing, no text, no Unicode or too long."""
    value = message.get(key)
    if not isinstance(value, str) or len(value) > longest or not _is_unicode(value):
        raise WireError(f"a message {message.get('t')!r} whose {key!r} is no text of at most {longest} characters")
    return value


def _is_unicode(value: str, otherwise: str = "strict") -> bool:
    try:
        value.encode("utf-8", otherwise)
    except UnicodeEncodeError:  # JSON can spell half of a pair
        return False
    return True


def token(message: dict[str, Any], key: str, longest: int = 64, least: int = 1) -> str:
    """A field of ``message`` that is ASCII letters and digits, such as what :func:`session.random_token` gives."""
    value = message.get(key)
    plain = isinstance(value, str) and value.isascii() and (value.isalnum() or not value)
    if not isinstance(value, str) or not plain or not least <= len(value) <= longest:
        raise WireError(f"a message {message.get('t')!r} whose {key!r} is no token of at most {longest} characters")
    return value


def host(message: dict[str, Any], key: str = "host") -> str:
    """A host's name in ``message``; WireError else."""
    value = message.get(key)
    if not isinstance(value, str) or not is_host_name(value):
        raise WireError(f"a message {message.get('t')!r} whose {key!r} is no host's name")
    return value


def addresses(message: dict[str, Any], key: str, most: int) -> tuple[str, ...]:
    """At most ``most`` numeric addresses of ``message``; WireError else."""
    found = texts(message, key, most, 64)
    if not all(map(is_address, found)):
        raise WireError(f"a message {message.get('t')!r} whose {key!r} has what is no numeric address")
    return found


def stop_signal(message: dict[str, Any], key: str = "signal") -> int:
    """A signal that asks a host to stop; WireError else."""
    value = number(message, key, 255)
    if value not in STOP_SIGNALS:
        raise WireError(f"a message {message.get('t')!r} whose {key!r} is {value}, which stops nobody")
    return value


def number(message: dict[str, Any], key: str, most: int = 2**53, least: int = 0) -> int:
    """A whole number of ``message``, from ``least`` to ``most``; WireError else."""
    value = message.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise WireError(f"a message {message.get('t')!r} whose {key!r} is no number from {least} to {most}")
    return value


def texts(message: dict[str, Any], key: str, most: int = 64, longest: int = 255) -> tuple[str, ...]:
    """A list of at most ``most`` texts of at most ``longest`` characters, as an argument may be; WireError else."""
    value = message.get(key)
    if not isinstance(value, list) or len(value) > most or any(type(v) is not str or len(v) > longest for v in value):
        raise WireError(f"a message {message.get('t')!r} whose {key!r} is no list of texts")
    if not all(_is_unicode(one, "surrogateescape") for one in value):
        raise WireError(f"a message {message.get('t')!r} whose {key!r} has a text that is neither Unicode nor bytes")
    return tuple(value)


def failure(message: dict[str, Any], key: str) -> Failure:
    """A failure in ``message``; WireError else."""
    try:
        return Failure.from_wire(message.get(key))
    except ValueError as error:
        raise WireError(f"a message {message.get('t')!r} with no failure: {error}") from None


def boolean(message: dict[str, Any], key: str) -> bool:
    """True or false in ``message``; WireError else."""
    value = message.get(key)
    if not isinstance(value, bool):
        raise WireError(f"a message {message.get('t')!r} whose {key!r} is neither true nor false")
    return value


def numbers(message: dict[str, Any], key: str, least: int, largest: int, most: int) -> tuple[int, ...]:
    """A list of at most ``most`` whole numbers from ``least`` to ``largest``; WireError else."""
    value = message.get(key)
    if not isinstance(value, list) or len(value) > most or any(type(v) is not int for v in value):
        raise WireError(f"a message {message.get('t')!r} whose {key!r} is no list of at most {most} numbers")
    if value and not least <= min(value) <= max(value) <= largest:
        raise WireError(f"a message {message.get('t')!r} whose {key!r} has a number not from {least} to {largest}")
    return tuple(value)
