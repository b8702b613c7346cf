"""Search over training jobs: filters, nested filters and subexpressions, as the API has them."""

from __future__ import annotations

import re
from datetime import datetime, timezone
from typing import Any, Callable, Iterator, Mapping, Sequence

from musterpoint.serve.context import Request
from musterpoint.serve.errors import invalid, not_here
from musterpoint.serve.listing import page_of
from musterpoint.serve.operations.training_jobs import described
from musterpoint.serve.transitions import KIND

_RESOURCE = "TrainingJob"


def _ordered(compare: Callable[[float], bool]) -> Callable[[str, str], bool]:
    """Numbers are compared as numbers, all else as text."""

    def compared(one: str, other: str) -> bool:
        try:
            return compare(float(one) - float(other))
        except ValueError:
            return compare(float(one > other) - float(one < other))

    return compared


_OPERATORS: Mapping[str, Callable[[str, str], bool]] = {
    "Equals": lambda one, other: one == other,
    "NotEquals": lambda one, other: one != other,
    "GreaterThan": _ordered(lambda difference: difference > 0),
    "GreaterThanOrEqualTo": _ordered(lambda difference: difference >= 0),
    "LessThan": _ordered(lambda difference: difference < 0),
    "LessThanOrEqualTo": _ordered(lambda difference: difference <= 0),
    "Contains": lambda one, other: other.lower() in one.lower(),
    "In": lambda one, other: one in other.split(","),
}


def search(request: Request) -> Mapping[str, Any]:
    """The jobs that the expression holds for; newest first, unless it says otherwise."""
    parameters, state = request.parameters, request.context.state
    if parameters["Resource"] != _RESOURCE:
        raise not_here("Search", f"a search of {parameters['Resource']}; it searches {_RESOURCE}")
    expression = parameters.get("SearchExpression") or {}
    found = []
    for record in state.select(KIND, order="number DESC"):
        whole = {**described(record), "Tags": state.tags(record.arn)}
        if _holds(expression, whole):
            found.append(whole)
    by = parameters.get("SortBy", "CreationTime")
    down = parameters.get("SortOrder", "Descending") == "Descending"
    found.sort(key=lambda each: _sortable(next(_values(each, by), "")), reverse=down)
    page, token = page_of(found, parameters)
    rows = [{_RESOURCE: {**each, "Tags": _rows(each["Tags"])}} for each in page]
    answer: dict[str, Any] = {"Results": rows, "TotalHits": {"Value": len(found), "Relation": "EqualTo"}}
    return {**answer, "NextToken": token} if token else answer


def _sortable(value: Any) -> tuple[int, float, str]:
    try:
        return (0, float(value), "")
    except (TypeError, ValueError):
        return (1, 0.0, str(value))


def _rows(tags: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"Key": key, "Value": value} for key, value in tags.items()]


def _holds(expression: Mapping[str, Any], whole: Mapping[str, Any]) -> bool:
    parts = [_filter(each, [whole]) for each in expression.get("Filters") or ()]
    parts += [_nested(each, whole) for each in expression.get("NestedFilters") or ()]
    parts += [_holds(each, whole) for each in expression.get("SubExpressions") or ()]
    return any(parts) if parts and expression.get("Operator", "And") == "Or" else all(parts)


def _nested(nested: Mapping[str, Any], whole: Mapping[str, Any]) -> bool:
    """Whether all filters hold for one entry of the list that it names."""
    name = nested["NestedPropertyName"]
    entries = [entry for found in _values(whole, name, lists=True) for entry in found]
    filters = [{**each, "Name": each["Name"].removeprefix(f"{name}.")} for each in nested["Filters"]]
    return any(all(_filter(each, [entry]) for each in filters) for entry in entries)


def _filter(wanted: Mapping[str, Any], wholes: Sequence[Any]) -> bool:
    operator, value = wanted.get("Operator", "Equals"), wanted.get("Value", "")
    found = [_text(each) for whole in wholes for each in _values(whole, wanted["Name"])]
    if operator in ("Exists", "NotExists"):
        return bool(found) is (operator == "Exists")
    if operator not in _OPERATORS:
        raise invalid(f"Operator {operator}: expected one of {', '.join(_OPERATORS)}, Exists, NotExists")
    if wanted["Name"].endswith("Time"):
        value = str(_seconds(value))
    return any(_OPERATORS[operator](each, value) for each in found)


def _seconds(text: str) -> float:
    """A time of a filter: ISO 8601, or seconds since the epoch."""
    try:
        return float(text)
    except ValueError:
        pass
    try:
        found = datetime.fromisoformat(re.sub(r"Z$", "+00:00", text))
    except ValueError:
        raise invalid(f"{text}: expected a time, such as 2026-01-31T12:00:00Z") from None
    return (found if found.tzinfo else found.replace(tzinfo=timezone.utc)).timestamp()


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _values(whole: Any, name: str, lists: bool = False) -> Iterator[Any]:
    """What stands at a path such as ``HyperParameters.epochs``; an entry of a map may have points in its name."""
    if not name:
        if lists or not isinstance(whole, (list, dict)):
            yield whole
        return
    if isinstance(whole, list):
        for each in whole:
            yield from _values(each, name, lists)
    elif isinstance(whole, Mapping):
        if name in whole:
            yield from _values(whole[name], "", lists)
            return
        first, point, rest = name.partition(".")
        if point and first in whole:
            yield from _values(whole[first], rest, lists)
