"""The library's parameters: which there are, and what they must be. Without torch.

Sources of the names and defaults: AWS's documentation ("SageMaker distributed model parallel: configuration
parameters") and the checks of the SageMaker Python SDK (``validate_mp_config`` in ``fw_utils.py``).
"""

from __future__ import annotations

from typing import Any, Iterator, Literal, Mapping, NamedTuple, Sequence

from ...shared.sources import Source, SourceError, sources
from ..backend.exceptions import SMPConfigError, SMPUnsupportedError
from .topology import permutation


class Parameter(NamedTuple):
    """One parameter.

    kind: what its value is; ``number`` may have a fraction.
    default: None where it depends on others, or there is none.
    least: the smallest number allowed.
    choices: the texts allowed; empty: any.
    """

    name: str
    kind: Literal["count", "number", "flag", "text"]
    default: Any
    least: float = 0
    choices: tuple[str, ...] = ()


PARAMETERS = (
    Parameter("pipeline_parallel_degree", "count", 1, least=1),
    Parameter("microbatches", "count", 1, least=1),
    Parameter("pipeline", "text", "interleaved", choices=("interleaved", "simple", "_only_forward")),
    Parameter("optimize", "text", "memory", choices=("memory", "speed")),
    Parameter("placement_strategy", "text", "cluster"),
    Parameter("auto_partition", "flag", True),
    Parameter("default_partition", "count", 0),
    Parameter("memory_weight", "number", None),
    Parameter("ddp", "flag", False),
    Parameter("ddp_port", "count", None, least=1),
    Parameter("ddp_dist_backend", "text", "auto", choices=("auto", "smddp", "nccl", "gloo")),
    Parameter("horovod", "flag", False),
    Parameter("contiguous", "flag", True),
    Parameter("active_microbatches", "count", None, least=1),
    Parameter("deterministic_server", "flag", False),
    Parameter("offload_activations", "flag", False),
    Parameter("activation_loading_horizon", "count", 4, least=1),
    Parameter("tensor_parallel_degree", "count", 1, least=1),
    Parameter("prescaled_batch", "flag", False),
    Parameter("fp16", "flag", False),
    Parameter("fp16_params", "flag", False),
    Parameter("bf16", "flag", False),
    Parameter("shard_optimizer_state", "flag", False),
    Parameter("skip_tracing", "flag", False),
    Parameter("delayed_parameter_initialization", "flag", False),
    Parameter("sharded_data_parallel_degree", "count", 1, least=1),
    Parameter("sdp_reduce_bucket_size", "count", 500_000_000, least=1),
    Parameter("sdp_param_persistence_threshold", "count", 1_000_000),
    Parameter("sdp_max_live_parameters", "count", 1_000_000_000),
    Parameter("sdp_hierarchical_allgather", "flag", True),
    Parameter("sdp_gradient_clipping", "number", 1.0),
    Parameter("checkpoint_attentions", "flag", False),
    Parameter("load_partition", "flag", False),
    Parameter("partition_file", "text", None),
    Parameter("static_mode", "flag", False),
    Parameter("fast_mode", "flag", False),
)
_BY_NAME = {parameter.name: parameter for parameter in PARAMETERS}
_OLDER = {"partitions": "pipeline_parallel_degree"}
"""Older names. Where one source has both, the newer counts, as in AWS's library."""

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

    pipeline_parallel_degree: int
    partitions: int
    microbatches: int
    pipeline: Literal["interleaved", "simple", "_only_forward"]
    optimize: Literal["memory", "speed"]
    placement_strategy: str
    auto_partition: bool
    default_partition: int
    memory_weight: float
    ddp: bool
    ddp_port: int | None
    ddp_dist_backend: Literal["auto", "smddp", "nccl", "gloo"]
    horovod: bool
    contiguous: bool
    active_microbatches: int
    deterministic_server: bool
    offload_activations: bool
    activation_loading_horizon: int
    tensor_parallel_degree: int
    prescaled_batch: bool
    fp16: bool
    fp16_params: bool
    bf16: bool
    shard_optimizer_state: bool
    skip_tracing: bool
    delayed_parameter_initialization: bool
    sharded_data_parallel_degree: int
    sdp_reduce_bucket_size: int
    sdp_param_persistence_threshold: int
    sdp_max_live_parameters: int
    sdp_hierarchical_allgather: bool
    sdp_gradient_clipping: float
    checkpoint_attentions: bool
    load_partition: bool
    partition_file: str | None
    static_mode: bool
    fast_mode: bool
    unknown: tuple[str, ...]

    def __init__(self, values: Mapping[str, Any], origins: Mapping[str, str]) -> None:
        vars(self).update(values)
        self.partitions = self.pipeline_parallel_degree
        self.unknown = tuple(name for name in values if name not in _BY_NAME)
        self._origins = dict(origins)

    def where(self, name: str) -> str:
        """The source that gave this parameter; ``the default`` where none did."""
        return self._origins.get(name, "the default")

    def without_effect(self) -> Iterator[str]:
        """A line for each parameter that asks for something and changes nothing."""
        for name, why in WITHOUT_EFFECT:
            if getattr(self, name) != _BY_NAME[name].default:
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
    values: dict[str, Any] = {parameter.name: parameter.default for parameter in PARAMETERS}
    origins: dict[str, str] = {}
    for source in _sources(environ, argv, given):
        for name, value in _current_names(source).items():
            if name not in origins and (value is not None or name not in _BY_NAME):  # null: as if it weren't there
                origins[name] = source.name
                values[name] = _checked(name, value, source.name)
    if values["memory_weight"] is None:
        values["memory_weight"] = 0.2 if values["optimize"] == "speed" else 0.8
    if values["active_microbatches"] is None:
        values["active_microbatches"] = values["pipeline_parallel_degree"] + 2
    config = Config(values, origins)
    _check(config)
    return config


