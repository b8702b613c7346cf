"""Platforms without a reader: tells from their variables whether they started several hosts or processes.

Without this check each host of such a job would run alone, as a job of one host, and succeed. Sources: each
launcher's documentation.
"""

import json
from fnmatch import fnmatchcase
from typing import Callable, Iterable, Mapping

from musterpoint.base.errors import UsageError
from musterpoint.base.records import NamedTuple
from musterpoint.core.job.fields import is_loopback, small_text
from musterpoint.core.job.model import Note


class Sign(NamedTuple):
    """A variable, and how to read from its text how many hosts or processes there are (ValueError: it doesn't say).

    ``variable`` may be a pattern (``VC_*_HOSTS``): the numbers of all that match are added up. Where ``beside`` names
    variables, this one counts only if one of those is set too.
    """

    variable: str
    count: Callable[[str], int] = int
    beside: tuple[str, ...] = ()


class OtherPlatform(NamedTuple):
    """``signs`` are in groups; the first group with a number decides.

    ``options``: what tells ``muster launch`` the same, as words of a shell; empty where the variables don't say enough.
    ``shown_by``: variables that its processes always have, which don't say how many there are.
    """

    name: str
    signs: tuple[tuple[Sign, ...], ...]
    options: str = ""
    shown_by: tuple[str, ...] = ()


class Detected(NamedTuple):
    """A platform that started several hosts or processes, and the variables (name and text) that show it."""

    platform: OtherPlatform
    variables: tuple[tuple[str, str], ...]


def several(environ: Mapping[str, str]) -> Detected | None:
    """The platform whose variables say that there are more processes than this one; None where no platform does.

    Raises:
        UsageError: a variable of a platform's can't be read, and no other says that there are several.
    """
    for platform in PLATFORMS:
        for group in platform.signs:
            readings = [reading for sign in group if (reading := _read(sign, environ)).names]
            names = [name for reading in readings if reading.number > 1 for name in reading.names]
            if names:
                return Detected(platform, tuple((name, environ[name]) for name in names))
            for reading in readings:
                if reading.unreadable:
                    _refuse_unreadable(platform, reading.names[0], environ)
            if any(reading.number for reading in readings):
                break
    return None


def uncounted(environ: Mapping[str, str]) -> tuple[str, ...]:
    """The variables of platforms that are here without a word of how many hosts there are."""
    return tuple(
        name
        for platform in PLATFORMS
        for name in platform.shown_by
        if environ.get(name) and not any(_read(sign, environ).number for group in platform.signs for sign in group)
    )


_MORE = (
    "pass --nnodes N --node-rank I --rollcall-leader HOST there (I from 0, HOST the first host), or tell each the "
    'names of all hosts and its own, such as SM_HOSTS=\'["node-1", "node-2"]\' SM_CURRENT_HOST=node-1'
)
_ALONE = "set MUSTER_PLATFORM=plain (--platform plain) where this host is a job of its own"


def refuse_several(environ: Mapping[str, str]) -> None:
    """Refuses to run this process as a job of one host if it is one of several.

    Raises:
        UsageError: a platform's variables say that it is; the message names them, and what to pass or set instead.
    """
    detected = several(environ)
    if detected is None:
        return
    options = detected.platform.options
    raise UsageError(
        f"{shown_variables(detected.variables)}: by {detected.platform.name}'s variables this is one of several hosts "
        "or processes, and musterpoint doesn't read the others from them. Start one process per host, and "
        f"{f'pass {options} there' if options else _MORE}; or {_ALONE}"
    )


def left_alone(environ: Mapping[str, str]) -> tuple[Note, ...]:
    """A warning where --nnodes 1 makes this host a job of its own, and a platform's variables say that there are more.

    Raises:
        UsageError: a variable of a platform's can't be read.
    """
    detected = several(environ)
    if detected is None:
        return ()
    words = (
        f"{shown_variables(detected.variables)}: by {detected.platform.name}'s variables this is one of several hosts, "
        "and --nnodes 1 (--standalone of torchrun) makes each that is started so a job of its own"
    )
    return (Note("warning", words),)


def _refuse_unreadable(platform: OtherPlatform, name: str, environ: Mapping[str, str]) -> None:
    raise UsageError(
        f"{name}={_shown(environ[name])}: {platform.name} counts hosts or processes there, and this can't be read as "
        f"such a count: correct or unset it; or {_ALONE}"
    )


