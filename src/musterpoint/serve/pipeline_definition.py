"""The definition of a pipeline: its steps, what each waits for, and the values of its expressions. Pure.

The language is SageMaker's: ``{"Get": "Steps.NAME.PATH"}`` and its kin, ``Std:Join`` and ``Std:JsonGet``.
"""

from __future__ import annotations

import re
from typing import Any, Callable, Iterator, Mapping, NamedTuple, Sequence

from musterpoint.serve.errors import ApiError, invalid, read_json

TRAINING, PROCESSING, TUNING, CONDITION, FAIL = "Training", "Processing", "Tuning", "Condition", "Fail"
KINDS = (TRAINING, PROCESSING, TUNING, CONDITION, FAIL)
"""The steps that run here."""
_JOIN, _JSON = "Std:Join", "Std:JsonGet"
_TOKEN = re.compile(r"\.?([A-Za-z0-9_-]+)|\[(\d+)\]|\[['\"]([^'\"]*)['\"]\]")
_NAMES = ("OutputName", "InputName", "ChannelName", "MetricName", "Name")
"""What tells an entry of a list from the others, where a path has a name in brackets."""


class Step(NamedTuple):
    """One step. ``waits_for``: names of others. ``branch``: the condition that it runs under, and its outcome."""

    name: str
    kind: str
    given: Mapping[str, Any]
    waits_for: frozenset[str]
    branch: tuple[str, bool] | None

    @property
    def arguments(self) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self.given.get("Arguments") or {}
        return found


class Definition(NamedTuple):
    """``parameters``: as they are declared, by name."""

    steps: Mapping[str, Step]
    parameters: Mapping[str, Mapping[str, Any]]


def read(text: str) -> Definition:
    """The definition in ``text``.

    Raises:
        ApiError: it is none, or has a step that can't run here; the text names it.
    """
    try:
        whole = read_json(text)
        rows, declared = whole["Steps"], whole.get("Parameters") or []
        steps = list(_flat(rows, None))
        parameters = {each["Name"]: each for each in declared}
        for name, each in parameters.items():
            if not isinstance(name, str):
                raise TypeError(f"a parameter's name is {name!r}")
            if each.get("DefaultValue") is not None:
                parameters_of(Definition({}, {name: each}), {})
        return _checked(steps, parameters)
    except ApiError:
        raise
    except Exception as error:  # whatever shape the text has
        raise invalid(f"Invalid pipeline definition: {type(error).__name__}: {error}") from None


def _checked(steps: Sequence[Step], parameters: Mapping[str, Mapping[str, Any]]) -> Definition:
    found = {step.name: step for step in steps}
    if len(found) < len(steps):
        raise invalid("Invalid pipeline definition: two steps have one name")
    for step in steps:
        for name in step.waits_for:
            if name not in found:
                raise invalid(f"Invalid pipeline definition: step {step.name} refers to the step {name}, which is none")
        for path in _gets(step.arguments):
            if path in ("Steps", "Parameters", "Execution"):
                raise invalid(f"Invalid pipeline definition: step {step.name} refers to {path}, which is no value")
            if path.startswith("Parameters.") and path.split(".")[1] not in parameters:
                raise invalid(f"Invalid pipeline definition: step {step.name} refers to {path}, which isn't declared")
    definition = Definition(found, parameters)
    _refuse_circles(definition)
    return definition


def _flat(rows: Sequence[Mapping[str, Any]], branch: tuple[str, bool] | None) -> Iterator[Step]:
    """The steps of all levels."""
    for row in rows:
        name, kind = row["Name"], row["Type"]
        if not isinstance(name, str):
            raise TypeError(f"a step's name is {name!r}")
        if kind not in KINDS:
            raise invalid(f"Step {name}: muster serve has no {kind} steps; it has {', '.join(KINDS)}")
        arguments = row.get("Arguments") or {}
        inner = {"IfSteps": True, "ElseSteps": False} if kind == CONDITION else {}
        own = {field: value for field, value in arguments.items() if field not in inner}
        waits_for = {*(row.get("DependsOn") or ()), *(path.split(".")[1] for path in _gets(own) if _is_step(path))}
        if branch is not None:
            waits_for.add(branch[0])
        yield Step(name, kind, {**row, "Arguments": own}, frozenset(waits_for), branch)
        for field, outcome in inner.items():
            yield from _flat(arguments.get(field) or (), (name, outcome))


def _is_step(path: str) -> bool:
    return path.startswith("Steps.")


def _gets(value: Any) -> Iterator[str]:
    """The paths of all references in ``value``."""
    if isinstance(value, Mapping):
        path = value.get("Get")
        if isinstance(path, str) and len(value) == 1:
            yield path
        for name, each in value.items():
            if name.startswith("Std:") and name not in (_JOIN, _JSON):
                raise invalid(f"Invalid pipeline definition: muster serve has no function {name}")
            yield from _gets(each)
    elif isinstance(value, list):
        for each in value:
            yield from _gets(each)


def _refuse_circles(definition: Definition) -> None:
    left = {step.name: awaited(definition, step) | (step.waits_for & {step.name}) for step in definition.steps.values()}
    while left:
        ready = [name for name, others in left.items() if not others.intersection(left)]
        if not ready:
            raise invalid(f"Invalid pipeline definition: these steps wait for each other: {', '.join(sorted(left))}")
        for name in ready:
            del left[name]


def awaited(definition: Definition, step: Step) -> frozenset[str]:
    """What has to be over before ``step``: who waits for a condition waits for what is in its branches, too."""
    found = set(step.waits_for)
    inside = {step.branch[0]} if step.branch else set()
    for name in step.waits_for - inside:
        found.update(each.name for each in definition.steps.values() if each.branch and each.branch[0] == name)
    return frozenset(found - {step.name})


