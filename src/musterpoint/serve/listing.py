"""Lists with the filters, orders and pages that all List operations of SageMaker have in common."""

from __future__ import annotations

import base64
import json
from typing import Any, Mapping, NamedTuple, Sequence

from musterpoint.serve.errors import invalid
from musterpoint.serve.state import Record, State

_ORDERS = {"CreationTime": "created", "Name": "name", "Status": "status", "LastModifiedTime": "modified"}
_TIMES = {
    "CreationTimeAfter": "created > ?",
    "CreationTimeBefore": "created < ?",
    "LastModifiedTimeAfter": "modified > ?",
    "LastModifiedTimeBefore": "modified < ?",
}
PAGE = 10
"""Entries of a page where the request doesn't say."""


class Listed(NamedTuple):
    """One page, and the token of the next; empty: it was the last."""

    records: Sequence[Record]
    next_token: str

    def answer(self, name: str, summaries: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        found: dict[str, Any] = {name: list(summaries)}
        return {**found, "NextToken": self.next_token} if self.next_token else found


def listed(
    state: State,
    kind: str,
    parameters: Mapping[str, Any],
    where: Sequence[str] = (),
    values: Sequence[Any] = (),
    page: int = PAGE,
) -> Listed:
    """The page that ``parameters`` ask for. ``where`` and ``values`` are conditions of the operation's own."""
    conditions, given = list(where), list(values)
    for name, condition in _TIMES.items():
        if name in parameters:
            conditions.append(condition)
            given.append(float(parameters[name]))
    if "NameContains" in parameters:
        conditions.append("instr(lower(name), lower(?)) > 0")
        given.append(parameters["NameContains"])
    if "StatusEquals" in parameters:
        conditions.append("status = ?")
        given.append(parameters["StatusEquals"])
    column = _ORDERS[parameters.get("SortBy", "CreationTime")]
    down = parameters.get("SortOrder", "Descending") == "Descending"
    token = _read_token(parameters.get("NextToken", ""))
    if token is not None:
        conditions.append(f"({column}, number) {'<' if down else '>'} (?, ?)")
        given += token
    most = parameters.get("MaxResults", page)
    direction = "DESC" if down else "ASC"
    order = f"{column} {direction}, number {direction} LIMIT {int(most) + 1}"
    found = state.select(kind, " AND ".join(conditions), given, order)
    if len(found) <= most:
        return Listed(found, "")
    last = found[most - 1]
    return Listed(found[:most], _token(getattr(last, column), last.number))


def page_of(found: Sequence[Any], parameters: Mapping[str, Any], page: int = PAGE) -> tuple[Sequence[Any], str]:
    """The page of a list that is in memory, and the token of the next."""
    token = _read_token(parameters.get("NextToken", ""))
    start, most = (token[1] if token else 0), parameters.get("MaxResults", page)
    end = start + most
    return found[start:end], _token(None, end) if end < len(found) else ""


def _token(value: Any, number: int) -> str:
    return base64.urlsafe_b64encode(json.dumps([value, number]).encode()).decode()


def _read_token(token: str) -> list[Any] | None:
    if not token:
        return None
    try:
        value, number = json.loads(base64.urlsafe_b64decode(token.encode()))
        return [value, int(number)]
    except ValueError:
        raise invalid("Invalid NextToken: it isn't one that this server gave out") from None
