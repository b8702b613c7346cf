"""The parameters of model parallelism, of both versions: which there are, what they must be, and what contradicts what.

The library reads them by it, and so does the launcher, before a rank starts. The launcher loads this file by its path:
it imports nothing but the standard library.

Sources of the names and defaults: AWS's documentation ("SageMaker distributed model parallel: configuration
parameters", and "core features of version 2"), and the checks of the SageMaker Python SDK (``validate_mp_config`` in
``fw_utils.py``).
"""

from __future__ import annotations

from typing import Any, Callable, Literal, Mapping, NamedTuple

ALIASES = {"cluster": "DPT", "spread": "TPD"}
OLDER = {"partitions": "pipeline_parallel_degree"}
"""Older names. Where one source has both, the newer counts, as in AWS's library."""
DEFAULT = "the default"
"""The source of a value that nobody gave."""
NEAR = 0.75
"""How alike a name that nobody knows must be to a parameter's to be a slip of the pen."""


class ParameterError(ValueError):
    """A parameter is wrong; the message is for the one who wrote it."""


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


Table = Mapping[str, Parameter]


def _table(*parameters: Parameter) -> Table:
    return {parameter.name: parameter for parameter in parameters}


VERSION_1 = _table(
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
"""``smdistributed.modelparallel``, by name."""

VERSION_2 = _table(
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
"""``torch.sagemaker``, by name."""

KNOWN = {**VERSION_2, **VERSION_1}


def current_names(given: Mapping[str, Any], table: Table) -> dict[str, Any]:
    """One source's parameters by today's names."""
    values = dict(given)
    for older, newer in OLDER.items():
        if older in values and newer in table:
            value = values.pop(older)
            if values.get(newer) is None:
                values[newer] = value
    return values


def checked(name: object, value: Any, where: str, table: Table) -> Any:
    """The value in its own type, since the platform's are sometimes texts; as it is where nobody knows the name. Raises
    ParameterError: it is of another type, too small or none of the choices; or the name is nearly a parameter's."""
    name = str(name)
    parameter = table.get(OLDER.get(name, name))
    if parameter is None:
        near = _near(name, table)
        if near and name not in VERSION_1 and name not in VERSION_2:
            raise ParameterError(
                f"{name}={value!r:.80} ({where}): no parameter of model parallelism; did you mean {near}?"
            )
        return value
    converted = None if value is None else _convert(parameter, value)
    if converted is None and value is not None:
        raise ParameterError(f"{name}={value!r:.80} ({where}): expected {_expected(parameter)}")
    return converted


def check(given: Mapping[str, Any], where: str) -> dict[str, Any]:
    """For a launcher, which can't tell the version that the script imports: the parameters as :func:`current_names`.
    Raises ParameterError: of :func:`checked`; or parameters of version 1 contradict each other."""
    typed = {name: checked(name, value, where, KNOWN) for name, value in given.items()}
    values = current_names(typed, KNOWN)
    of_1 = {name: value for name, value in values.items() if name in VERSION_1 and value is not None}
    if any(name not in VERSION_2 for name in of_1):
        whole = {**{name: parameter.default for name, parameter in VERSION_1.items()}, **of_1}
        wrong = contradiction(whole, lambda name: f"{name}={whole[name]!r} ({where if name in of_1 else DEFAULT})")
        if wrong:
            raise ParameterError(wrong)
    return values


def contradiction(values: Mapping[str, Any], shown: Callable[[str], str]) -> str:
    """Which parameters of version 1 contradict each other, in ``shown``'s words for each; empty where none do.

    values: those of :data:`VERSION_1`, each in its type.
    """
    for name, instead in _NOT_SHARDED if values["sharded_data_parallel_degree"] > 1 else ():
        if values[name] != VERSION_1[name].default:
            return f"{shown('sharded_data_parallel_degree')} doesn't go with {shown(name)}: {instead}"
    if values["default_partition"] >= values["pipeline_parallel_degree"]:
        return (
            f"{shown('default_partition')}: expected less than {shown('pipeline_parallel_degree')}, as partitions are "
            "counted from 0"
        )
    if (values["memory_weight"] or 0) > 1:
        return f"{shown('memory_weight')}: expected a number from 0 to 1"
    for first, second, why in (("fp16", "bf16", "a model is trained in one"), ("ddp", "horovod", "choose one")):
        if values[first] and values[second]:
            return f"{shown(first)} and {shown(second)}: {why} of the two"
    for name, why in _NEED_DDP:
        if not values["ddp"] and values[name] != VERSION_1[name].default:
            return f"{shown(name)}: it needs ddp to be set as well{why}, and {shown('ddp')}"
    if values["load_partition"] and not values["partition_file"]:
        return f"{shown('load_partition')}: it needs partition_file, the file to load"
    return ""


_NEED_DDP = (
    ("ddp_port", ""),
    ("ddp_dist_backend", ""),
    ("shard_optimizer_state", ""),
    ("tensor_parallel_degree", ", since the ranks average the gradients of what they all have"),
    ("sharded_data_parallel_degree", ""),
)
_NOT_SHARDED = (
    ("pipeline_parallel_degree", "set it to 1: shards need no pipeline"),
    ("tensor_parallel_degree", "set it to 1"),
    ("shard_optimizer_state", "leave it out: the optimizer's state is in shards already"),
)
"""What sharded data parallelism doesn't go with: the first and the third in AWS's library neither."""


def permutation(strategy: str) -> str:
    """The placement as letters of which the right-most varies fastest over the ranks: D replica, P pipeline, T tensor.
    Raises ValueError: ``strategy`` is neither cluster, spread nor an order of the three letters."""
    letters = ALIASES.get(strategy.lower(), strategy.upper())
    if sorted(letters) != ["D", "P", "T"]:
        raise ValueError(f"placement_strategy={strategy!r}: expected {_PLACEMENTS}")
    return letters


_PLACEMENTS = "cluster, spread or an order of the letters D, P and T, such as TPD"


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
    except (ValueError, OverflowError):
        return None
    if not parameter.least <= number < float("inf") or (parameter.kind == "count" and number % 1):
        return None
    return int(number) if parameter.kind == "count" else number


def _expected(parameter: Parameter) -> str:
    if parameter.name == "placement_strategy":
        return _PLACEMENTS
    if parameter.choices:
        return " or ".join(choice for choice in parameter.choices if not choice.startswith("_"))
    if parameter.kind == "flag":
        return "true or false"
    if parameter.kind == "text":
        return "a text"
    return f"a {'whole ' if parameter.kind == 'count' else ''}number, {parameter.least:g} or more"


def _near(name: str, table: Table) -> str:
    import difflib

    names = (*table, *(older for older, newer in OLDER.items() if newer in table))
    return next(iter(difflib.get_close_matches(name, names, 1, NEAR)), "")
