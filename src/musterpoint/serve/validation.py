"""Checks requests against botocore's model; refuses in the words of AWS's front door.

botocore itself checks types and lower bounds only, before it sends a request. Upper bounds, patterns and enumerations
are in the model, too, but only the service applies them.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, Iterator, Mapping

import botocore.session
from botocore.model import OperationModel, ServiceModel, Shape

from musterpoint.serve.errors import ApiError, invalid

SERVICE = "sagemaker"


@lru_cache(maxsize=1)
def service() -> ServiceModel:
    """botocore's model of SageMaker."""
    return botocore.session.get_session().get_service_model(SERVICE)


def operation_model(name: str) -> OperationModel:
    """The model of an operation.

    Raises:
        ApiError: SageMaker has no such operation, or this botocore doesn't know it.
    """
    if name not in service().operation_names:
        raise ApiError("UnknownOperationException", f"{name}: botocore's model of SageMaker has no such operation")
    return service().operation_model(name)


def without_none(value: Any) -> Any:
    """The value without nulls, at any depth. Clients send them for fields that they leave out."""
    if isinstance(value, dict):
        return {name: without_none(each) for name, each in value.items() if each is not None}
    return [without_none(each) for each in value] if isinstance(value, list) else value


def check(operation: str, request: Any) -> dict[str, Any]:
    """``request`` without what is null, where the model of ``operation`` takes it.

    Raises:
        ApiError: it doesn't; the text has every problem, as the service's own.
    """
    shape = operation_model(operation).input_shape
    if not isinstance(request, dict):
        raise ApiError("SerializationException", "expected a JSON object")
    given: dict[str, Any] = without_none(request)
    problems = list(_problems(shape, given, "")) if shape is not None else []
    if problems:
        count = f"{len(problems)} validation error{'s' if len(problems) > 1 else ''} detected"
        raise invalid(f"{count}: {'; '.join(problems)}")
    return given


_JSON_TYPES: Mapping[str, tuple[type, ...]] = {
    "structure": (dict,),
    "map": (dict,),
    "list": (list,),
    "string": (str,),
    "boolean": (bool,),
    "integer": (int,),
    "long": (int,),
    "float": (int, float),
    "double": (int, float),
    "timestamp": (int, float, str),
    "blob": (str,),
}


def _is_of_type(shape: Shape, value: object) -> bool:
    return isinstance(value, _JSON_TYPES[shape.type_name]) and (
        shape.type_name == "boolean" or not isinstance(value, bool)
    )


def _problems(shape: Shape, value: Any, at: str) -> Iterator[str]:
    if not _is_of_type(shape, value):
        kind = type(value).__name__
        raise ApiError("SerializationException", f"{at or 'request'}: expected a {shape.type_name}, got a {kind}")
    if shape.type_name == "structure":
        yield from _of_structure(shape, value, at)
    elif shape.type_name == "list":
        yield from _bounds(shape, value, len(value), at, "length")
        for index, entry in enumerate(value, 1):
            yield from _problems(shape.member, entry, f"{at}.{index}.member")
    elif shape.type_name == "map":
        yield from _bounds(shape, value, len(value), at, "length")
        for key, entry in value.items():
            yield from _of_map_key(shape.key, key, value, at)
            yield from _problems(shape.value, entry, f"{at}.{key}.member")
    elif shape.type_name == "string":
        yield from _of_string(shape, value, at)
    elif shape.type_name in ("integer", "long", "float", "double"):
        yield from _bounds(shape, value, value, at, "value")


def _of_structure(shape: Shape, value: Mapping[str, Any], at: str) -> Iterator[str]:
    for name in value:
        if name not in shape.members:
            raise ApiError("SerializationException", f"{_below(at, name)}: no such parameter in botocore's model")
    for name in shape.required_members:
        if value.get(name) is None:
            where = _below(at, name)
            yield f"Value null at '{where}' failed to satisfy constraint: Member must not be null"
    for name, entry in value.items():
        yield from _problems(shape.members[name], entry, _below(at, name))


def _of_map_key(shape: Shape, key: str, whole: Any, at: str) -> Iterator[str]:
    limits = [limit for _, limit in _string_limits(shape, key)]
    if limits:
        yield _failed(whole, at, f"Map keys must satisfy constraint: [{', '.join(limits)}]")


def _of_string(shape: Shape, value: str, at: str) -> Iterator[str]:
    for shown, limit in _string_limits(shape, value):
        yield _failed(shown, at, limit)


def _string_limits(shape: Shape, value: str) -> Iterator[tuple[str, str]]:
    limits, allowed = shape.metadata, getattr(shape, "enum", None)
    if allowed and value not in allowed:
        yield value, f"Member must satisfy enum value set: [{', '.join(allowed)}]"
    if "min" in limits and len(value) < limits["min"]:
        yield value, f"Member must have length greater than or equal to {limits['min']}"
    if "max" in limits and len(value) > limits["max"]:
        yield value, f"Member must have length less than or equal to {limits['max']}"
    pattern = limits.get("pattern")
    if pattern and not _matches(pattern, value):
        yield value, f"Member must satisfy regular expression pattern: {pattern}"


@lru_cache(maxsize=512)
def _compiled(pattern: str) -> re.Pattern[str] | None:
    r"""The pattern of the model, which is Java's (``\p{…}`` classes); None: Python can't read it."""
    for java, python in (("\\p{L}", r"\w"), ("\\p{Z}", r"\s"), ("\\p{N}", r"\d"), ("\\p{M}", r"\w")):
        pattern = pattern.replace(java, python)
    try:
        return re.compile(pattern, re.DOTALL)
    except re.error:
        return None


def _matches(pattern: str, value: str) -> bool:
    compiled = _compiled(pattern)
    return compiled is None or compiled.fullmatch(value) is not None


def _bounds(shape: Shape, whole: Any, size: float, at: str, what: str) -> Iterator[str]:
    of = "have length" if what == "length" else "have value"
    least, most = shape.metadata.get("min"), shape.metadata.get("max")
    if least is not None and size < least:
        yield _failed(whole, at, f"Member must {of} greater than or equal to {least}")
    if most is not None and size > most:
        yield _failed(whole, at, f"Member must {of} less than or equal to {most}")


def _failed(value: Any, at: str, limit: str) -> str:
    return f"Value '{value}' at '{at}' failed to satisfy constraint: {limit}"


def _below(at: str, name: str) -> str:
    """The path of a member as AWS writes it, each name with a small first letter."""
    name = name[:1].lower() + name[1:]
    return f"{at}.{name}" if at else name