def _sources(environ: Mapping[str, str], argv: Sequence[str], given: Mapping[str, Any] | None) -> Sequence[Source]:
    try:
        return sources(environ, argv, given)
    except SourceError as error:
        raise SMPConfigError(str(error)) from None


def _current_names(source: Source) -> dict[str, Any]:
    """A source's parameters by today's names."""
    values = dict(source.values)
    for older, newer in _OLDER.items():
        if older in values:
            value = values.pop(older)
            if values.get(newer) is None:
                values[newer] = value
    return values


def _checked(name: str, value: Any, where: str) -> Any:
    """The value in its own type; the platform's are sometimes texts.

    Raises:
        SMPConfigError: it is of another type, too small, or none of the choices.
    """
    parameter = _BY_NAME.get(name)
    if parameter is None:
        return value
    converted = _convert(parameter, value)
    if converted is None:
        raise SMPConfigError(f"{name}={value!r:.80} ({where}): expected {_expected(parameter)}")
    return converted


def _convert(parameter: Parameter, value: Any) -> Any:
    """None where it can't be."""
    if parameter.kind == "flag":
        if isinstance(value, str):
            return {"true": True, "1": True, "false": False, "0": False}.get(value.strip().lower())
        return bool(value) if value in (0, 1) else None
    if parameter.kind == "text":
        if not isinstance(value, str) or not value:
            return None
        if parameter.name == "placement_strategy":
            try:
                permutation(value)
            except ValueError:
                return None
        return value if not parameter.choices or value in parameter.choices else None
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    try:
        number = float(value)
    except ValueError:
        return None
    if not parameter.least <= number < float("inf") or (parameter.kind == "count" and number % 1):
        return None
    return int(number) if parameter.kind == "count" else number


def _expected(parameter: Parameter) -> str:
    if parameter.name == "placement_strategy":
        return "cluster, spread or an order of the letters D, P and T such as TPD"
    if parameter.choices:
        return " or ".join(choice for choice in parameter.choices if not choice.startswith("_"))
    if parameter.kind == "flag":
        return "true or false"
    if parameter.kind == "text":
        return "a text"
    return f"a {'whole ' if parameter.kind == 'count' else ''}number, {parameter.least:g} or more"


def _check(config: Config) -> None:
    """The rules between parameters, and what isn't supported."""
    for name, instead in UNSUPPORTED:
        if getattr(config, name) != _BY_NAME[name].default:
            raise SMPUnsupportedError(
                f"{config.shown(name)}: musterpoint's smdistributed.modelparallel doesn't support it yet; {instead}"
            )
    _check_sharding(config)
    if config.default_partition >= config.pipeline_parallel_degree:
        raise SMPConfigError(
            f"{config.shown('default_partition')}: expected less than {config.shown('pipeline_parallel_degree')}, as "
            "partitions are counted from 0"
        )
    if config.memory_weight > 1:
        raise SMPConfigError(f"{config.shown('memory_weight')}: expected a number from 0 to 1")
    for name, default in (("ddp_port", None), ("ddp_dist_backend", "auto")):
        if not config.ddp and getattr(config, name) != default:
            raise SMPConfigError(f"{config.shown(name)}: it needs ddp to be set as well, and {config.shown('ddp')}")
    if config.fp16 and config.bf16:
        raise SMPConfigError(f"{config.shown('fp16')} and {config.shown('bf16')}: a model is trained in one of the two")
    if config.shard_optimizer_state and not config.ddp:
        raise SMPConfigError(
            f"{config.shown('shard_optimizer_state')}: it needs ddp to be set as well, and {config.shown('ddp')}"
        )
    if config.tensor_parallel_degree > 1 and not config.ddp:
        raise SMPConfigError(
            f"{config.shown('tensor_parallel_degree')}: it needs ddp to be set as well, since the ranks average the "
            f"gradients of what they all have; and {config.shown('ddp')}"
        )
    if config.load_partition and not config.partition_file:
        raise SMPConfigError(f"{config.shown('load_partition')}: it needs partition_file, the file to load")


_NOT_SHARDED: tuple[tuple[str, str], ...] = (
    ("pipeline_parallel_degree", "set it to 1: shards need no pipeline"),
    ("tensor_parallel_degree", "set it to 1"),
    ("shard_optimizer_state", "leave it out: the optimizer's state is in shards already"),
)
"""What sharded data parallelism doesn't go with: the first and the third in AWS's library neither."""


def _check_sharding(config: Config) -> None:
    if config.sharded_data_parallel_degree == 1:
        return
    shown = config.shown("sharded_data_parallel_degree")
    for name, instead in _NOT_SHARDED:
        if getattr(config, name) != _BY_NAME[name].default:
            raise SMPConfigError(f"{shown} doesn't go with {config.shown(name)}: {instead}")
    if not config.ddp:
        raise SMPConfigError(f"{shown}: it needs ddp to be set as well, and {config.shown('ddp')}")