def parameters_of(definition: Definition, given: Mapping[str, str]) -> dict[str, Any]:
    """The value of each parameter of an execution that was started with ``given``.

    Raises:
        ApiError: one isn't declared, has no value, or a wrong one.
    """
    unknown = sorted(set(given).difference(definition.parameters))
    if unknown:
        raise invalid(f"Assembly of pipeline: Unknown parameters [{', '.join(unknown)}]")
    found = {}
    for name, declared in definition.parameters.items():
        value = given.get(name, declared.get("DefaultValue"))
        if value is None:
            raise invalid(f"Assembly of pipeline: Parameter [{name}] has no value: it has no default")
        try:
            found[name] = _typed(declared.get("Type", "String"), value)
        except (ValueError, TypeError, OverflowError):
            kind = declared.get("Type", "String")
            raise invalid(f"Assembly of pipeline: Parameter [{name}]: {value} is no {kind}") from None
        allowed = declared.get("EnumValues")
        if allowed and found[name] not in allowed:
            raise invalid(
                f"Assembly of pipeline: Parameter [{name}]: {value} is none of {', '.join(map(str, allowed))}"
            )
    return found


def _typed(kind: str, value: Any) -> Any:
    if isinstance(value, (dict, list)):
        raise TypeError(value)
    if kind == "Integer":
        return int(value)
    if kind == "Float":
        return float(value)
    if kind == "Boolean":
        if str(value).lower() not in ("true", "false"):
            raise ValueError(value)
        return str(value).lower() == "true"
    return str(value)


class Scope(NamedTuple):
    """Where expressions find their values. Each may raise :class:`Unresolved`.

    ``parameters``, ``execution``: by name. ``properties``: what is known of a step that is over. ``json``: the content
    of a property file, from a step and the file's name, or from a URI with an empty step.
    """

    parameters: Mapping[str, Any]
    execution: Mapping[str, Any]
    properties: Callable[[str], Any]
    json: Callable[[str, str], Any]


class Unresolved(Exception):
    """An expression has no value; the text says why."""


def resolved(value: Any, scope: Scope) -> Any:
    """``value`` with its expressions replaced by their values."""
    if isinstance(value, Mapping):
        if len(value) == 1:
            (name, inner), *_ = value.items()
            if name == "Get" and isinstance(inner, str):
                return _get(inner, scope)
            if name == _JOIN:
                return str(inner["On"]).join(_text(resolved(each, scope)) for each in inner["Values"])
            if name == _JSON:
                return _json_get(inner, scope)
        return {name: resolved(each, scope) for name, each in value.items()}
    return [resolved(each, scope) for each in value] if isinstance(value, list) else value


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _get(path: str, scope: Scope) -> Any:
    head, _, rest = path.partition(".")
    if head == "Parameters" and rest in scope.parameters:
        return scope.parameters[rest]
    if head == "Execution" and rest in scope.execution:
        return scope.execution[rest]
    if head == "Steps":
        name, _, inner = rest.partition(".")
        return at(scope.properties(name), inner, path)
    raise Unresolved(f"{path} has no value")


def _json_get(inner: Mapping[str, Any], scope: Scope) -> Any:
    if "PropertyFile" in inner:
        _, step, _, name = inner["PropertyFile"]["Get"].split(".")
        found = scope.json(step, name)
    else:
        found = scope.json("", str(resolved(inner["S3Uri"], scope)))
    return at(found, inner["Path"], f"{_JSON} {inner['Path']}")


def at(value: Any, path: str, whole: str) -> Any:
    """What stands in ``value`` at ``path``, such as ``Outputs['train'].S3Output.S3Uri`` or ``rows[0].name``."""
    place = 0
    while place < len(path):
        found = _TOKEN.match(path, place)
        if found is None:
            raise Unresolved(f"{whole}: it can't be read from {path[place:]!r} on")
        place = found.end()
        name, index, key = found.groups()
        try:
            value = value[int(index)] if index is not None else _member(value, name if key is None else key)
        except (LookupError, TypeError):
            raise Unresolved(f"{whole} has no value: there is no {found[0].lstrip('.')}") from None
    return value


def _member(value: Any, name: str) -> Any:
    if isinstance(value, list):
        named = {each[field]: each for each in value for field in _NAMES if field in each}
        return named[name]
    return value[name]


def holds(condition: Mapping[str, Any], scope: Scope) -> bool:
    """Whether a condition of a condition step holds."""
    kind = condition["Type"]
    if kind == "Not":
        return not holds(condition["Expression"], scope)
    if kind == "Or":
        return any(holds(each, scope) for each in condition["Conditions"])
    if kind == "In":
        return resolved(condition["QueryValue"], scope) in resolved(list(condition["Values"]), scope)
    left, right = resolved(condition["LeftValue"], scope), resolved(condition["RightValue"], scope)
    if kind == "Equals":
        return bool(left == right)
    if kind not in _ORDERS:
        raise Unresolved(f"muster serve has no condition {kind}")
    try:
        return _ORDERS[kind](float(left), float(right))
    except (TypeError, ValueError):
        raise Unresolved(f"{kind}: {left!r} and {right!r} aren't two numbers") from None


_ORDERS: Mapping[str, Callable[[float, float], bool]] = {
    "GreaterThan": lambda left, right: left > right,
    "GreaterThanOrEqualTo": lambda left, right: left >= right,
    "LessThan": lambda left, right: left < right,
    "LessThanOrEqualTo": lambda left, right: left <= right,
}
