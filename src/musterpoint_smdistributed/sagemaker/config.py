"""The library's parameters: what the job says, then what the script gives to ``tsm.init``."""

from __future__ import annotations

import importlib
import json
from typing import Any, Mapping, Sequence

from .errors import SMPConfigError

WITHOUT_EFFECT = ("fsdp_cache_flush_warnings", "allow_empty_shards", "random_seed")
"""Parameters that are taken and change nothing, which a warning says where somebody gives one."""


class Config:
    """The parameters in effect, as attributes."""

    def __init__(self, values: Mapping[str, Any], origins: Mapping[str, str], unknown: Sequence[str]) -> None:
        vars(self).update(values)
        self.origins, self.unknown = dict(origins), tuple(unknown)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"torch.sagemaker has no parameter {name!r}")

    def shown(self, name: str) -> str:
        """``hybrid_shard_degree=2 (SM_HP_MP_PARAMETERS)``."""
        return f"{name}={getattr(self, name)!r} ({self.origins.get(name, 'the default')})"


def read(environ: Mapping[str, str], argv: Sequence[str], given: Any = None) -> Config:
    """The parameters in effect; what the job says counts more than ``given``, a dict or the path of a JSON file.
    Raises SMPConfigError: a source can't be read, or a value is wrong."""
    table = importlib.import_module("smdistributed.shared.parameters").VERSION_2
    try:
        found = importlib.import_module("smdistributed.shared.sources").read(
            environ, argv, _object(given), table, "tsm.init"
        )
    except ValueError as error:
        raise SMPConfigError(str(error)) from None
    values: dict[str, Any] = {name: parameter.default for name, parameter in table.items()}
    values.update((name, each.value) for name, each in found.items() if name in table)
    unknown = [f"{name} ({each.where})" for name, each in found.items() if name not in table]
    return Config(values, {name: each.where for name, each in found.items() if name in table}, unknown)


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
