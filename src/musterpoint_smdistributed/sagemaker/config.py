"""The library's parameters: what the job says, then what the script gives to ``tsm.init``."""

from __future__ import annotations

import importlib
import json
from typing import Any, Literal, Mapping, NamedTuple, Sequence

from .errors import SMPConfigError


class Parameter(NamedTuple):
    """One parameter.

    least: the smallest number allowed.
    """

    name: str
    kind: Literal["count", "flag"]
    default: int
    least: int = 0


PARAMETERS = (
    Parameter("hybrid_shard_degree", "count", 0),
    Parameter("sm_activation_offloading", "flag", True),
    Parameter("activation_loading_horizon", "count", 2, least=1),
    Parameter("fsdp_cache_flush_warnings", "flag", True),
    Parameter("allow_empty_shards", "flag", False),
    Parameter("tensor_parallel_degree", "count", 1, least=1),
    Parameter("context_parallel_degree", "count", 1, least=1),
    Parameter("expert_parallel_degree", "count", 1, least=1),
    Parameter("random_seed", "count", 12345),
)
_BY_NAME = {parameter.name: parameter for parameter in PARAMETERS}

WITHOUT_EFFECT = ("fsdp_cache_flush_warnings", "allow_empty_shards", "random_seed")
"""Parameters that are taken and change nothing, which a warning says where somebody gives one."""


class Config:
    """The parameters in effect, as attributes."""

    hybrid_shard_degree: int
    sm_activation_offloading: bool
    activation_loading_horizon: int
    fsdp_cache_flush_warnings: bool
    allow_empty_shards: bool
    tensor_parallel_degree: int
    context_parallel_degree: int
    expert_parallel_degree: int
    random_seed: int

    def __init__(self, values: Mapping[str, Any], origins: Mapping[str, str], unknown: Sequence[str]) -> None:
        vars(self).update(values)
        self.origins, self.unknown = dict(origins), tuple(unknown)

    def shown(self, name: str) -> str:
        """``hybrid_shard_degree=2 (SM_HP_MP_PARAMETERS)``."""
        return f"{name}={getattr(self, name)!r} ({self.origins.get(name, 'the default')})"


def read(environ: Mapping[str, str], argv: Sequence[str], given: Any = None) -> Config:
    """The parameters in effect; what the job says counts more than ``given``, a dict or the path of a JSON file.

    Raises:
        SMPConfigError: a source can't be read, or a value is wrong.
    """
    values: dict[str, Any] = {parameter.name: parameter.default for parameter in PARAMETERS}
    origins: dict[str, str] = {}
    unknown: list[str] = []
    for source in _sources(environ, argv, _object(given)):
        for name, value in source.values.items():
            if name not in _BY_NAME:
                unknown.append(f"{name} ({source.name})")
            elif name not in origins and value is not None:
                origins[name] = source.name.replace("smp.init", "tsm.init")
                values[name] = _checked(_BY_NAME[name], value, origins[name])
    return Config(values, origins, unknown)


def _sources(environ: Mapping[str, str], argv: Sequence[str], given: dict[str, Any]) -> Sequence[Any]:
    """The places that version 1 reads, too."""
    found = importlib.import_module("smdistributed.shared.sources")
    try:
        read: Sequence[Any] = found.sources(environ, argv, given)
    except ValueError as error:
        raise SMPConfigError(str(error)) from None
    return read


def _object(given: Any) -> dict[str, Any]:
    if given is None or isinstance(given, dict):
        return given or {}
    try:
        with open(given, encoding="utf-8") as file:
            value = json.load(file)
    except (OSError, TypeError, ValueError) as error:
        raise SMPConfigError(f"tsm.init({given!r:.200}): expected a dict or the path of a JSON file: {error}") from None
    if not isinstance(value, dict):
        raise SMPConfigError(f"tsm.init({given!r:.200}): expected a JSON object in the file")
    return value


def _checked(parameter: Parameter, value: Any, where: str) -> Any:
    """The value in its own type; the platform's are sometimes texts."""
    text = str(value).strip().lower()
    converted: int | None
    if parameter.kind == "flag":
        converted = {"true": True, "1": True, "false": False, "0": False}.get(text)
        expected = "true or false"
    else:
        converted = int(text) if text.isdecimal() and int(text) >= parameter.least else None
        expected = f"a whole number, {parameter.least} or more"
    if converted is None:
        raise SMPConfigError(f"{parameter.name}={value!r:.80} ({where}): expected {expected}")
    return converted
