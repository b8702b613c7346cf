"""Seats as columns, for the roster on its way: it goes to every host, so its bytes count with the square of the hosts.

What is the same for all stands once, names that count up are runs, and IPv4 addresses are their four bytes.
"""

from __future__ import annotations

import re
from typing import Any, Sequence

from musterpoint.base.readers import MOST_HOSTS
from musterpoint.core.channel import wire
from musterpoint.core.rollcall.roster import Roster

_MOST_COLUMNS = 16
_LONGEST_TEXT = 4096
_LONGEST_NAME = 255
_NUMBERED = re.compile(r"(.*?)([0-9]{1,9})([^0-9]*)", re.DOTALL | re.ASCII)
_ADDRESS = re.compile(r"(0|[1-9][0-9]{0,2})\.(0|[1-9][0-9]{0,2})\.(0|[1-9][0-9]{0,2})\.(0|[1-9][0-9]{0,2})", re.ASCII)


def pack_roster(roster: Roster) -> bytes:
    """The leader's message with it, as one frame."""
    return wire.pack_large("roster", roster={**roster.to_wire(), "seats": fold(roster.seats)})


def read_roster(value: Any, me: str | int) -> Roster:
    """As :meth:`Roster.from_wire`, of what :func:`pack_roster` has made of a roster."""
    if isinstance(value, dict) and isinstance(value.get("seats"), dict):
        value = {**value, "seats": unfold(value["seats"])}
    return Roster.from_wire(value, me)


def fold(rows: Sequence[Sequence[Any]]) -> dict[str, Any]:
    """``rows`` of equal length, as JSON that :func:`unfold` takes."""
    return {"count": len(rows), "columns": [_column(values) for values in zip(*rows, strict=True)]}


def unfold(table: Any) -> list[tuple[Any, ...]]:
    """The rows that were folded; ``ValueError`` says what is wrong with ``table``, decoded JSON that isn't trusted."""
    count = table.get("count") if isinstance(table, dict) else None
    columns = table.get("columns") if isinstance(table, dict) else None
    if type(count) is not int or not 0 <= count <= MOST_HOSTS:
        raise ValueError(f"not a table of seats: its count is none from 0 to {MOST_HOSTS}")
    if not isinstance(columns, list) or len(columns) > _MOST_COLUMNS:
        raise ValueError(f"not a table of seats: no list of at most {_MOST_COLUMNS} columns")
    return list(zip(*(_values(column, count) for column in columns), strict=True))


def _column(values: Sequence[Any]) -> dict[str, Any]:
    first = values[0]
    if all(type(each) is type(first) and each == first for each in values):
        return {"all": first}
    if all(isinstance(each, str) for each in values):
        if (octets := _octets(values)) is not None:
            return {"v4": [bytes(each).hex() for each in octets]}
        runs = _runs(values)
        if 2 * len(runs) <= len(values):
            return {"runs": runs}
    return {"each": list(values)}


def _octets(values: Sequence[str]) -> list[list[int]] | None:
    """The four bytes of each address, as four lists; None if one of them is no IPv4 address."""
    found: list[list[int]] = [[], [], [], []]
    for value in values:
        match = _ADDRESS.fullmatch(value)
        if match is None:
            return None
        for octet, digits in zip(found, match.groups(), strict=True):
            octet.append(int(digits))
    return found if all(max(octet) < 256 for octet in found) else None


def _runs(names: Sequence[str]) -> list[list[Any]]:
    """Names that count up: what is before the number, the first number, how many, what is after it."""
    runs: list[list[Any]] = []
    expected = None
    for name in names:
        if name == expected:
            runs[-1][2] += 1
        else:
            match = _NUMBERED.fullmatch(name)
            runs.append([match[1], match[2], 1, match[3]] if match is not None else [name, "", 1, ""])
        before, number, count, after = runs[-1]
        expected = _name(before, number, count, after) if number else None
    return runs


def _name(before: str, number: str, more: int, after: str) -> str:
    return f"{before}{str(int(number) + more).zfill(len(number))}{after}"


def _values(column: Any, count: int) -> Sequence[Any]:
    kind, value = next(iter(column.items())) if isinstance(column, dict) and len(column) == 1 else ("", None)
    if kind == "all":
        return [_same(value)] * count
    if kind == "each" and isinstance(value, list) and len(value) == count:
        return value
    if kind == "v4" and isinstance(value, list) and len(value) == 4 and all(isinstance(each, str) for each in value):
        octets = [bytes.fromhex(each) for each in value]
        if all(len(each) == count for each in octets):
            return [f"{a}.{b}.{c}.{d}" for a, b, c, d in zip(*octets, strict=True)]
    if kind == "runs" and isinstance(value, list) and len(value) <= count and all(map(_is_run, value)):
        counted = sum(run[2] for run in value)
        if counted == count:
            return [
                _name(before, number, place, after) if number else before
                for before, number, many, after in value
                for place in range(many)
            ]
    raise ValueError(f"not a table of seats: a column {kind[:16]!r} that isn't one of {count} seats")


def _same(value: Any) -> Any:
    """What all seats have; a list becomes one tuple, which they share."""
    if isinstance(value, list):
        value = tuple(value)
        if len(value) > _LONGEST_TEXT or any(isinstance(each, (list, dict)) for each in value):
            raise ValueError("not a table of seats: a column of lists that are too long")
    elif isinstance(value, dict) or (isinstance(value, str) and len(value) > _LONGEST_TEXT):
        raise ValueError("not a table of seats: a column of values that no seat has")
    return value


def _is_run(run: Any) -> bool:
    if not isinstance(run, list) or len(run) != 4 or type(run[2]) is not int or not 1 <= run[2] <= MOST_HOSTS:
        return False
    texts = (run[0], run[1], run[3])
    if not all(isinstance(each, str) and len(each) <= _LONGEST_NAME for each in texts):
        return False
    number: str = run[1]
    return not number or (number.isascii() and number.isdecimal() and len(number) <= 9)
