"""The library's parameters in effect: which source gave each, and what isn't supported. Without torch."""

from __future__ import annotations

from typing import Any, Iterator, Mapping, Sequence

from ...shared.parameters import DEFAULT, VERSION_1, ParameterError, contradiction
from ...shared.sources import read as read_sources
from ..backend.exceptions import SMPConfigError, SMPUnsupportedError

UNSUPPORTED: tuple[tuple[str, str], ...] = (
    ("horovod", "leave it out: it is for TensorFlow, and ddp averages the gradients with PyTorch"),
)
"""Parameters of AWS's that do nothing here yet unless they have their default, and what to do instead."""

WITHOUT_EFFECT: tuple[tuple[str, str], ...] = (
    ("contiguous", "it is for TensorFlow, and parts are runs of neighbouring modules always"),
    ("deterministic_server", "ranks answer whatever can go on first"),
    ("sdp_hierarchical_allgather", "NCCL finds the shortest way"),
    ("static_mode", "AWS doesn't say what it does, and steps may differ from each other"),
    ("fast_mode", "AWS doesn't say what it does, and a rank sends to the next one directly without it"),
)
"""Parameters that are taken, change nothing, and are named in a warning unless they have their default; and why."""


class Config:
    """The parameters in effect, as attributes; keys that nobody knows are attributes as well.

    ``unknown`` names those, and :meth:`where` says which source a value came from.
    """

    unknown: tuple[str, ...]

    def __init__(self, values: Mapping[str, Any], origins: Mapping[str, str]) -> None:
        vars(self).update(values)
        self.partitions = self.pipeline_parallel_degree
        self.unknown = tuple(name for name in values if name not in VERSION_1)
        self._origins = dict(origins)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"smp.state.cfg has no {name!r}")

    def where(self, name: str) -> str:
        """The source that gave this parameter; ``the default`` where none did."""
        return self._origins.get(name, DEFAULT)

    def without_effect(self) -> Iterator[str]:
        """A line for each parameter that asks for something and changes nothing."""
        for name, why in WITHOUT_EFFECT:
            if getattr(self, name) != VERSION_1[name].default:
                yield f"{self.shown(name)}: without effect; {why}"

    def shown(self, name: str) -> str:
        """``microbatches=4 (SM_HP_MP_PARAMETERS)``."""
        return f"{name}={getattr(self, name)!r} ({self.where(name)})"


def read(environ: Mapping[str, str], argv: Sequence[str], given: Mapping[str, Any] | None = None) -> Config:
    """The parameters in effect; what the job says counts more than ``given``, the script's own dict.

    Raises:
        SMPConfigError: a source can't be read, or a value is wrong, or two of them contradict each other.
        SMPUnsupportedError: a parameter asks for what isn't supported yet.
    """
    try:
        found = read_sources(environ, argv, given, VERSION_1)
    except ParameterError as error:
        raise SMPConfigError(str(error)) from None
    values: dict[str, Any] = {name: parameter.default for name, parameter in VERSION_1.items()}
    values.update((name, each.value) for name, each in found.items())
    if values["memory_weight"] is None:
        values["memory_weight"] = 0.2 if values["optimize"] == "speed" else 0.8
    if values["active_microbatches"] is None:
        values["active_microbatches"] = values["pipeline_parallel_degree"] + 2
    config = Config(values, {name: each.where for name, each in found.items()})
    for name, instead in UNSUPPORTED:
        if getattr(config, name) != VERSION_1[name].default:
            raise SMPUnsupportedError(
                f"{config.shown(name)}: musterpoint's smdistributed.modelparallel doesn't support it yet; {instead}"
            )
    wrong = contradiction(vars(config), config.shown)
    if wrong:
        raise SMPConfigError(wrong)
    return config
