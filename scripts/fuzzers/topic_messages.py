"""Examples of topics' messages, made of their fields' types: a new topic is tried without a word about it here."""

from __future__ import annotations

import types
import typing
from typing import Any, Union

from musterpoint.base.failure import Failure
from musterpoint.base.position import Position
from musterpoint.core.channel import codec
from musterpoint.core.channel.bounds import Length, Range, Text, Which
from musterpoint.core.channel.topic import Topic

_OF_TYPES: dict[Any, Any] = {
    Failure: Failure("algo-1", 7, "user", "user", "boom", 1, 0, at=1.5).to_wire(),
    Position: [*Position(0, "place", "is in read", "train.py:41")],
}
_TEXTS = ("algo-1", "10.0.0.1", "", "{}")
"""What fits where only some texts do."""


def example(entry: tuple[Topic[Any], type[Any]]) -> dict[str, Any]:
    """A message of one kind, as JSON has it; ``entry`` is of the table of topics."""
    message = entry[1]
    return {"t": codec.kind_of(message), **{name: _value(hint) for name, hint in codec.hints(message).items()}}


def _value(hint: Any) -> Any:
    bounds: tuple[Any, ...] = ()
    if typing.get_origin(hint) is typing.Annotated:
        hint, *rest = typing.get_args(hint)
        bounds = tuple(rest)
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if hint in _OF_TYPES:
        return _OF_TYPES[hint]
    if hint is bool:
        return True
    if hint is int:
        return next((each.least for each in bounds if isinstance(each, Range)), 1)
    if hint is str:
        which = next((each for each in bounds if isinstance(each, Which)), None)
        longest = next((each.longest for each in bounds if isinstance(each, Text)), 5)
        return "ready"[:longest] if which is None else next(text for text in _TEXTS if which.fits(text))
    if origin is typing.Literal:
        return inner[0]
    if origin is tuple:
        least = next((each.least for each in bounds if isinstance(each, Length)), 0)
        return [_value(inner[0])] * max(1, least)
    if origin in (Union, types.UnionType):
        return _value(next(each for each in inner if each is not type(None)))
    return [_value(each) for each in codec.hints(hint).values()]
