"""Platforms without a reader: tells from their variables whether they started several hosts or processes.

Without this check each host of such a job would run alone, as a job of one host, and succeed. Sources: each
launcher's documentation.
"""

import json
from typing import Callable, Mapping, NamedTuple

from musterpoint.errors import UsageError


class Sign(NamedTuple):
    """A variable, and how to read from its text how many hosts or processes there are (ValueError: it doesn't say).

    Where ``beside`` names variables, this one counts only if one of those is set too.
    """

    variable: str
    count: Callable[[str], int] = int
    beside: tuple[str, ...] = ()


class Platform(NamedTuple):
    """``signs`` are in groups; the first group with a number decides."""

    name: str
    signs: tuple[tuple[Sign, ...], ...]


class Detected(NamedTuple):
    """A platform that started several hosts or processes, and the variables (name and text) that show it."""

    platform: Platform
    variables: tuple[tuple[str, str], ...]


def several(environ: Mapping[str, str]) -> Detected | None:
    """The platform whose variables say that there are more processes than this one; None where no platform does."""
    for platform in PLATFORMS:
        for group in platform.signs:
            counts = [(sign.variable, number) for sign in group if (number := _count(sign, environ))]
            if counts:
                detected = tuple((name, environ[name]) for name, number in counts if number > 1)
                if detected:
                    return Detected(platform, detected)
                break
    return None


def refuse_several(environ: Mapping[str, str]) -> None:
    """Refuses to run this process as a job of one host if it is one of several.

    Raises:
        UsageError: a platform's variables say that it is; the message names them, and what to set instead.
    """
    detected = several(environ)
    if detected is None:
        return
    named = ", ".join(f"{name}={_shown(text)}" for name, text in detected.variables)
    raise UsageError(
        f"{named}: by {detected.platform.name}'s variables this is one of several hosts or processes, and this release "
        "can't read from them which ones. Start one process per host, and tell each the names of all hosts and its "
        'own, such as SM_HOSTS=\'["node-1", "node-2"]\' SM_CURRENT_HOST=node-1; or set MUSTER_PLATFORM=plain '
        "(--platform plain) where this host is a job of its own"
    )


def refuse_started_ranks(environ: Mapping[str, str]) -> None:
    """Refuses to run a process that a launcher above has started as one of several ranks.

    Raises:
        UsageError: ``WORLD_SIZE`` and ``LOCAL_RANK`` say so.
    """
    if _count(Sign("WORLD_SIZE", beside=("LOCAL_RANK",)), environ) > 1:
        names = (name for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE") if environ.get(name))
        named = ", ".join(f"{name}={_shown(environ[name])}" for name in names)
        raise UsageError(
            f"{named}: a launcher (torchrun, mpirun, or a script that sets these for torch.distributed) has started "
            "this process as one rank of several, and would start all ranks again under each: start musterpoint in "
            "that launcher's place, once per host, or unset them where they are left over"
        )


def _count(sign: Sign, environ: Mapping[str, str]) -> int:
    """The number that ``sign`` gives; 0: none."""
    text = environ.get(sign.variable, "").strip()
    if not text or (sign.beside and not any(environ.get(name) for name in sign.beside)):
        return 0
    try:
        return max(0, sign.count(text))
    except (ValueError, TypeError, AttributeError, RecursionError):
        return 0


_LONGEST = 60


def _shown(text: str) -> str:
    text = text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."
    return repr(text) if set(text) & set(" \"'{[\n") else text


def _index(text: str) -> int:
    """A rank or index, counted from 0: there are at least that many others before it."""
    return int(text) + 1


def _range(text: str) -> int:
    """``2``, or the upper end of ``1:4``."""
    return int(text.rpartition(":")[2])


def _lsf(text: str) -> int:
    """``host slots host slots``."""
    return len(text.split()[::2])


def _is_set(_text: str) -> int:
    """For a variable that is set only where there are several."""
    return 2


def _listed_hosts(text: str) -> int:
    """The length of a JSON list. Any other text counts as several: somebody tried to give a list."""
    try:
        value = json.loads(text)
    except ValueError:
        return 2
    return len(value) if isinstance(value, list) else 2


def _resource_hosts(text: str) -> int:
    return len(json.loads(text).get("hosts") or ())


def _cluster_tasks(text: str) -> int:
    """The tasks of a TF_CONFIG."""
    return sum(len(tasks) for tasks in json.loads(text).get("cluster", {}).values())


_RANKS = ("RANK", "NODE_RANK", "MASTER_ADDR")

PLATFORMS: tuple[Platform, ...] = (
    Platform("SageMaker", (
        (Sign("SM_HOSTS", _listed_hosts), Sign("SM_HOST_COUNT"), Sign("SM_CURRENT_HOST_RANK", _index),
         Sign("SM_RESOURCE_CONFIG", _resource_hosts)),
        (Sign("SM_CURRENT_HOST", _is_set),),
    )),
    # a PyTorchJob's WORLD_SIZE also counts the processes of one host, so PET_NNODES comes before it
    Platform("torch.distributed", (
        (Sign("WORLD_SIZE", beside=("LOCAL_RANK",)),),
        (Sign("PET_NNODES", _range), Sign("PET_NODE_RANK", _index)),
        (Sign("NNODES", beside=("NODE_RANK", "MASTER_ADDR")), Sign("GROUP_WORLD_SIZE")),
        (Sign("WORLD_SIZE", beside=_RANKS),),
    )),
    Platform("MPI", (
        (Sign("OMPI_COMM_WORLD_SIZE"), Sign("PMI_SIZE"), Sign("MV2_COMM_WORLD_SIZE")),
        (Sign("OMPI_COMM_WORLD_RANK", _index), Sign("PMI_RANK", _index), Sign("PMIX_RANK", _index)),
    )),
    Platform("TensorFlow", ((Sign("TF_CONFIG", _cluster_tasks),),)),
    Platform("JAX", ((Sign("JAX_NUM_PROCESSES"), Sign("JAX_PROCESS_ID", _index)),)),
    Platform("XGBoost", ((Sign("DMLC_NUM_WORKER"), Sign("DMLC_TASK_ID", _index)),)),
    Platform("AWS Batch", ((Sign("AWS_BATCH_JOB_NUM_NODES"), Sign("AWS_BATCH_JOB_NODE_INDEX", _index)),)),
    Platform("SkyPilot", ((Sign("SKYPILOT_NUM_NODES"), Sign("SKYPILOT_NODE_RANK", _index)),)),
    Platform("dstack", ((Sign("DSTACK_NODES_NUM"), Sign("DSTACK_NODE_RANK", _index)),)),
    Platform("LSF", ((Sign("LSB_MCPU_HOSTS", _lsf),),)),
    Platform("PBS", ((Sign("PBS_NUM_NODES"), Sign("PBS_NODENUM", _index)),)),
    Platform("Grid Engine", ((Sign("NHOSTS", beside=("PE_HOSTFILE",)),),)),
    Platform("Flux", ((Sign("FLUX_JOB_NNODES"), Sign("FLUX_TASK_RANK", _index)),)),
)  # fmt: skip
"""The platforms and their variables, in the order in which they are asked."""
