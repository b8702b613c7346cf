"""Tags of everything that this server keeps."""

from __future__ import annotations

from typing import Any, Mapping, Sequence

from musterpoint.serve.errors import absent, invalid
from musterpoint.serve.operations import Request
from musterpoint.serve.state import Record

MOST = 50


def tags_of(given: Sequence[Mapping[str, str]] | None) -> dict[str, str]:
    """The tags of a request; AWS refuses a key that is given twice."""
    found: dict[str, str] = {}
    for tag in given or ():
        if tag["Key"] in found:
            raise invalid(f"Duplicate tag keys found: {tag['Key']}")
        found[tag["Key"]] = tag["Value"]
    return found


def _tagged(request: Request) -> Record:
    arn = request.parameters["ResourceArn"]
    found = request.context.state.by_arn(arn)
    if found is None:
        raise absent(arn)
    return found


def add(request: Request) -> Mapping[str, Any]:
    record = _tagged(request)
    state = request.context.state
    new = tags_of(request.parameters["Tags"])
    if len({**state.tags(record.arn), **new}) > MOST:
        raise invalid(f"A resource can't have more than {MOST} tags")
    state.tag(record.arn, new)
    return {"Tags": _rows(state.tags(record.arn))}


def list_(request: Request) -> Mapping[str, Any]:
    record = _tagged(request)
    return {"Tags": _rows(request.context.state.tags(record.arn))}


def delete(request: Request) -> Mapping[str, Any]:
    record = _tagged(request)
    request.context.state.untag(record.arn, request.parameters["TagKeys"])
    return {}


def _rows(tags: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"Key": key, "Value": value} for key, value in tags.items()]