def refuse_started_ranks(environ: Mapping[str, str]) -> None:
    """Refuses to run a process that a launcher above has started as one of several ranks.

    Raises:
        UsageError: ``WORLD_SIZE`` and ``LOCAL_RANK`` say so.
    """
    if _read(Sign("WORLD_SIZE", beside=("LOCAL_RANK",)), environ).number > 1:
        names = (name for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE") if environ.get(name))
        named = shown_variables((name, environ[name]) for name in names)
        raise UsageError(
            f"{named}: a launcher (torchrun, mpirun, or a script that sets these for torch.distributed) has started "
            "this process as one rank of several, and would start all ranks again under each: start musterpoint in "
            "that launcher's place, once per host, or unset them where they are left over"
        )


class _Reading(NamedTuple):
    """A sign's variables that are set, and their number (0: they don't say, or are ``unreadable``)."""

    names: tuple[str, ...] = ()
    number: int = 0
    unreadable: bool = False


def _read(sign: Sign, environ: Mapping[str, str]) -> _Reading:
    if sign.beside and not any(environ.get(name) for name in sign.beside):
        return _Reading()
    known = [name for name in environ if fnmatchcase(name, sign.variable)] if "*" in sign.variable else [sign.variable]
    names = tuple(sorted(name for name in known if environ.get(name, "").strip()))
    try:
        return _Reading(names, sum(max(0, sign.count(environ[name].strip())) for name in names))
    except (ValueError, TypeError, AttributeError, RecursionError):
        return _Reading(names, unreadable=True)


def shown_variables(variables: Iterable[tuple[str, str]]) -> str:
    """``NAME=text, NAME=text``, long texts cut short."""
    return ", ".join(f"{name}={_shown(text)}" for name, text in variables)


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


def _commas(text: str) -> int:
    return len(text.split(","))


def _others(text: str) -> int:
    """The number of hosts besides the first."""
    return int(text) + 1


def _elsewhere(text: str) -> int:
    """An address; one that every machine has says nothing."""
    return 0 if is_loopback(text) else 2


def _lines(path: str) -> int:
    """The different lines of a file: each host stands there once for each of its slots."""
    return len(set(small_text(path).split()))


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


def _role_tasks(text: str) -> int:
    """The tasks of ``{"worker": ["host:port", ...], ...}``."""
    return sum(len(tasks) for tasks in json.loads(text).values())


_RANKS = ("RANK", "NODE_RANK", "MASTER_ADDR")
_BESIDE = ("NODE_RANK", "MASTER_ADDR")


def _options(nnodes: str, leader: str, node_rank: str = "") -> str:
    """The options of ``muster launch``; without ``node_rank`` the hosts are numbered as they come."""
    rank = f' --node-rank "{node_rank}"' if node_rank else ""
    return f'--nnodes "{nnodes}"{rank} --rollcall-leader "{leader}"'


PLATFORMS: tuple[OtherPlatform, ...] = (
    OtherPlatform(
        "SageMaker",
        (
            (
                Sign("SM_HOSTS", _listed_hosts),
                Sign("SM_HOST_COUNT"),
                Sign("SM_CURRENT_HOST_RANK", _index),
                Sign("SM_RESOURCE_CONFIG", _resource_hosts),
            ),
            (Sign("SM_CURRENT_HOST", _is_set),),
        ),
    ),
    # a PyTorchJob's WORLD_SIZE also counts the processes of one host, so PET_NNODES comes before it
    OtherPlatform(
        "torch.distributed",
        (
            (Sign("WORLD_SIZE", beside=("LOCAL_RANK",)),),
            (Sign("PET_NNODES", _range), Sign("PET_NODE_RANK", _index)),
            (Sign("NNODES", beside=_BESIDE), Sign("NUM_NODES", beside=_BESIDE), Sign("GROUP_WORLD_SIZE")),
            (Sign("WORLD_SIZE", beside=_RANKS),),
            (Sign("NODE_RANK", _index), Sign("MASTER_ADDR", _elsewhere, beside=("NODE_RANK",))),
        ),
    ),
    OtherPlatform(
        "MPI",
        (
            (
                Sign("OMPI_COMM_WORLD_SIZE"),
                Sign("PMI_SIZE"),
                Sign("MV2_COMM_WORLD_SIZE"),
                Sign("MVP_COMM_WORLD_SIZE"),
                Sign("JSM_NAMESPACE_SIZE"),
                Sign("PALS_SIZE"),
            ),
            (
                Sign("OMPI_COMM_WORLD_RANK", _index),
                Sign("PMI_RANK", _index),
                Sign("PMIX_RANK", _index),
                Sign("PALS_RANKID", _index),
                Sign("PALS_LOCAL_SIZE"),
                Sign("OMPI_COMM_WORLD_LOCAL_SIZE"),
            ),
        ),
    ),
    OtherPlatform("Horovod", ((Sign("HOROVOD_SIZE"), Sign("HOROVOD_RANK", _index)),)),
    OtherPlatform("JAX", ((Sign("JAX_NUM_PROCESSES"), Sign("JAX_PROCESS_ID", _index)),)),
    OtherPlatform(
        "a JAXJob",
        (
            (
                Sign("NUM_PROCESSES", beside=("COORDINATOR_ADDRESS",)),
                Sign("PROCESS_ID", _index, beside=("COORDINATOR_ADDRESS",)),
            ),
        ),
        _options("$NUM_PROCESSES", "$COORDINATOR_ADDRESS", "$PROCESS_ID"),
    ),
    OtherPlatform(
        "MXNet",
        (
            (
                Sign("DMLC_NUM_WORKER", beside=("DMLC_PS_ROOT_URI", "MX_CONFIG", "DMLC_ROLE")),
                Sign("DMLC_NUM_SERVER", _others, beside=("DMLC_PS_ROOT_URI", "MX_CONFIG", "DMLC_ROLE")),
            ),
        ),
    ),
    OtherPlatform("TonY", ((Sign("CLUSTER_SPEC", _role_tasks),),)),
    OtherPlatform("XGBoost", ((Sign("DMLC_NUM_WORKER"), Sign("DMLC_TASK_ID", _index)),)),
    OtherPlatform("PaddlePaddle", ((Sign("PADDLE_NNODES", _range), Sign("PADDLE_TRAINERS_NUM")),)),
    OtherPlatform("accelerate", ((Sign("NUM_MACHINES", beside=("MACHINE_RANK",)), Sign("MACHINE_RANK", _index)),)),
    # where another platform runs on it: alone it has a reader
    OtherPlatform("Volcano", ((Sign("VC_*_HOSTS", _commas),),)),
    OtherPlatform(
        "Cloud TPU",
        ((Sign("MEGASCALE_NUM_SLICES"), Sign("TPU_WORKER_HOSTNAMES", _commas), Sign("TPU_WORKER_ID", _index)),),
    ),
    OtherPlatform(
        "Metaflow",
        ((Sign("MF_PARALLEL_NUM_NODES"), Sign("MF_PARALLEL_NODE_INDEX", _index)),),
        _options("$MF_PARALLEL_NUM_NODES", "$MF_PARALLEL_MAIN_IP", "$MF_PARALLEL_NODE_INDEX"),
    ),
    OtherPlatform(
        "Beaker",
        ((Sign("BEAKER_REPLICA_COUNT"), Sign("BEAKER_REPLICA_RANK", _index)),),
        _options("$BEAKER_REPLICA_COUNT", "$BEAKER_LEADER_REPLICA_HOSTNAME", "$BEAKER_REPLICA_RANK"),
    ),
    OtherPlatform(
        "DGX Cloud Lepton",
        ((Sign("LEPTON_JOB_TOTAL_WORKERS"), Sign("LEPTON_JOB_WORKER_INDEX", _index)),),
        _options(
            "$LEPTON_JOB_TOTAL_WORKERS", "$LEPTON_JOB_WORKER_PREFIX-0.$LEPTON_SUBDOMAIN", "$LEPTON_JOB_WORKER_INDEX"
        ),
    ),
    OtherPlatform(
        "Base Command",
        ((Sign("NGC_ARRAY_SIZE"), Sign("NGC_ARRAY_INDEX", _index)),),
        _options("$NGC_ARRAY_SIZE", "$NGC_MASTER_ADDR", "$NGC_ARRAY_INDEX"),
    ),
    OtherPlatform(
        "Volcengine",
        ((Sign("MLP_WORKER_NUM"), Sign("MLP_ROLE_INDEX", _index)),),
        _options("$MLP_WORKER_NUM", "$MLP_WORKER_0_HOST", "$MLP_ROLE_INDEX"),
    ),
    OtherPlatform("OCI Data Science", ((Sign("OCI__WORKER_COUNT", _others),),)),
    OtherPlatform(
        "OAR",
        ((Sign("OAR_NODEFILE", _lines),),),
        _options('$(sort -u "$OAR_NODEFILE" | wc -l)', '$(head -n 1 "$OAR_NODEFILE")'),
    ),
    OtherPlatform(
        "Grid Engine",
        ((Sign("NHOSTS", beside=("PE_HOSTFILE",)),),),
        _options("$NHOSTS", "$(head -n 1 \"$PE_HOSTFILE\" | cut -d ' ' -f 1)"),
    ),
    OtherPlatform("Determined", (), shown_by=("DET_ALLOCATION_ID",)),
    OtherPlatform("LSF", (), shown_by=("LSB_JOBID",)),
    OtherPlatform("Flux", (), shown_by=("FLUX_URI",)),
    OtherPlatform("HTCondor", ((Sign("_CONDOR_NPROCS"), Sign("_CONDOR_PROCNO", _index)),)),
    OtherPlatform("Fujitsu's job manager", ((Sign("PJM_NODE"),),)),
)
"""The platforms and their variables, in the order in which they are asked."""
