"""Reads the SDK's distribution keys among the hyperparameters into one :class:`Distribution`.

SDK v2 sends one ``sagemaker_*_enabled`` key per strategy; sometimes two are true, and HuggingFace, TensorFlow and
Chainer estimators have keys of their own. :mod:`musterpoint.core.job.sdk` goes the other way.
"""

from typing import Any, Mapping

from musterpoint.base.records import NamedTuple
from musterpoint.core.job.fields import count, flag, mapping, shown, text, wrong
from musterpoint.core.job.model import Distribution, DistributionKind, Note

MPI = "sagemaker_mpi_enabled"
DATAPARALLEL = "sagemaker_distributed_dataparallel_enabled"
GROUPS = "sagemaker_distribution_instance_groups"
MODELPARALLEL = "mp_parameters"

STRATEGIES: tuple[tuple[str, DistributionKind], ...] = (
    (MPI, "mpi"),
    ("sagemaker_use_mpi", "mpi"),
    ("sagemaker_pytorch_ddp_enabled", "pytorch_ddp"),
    ("sagemaker_torch_distributed_enabled", "torch_distributed"),
    (DATAPARALLEL, "smdistributed_dataparallel"),
    ("sagemaker_pytorch_xla_multi_worker_enabled", "pytorch_xla"),
    ("sagemaker_multi_worker_mirrored_strategy_enabled", "multi_worker_mirrored_strategy"),
    ("sagemaker_parameter_server_enabled", "parameter_server"),
)
"""Key and kind. Where several are true, the first one counts, and a note says so. With ``torch_distributed`` beside
``dataparallel`` that is torchrun: SMDDP is then a backend of torch.distributed."""

_NOT_STRATEGIES = ("sagemaker_training_compiler_enabled",)

_PROCESSES_PER_HOST = ("sagemaker_mpi_num_of_processes_per_host", "sagemaker_process_slots_per_host")
_PROCESSES = ("sagemaker_mpi_num_processes", "sagemaker_num_processes")
_MPI_OPTIONS = ("sagemaker_mpi_custom_mpi_options", "sagemaker_additional_mpi_options")
_DATAPARALLEL_OPTIONS = ("sagemaker_distributed_dataparallel_custom_mpi_options",)


class Decoded(NamedTuple):
    """A distribution and what people should know about how it was read."""

    distribution: Distribution
    notes: tuple[Note, ...] = ()


def enabled(values: Mapping[str, Any], where: str = "the hyperparameter") -> tuple[DistributionKind, ...]:
    """The kinds that ``values`` (decoded hyperparameters by name) switch on; the first one counts."""
    kinds = [kind for key, kind in STRATEGIES if flag(values.get(key), f"{where} {key}")]
    return tuple(dict.fromkeys(kinds))


def from_hyperparameters(values: Mapping[str, Any], where: str = "the hyperparameter") -> Decoded:
    """The distribution that decoded hyperparameters ask for; unknown strategies are warnings.

    Raises:
        UsageError: a known key has a value of the wrong type; the message begins with ``where``.
    """
    notes = _unknown(values)
    kinds = enabled(values, where)
    parameters = _model_parallel(values, where)
    if len(kinds) > 1:
        others = ", ".join(kinds[1:])
        notes.append(Note("info", f"the job enables {kinds[0]} and {others}: it is started as {kinds[0]}"))
    kind: DistributionKind = kinds[0] if kinds else "none"
    if parameters is not None and kind == "mpi":
        kind = "smdistributed_modelparallel"
    elif parameters is not None and kind == "none" and DATAPARALLEL in values:
        kind = "smdistributed_modelparallel"
        notes.append(
            Note(
                "warning",
                "the job asks for model parallelism without mpi or torch_distributed, which sagemaker-training starts "
                'once per host; it is started with MPI here: add "mpi": {"enabled": true} to its distribution',
            )
        )
    option_keys = _DATAPARALLEL_OPTIONS if kind == "smdistributed_dataparallel" else _MPI_OPTIONS
    over_mpi = kind in ("mpi", "smdistributed_modelparallel", "smdistributed_dataparallel")
    options_key, options = _first_text(values, option_keys, where) if over_mpi else ("", "")
    distribution = Distribution(
        kind=kind,
        processes_per_host=_first_count(values, _PROCESSES_PER_HOST, where) if over_mpi else None,
        options=options,
        groups=groups_named(values, where) if kind != "none" else (),
        parameters=parameters,
        processes=_first_count(values, _PROCESSES, where) if over_mpi else None,
        dataparallel="smdistributed_dataparallel" in kinds,
        options_key=options_key,
    )
    return Decoded(distribution, tuple(notes))


def _unknown(values: Mapping[str, Any]) -> list[Note]:
    known = {key for key, _ in STRATEGIES}.union(_NOT_STRATEGIES)
    return [
        Note(
            "warning",
            f"the hyperparameter {key:.80} = {shown(value)} looks like a distribution that musterpoint "
            "doesn't know: it is ignored; a newer musterpoint may know it",
        )
        for key, value in values.items()
        if key.startswith("sagemaker_") and key.endswith("_enabled") and key not in known and value not in (False, None)
    ]


def _model_parallel(values: Mapping[str, Any], where: str) -> dict[str, Any] | None:
    """``mp_parameters`` where it is the SDK's object; a user's own hyperparameter of that name may be anything."""
    value = values.get(MODELPARALLEL)
    if DATAPARALLEL in values and value is not None:
        return mapping(value, f"{where} {MODELPARALLEL}")
    return value if isinstance(value, dict) else None


def groups_named(values: Mapping[str, Any], where: str = "the hyperparameter") -> tuple[str, ...]:
    """The instance groups that decoded hyperparameters name.

    Raises:
        UsageError: the value isn't a list of names.
    """
    value = values.get(GROUPS)
    if value is None:
        return ()
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, list) or not all(isinstance(name, str) and name for name in names):
        raise wrong(f"{where} {GROUPS}", value, 'a list of instance group names such as ["group-1"]')
    return tuple(dict.fromkeys(names))


def _first_count(values: Mapping[str, Any], keys: tuple[str, ...], where: str) -> int | None:
    for key in keys:
        if values.get(key) is not None:
            return count(values[key], f"{where} {key}")
    return None


def _first_text(values: Mapping[str, Any], keys: tuple[str, ...], where: str) -> tuple[str, str]:
    """The first key that has a text, and the text; both empty where none has."""
    for key in keys:
        if values.get(key):
            return key, text(values[key], f"{where} {key}")
    return "", ""
