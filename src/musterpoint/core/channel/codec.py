"""Messages of topics: named tuples on both sides, a JSON object between them. Decoders are made of the fields' types.

A field may be a bool, an int, a str, a ``Literal``, a tuple of one type, a named tuple (a JSON list of its fields), any
of them or None, or a type with ``from_wire``, which raises ValueError. The bounds are in
:mod:`musterpoint.core.channel.bounds`.
"""

from __future__ import annotations

import types
import typing
from typing import Any, Callable, Union

from musterpoint.base.untrusted import printable
from musterpoint.core.channel import wire
from musterpoint.core.channel.bounds import Argument, Length, Range, Text, Which

Decoder = Callable[[Any], Any]
"""Makes a field's value of decoded JSON. ``ValueError`` says what it is instead."""

_ANY_NUMBER = Range(0, 2**53)
_ANY_TEXT = Text(4096)
_ANY_LENGTH = Length(0, 65536)


def kind_of(message: type[Any]) -> str:
    """The kind that messages of this type have on the wire."""
    return message.__name__.lower()


def pack(message: Any) -> bytes:
    """A message as one frame."""
    return wire.pack(kind_of(type(message)), **dict(zip(message._fields, map(_plain, message))))


def unpack(message: type[Any], fields: dict[str, Any]) -> Any:
    """The message in ``fields``, a JSON object.

    Raises:
        WireError: a field is missing, has another type, isn't within its bounds, or is unknown.
    """
    found = []
    for name, decode in _decoders(message):
        try:
            if name not in fields:
                raise ValueError("missing")
            found.append(decode(fields[name]))
        except ValueError as error:
            raise wire.WireError(f"a message {kind_of(message)!r} whose {name!r} is {error}") from None
    if unknown := fields.keys() - {*message._fields, "t"}:
        raise wire.WireError(f"a message {kind_of(message)!r} whose {printable(min(unknown), 80)!r} is unknown")
    return message(*found)


def check_bounds(message: Any, most: int) -> None:
    """Raises ValueError if the other end would refuse ``message``, or a frame of more than ``most`` bytes."""
    unpack(type(message), dict(zip(message._fields, map(_plain, message))))
    size = len(pack(message))
    if size > most:
        raise ValueError(f"a message {kind_of(type(message))!r} of {size} bytes, more than {most}")


def hints(message: type[Any]) -> dict[str, Any]:
    """The types of its fields, with their bounds."""
    return typing.get_type_hints(message, include_extras=True)


_MADE: dict[type[Any], list[tuple[str, Decoder]]] = {}


def _decoders(message: type[Any]) -> list[tuple[str, Decoder]]:
    made = _MADE.get(message)
    if made is None:
        found = hints(message)
        made = _MADE[message] = [(name, _decoder(found[name])) for name in message._fields]
    return made


def _plain(value: Any) -> Any:
    """What JSON has of a field's value."""
    if isinstance(value, tuple):
        return value.to_wire() if hasattr(value, "to_wire") else [_plain(each) for each in value]
    return value


def _decoder(hint: Any) -> Decoder:
    bounds: tuple[Any, ...] = ()
    if typing.get_origin(hint) is typing.Annotated:
        hint, *rest = typing.get_args(hint)
        bounds = tuple(rest)
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if hint is bool:
        return _boolean
    if hint is int:
        return _number(_bound(bounds, Range) or _ANY_NUMBER)
    if hint is str:
        return _text(bounds)
    if origin is typing.Literal:
        return _one_of(inner)
    if origin is tuple and inner[1:] == (...,):
        return _several(_decoder(inner[0]), _bound(bounds, Length) or _ANY_LENGTH)
    if origin in (Union, types.UnionType):
        (other,) = (each for each in inner if each is not type(None))
        return _optional(_decoder(other))
    if hasattr(hint, "from_wire"):
        decode: Decoder = hint.from_wire
        return decode
    if hasattr(hint, "_fields"):
        return _record(hint)
    raise TypeError(f"no field of a message may be {hint!r}")


def _bound(bounds: tuple[Any, ...], kind: type[Any]) -> Any:
    return next((each for each in bounds if isinstance(each, kind)), None)


def _boolean(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError("neither true nor false")
    return value


def _number(bound: Range) -> Decoder:
    def decode(value: Any) -> int:
        if type(value) is not int or not bound.least <= value <= bound.most:
            raise ValueError(f"no number from {bound.least} to {bound.most}")
        return value

    return decode


def _text(bounds: tuple[Any, ...]) -> Decoder:
    which, argument, bound = _bound(bounds, Which), _bound(bounds, Argument), _bound(bounds, Text) or _ANY_TEXT

    def decode_which(value: Any) -> str:
        if not isinstance(value, str) or not which.fits(value):
            raise ValueError(which.what)
        return value

    def decode_argument(value: Any) -> str:
        if not isinstance(value, str) or len(value) > argument.longest or "\0" in value:
            raise ValueError(f"no text of at most {argument.longest} characters without a zero byte")
        return _encodable(value, "surrogateescape")

    def decode(value: Any) -> str:
        if not isinstance(value, str) or len(value) > bound.longest:
            raise ValueError(f"no text of at most {bound.longest} characters")
        _encodable(value, "strict")
        return printable(value, bound.longest, lines=bound.lines) if bound.shown else value

    return decode_which if which is not None else decode_argument if argument is not None else decode


def _encodable(value: str, otherwise: str) -> str:
    try:
        value.encode("utf-8", otherwise)
    except UnicodeEncodeError:  # JSON can spell half of a pair
        raise ValueError("no text of Unicode") from None
    return value


def _one_of(values: tuple[Any, ...]) -> Decoder:
    def decode(value: Any) -> Any:
        if not isinstance(value, str) or value not in values:
            raise ValueError(f"none of {', '.join(values)}")
        return value

    return decode


def _several(decode_one: Decoder, bound: Length) -> Decoder:
    def decode(value: Any) -> tuple[Any, ...]:
        if not isinstance(value, list) or not bound.least <= len(value) <= bound.most:
            raise ValueError(f"no list of {bound.least} to {bound.most}")
        return tuple(map(decode_one, value))

    return decode


def _optional(decode_one: Decoder) -> Decoder:
    return lambda value: None if value is None else decode_one(value)


def _record(record: type[Any]) -> Decoder:
    decoders = _decoders(record)

    def decode(value: Any) -> Any:
        if not isinstance(value, list) or len(value) != len(decoders):
            raise ValueError(f"no list of {len(decoders)} values")
        return record(*(decode_one(each) for (_name, decode_one), each in zip(decoders, value)))

    return decode
