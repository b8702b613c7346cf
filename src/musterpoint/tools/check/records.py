"""Values between named tuples and JSON, by the types of their fields; what another host sends is checked."""

from __future__ import annotations

import math
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from musterpoint.base.untrusted import printable

MOST_TEXT = 4096
MOST_ITEMS = 65536
T = TypeVar("T")


def to_json(value: Any) -> Any:
    """``value`` as JSON has it: named tuples become objects."""
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return {name: to_json(getattr(value, name)) for name in value._fields}
    if isinstance(value, (tuple, list)):
        return [to_json(each) for each in value]
    return value


def from_json(kind: type[T], value: Any) -> T:
    """Decoded JSON as a named tuple ``kind``. Missing fields get their defaults; unknown ones are left out.

    Raises:
        ValueError: a field is missing that has no default, or has another type.
    """
    built: T = _value(kind, value, kind.__name__)
    return built


def _value(kind: Any, value: Any, what: str) -> Any:
    if kind is float and type(value) in (int, float) and math.isfinite(value):
        return float(value)
    if kind is int and type(value) is int and abs(value) < 2**63:
        return value
    if kind is bool and type(value) is bool:
        return value
    if kind is str and type(value) is str:
        return printable(value, MOST_TEXT)
    if get_origin(kind) is Literal and type(value) is str and value in get_args(kind):
        return value
    if get_origin(kind) is tuple and isinstance(value, list) and len(value) <= MOST_ITEMS:
        each, *_ = get_args(kind)
        return tuple(_value(each, one, what) for one in value)
    if hasattr(kind, "_fields") and isinstance(value, dict):
        hints = get_type_hints(kind)
        given = {name: _value(hints[name], value[name], f"{what}.{name}") for name in kind._fields if name in value}
        try:
            return kind(**given)
        except TypeError:
            raise ValueError(f"{what} lacks a field") from None
    raise ValueError(f"{what} is {printable(repr(value), 80)}")
