"""The AzureML reader: a job from the variables that AzureML gives every process it starts.

AzureML starts MPI jobs by its own mpirun, PyTorch jobs once per process (RANK and LOCAL_RANK are set then) or once per
node, TensorFlow jobs once per task, and other jobs once per node. Sources: Microsoft's "Distributed GPU training
guide" for SDK v1 and v2, azureml-examples, and variables of real jobs in public issues (Lightning 13639, 13907).
"""

import os
from typing import Mapping

from musterpoint.base.errors import UsageError
from musterpoint.base.records import NamedTuple
from musterpoint.base.settings import AZUREML_PORT, PARAMETER_SERVER_PORT, Settings
from musterpoint.core.job import azureml_hosts
from musterpoint.core.job.azureml_hosts import LOCAL_RANK, LOCAL_SIZE, RANK, SIZE, Count, Form, ray_cluster, whole
from musterpoint.core.job.azureml_outputs import PREFIX, of_node, outputs_of, unexpanded
from musterpoint.core.job.fields import first_set
from musterpoint.core.job.model import Distribution, EntryPoint, Job, Note, StartedRank
from musterpoint.core.job.platform import Platform, Row

NAME = "azureml"
SIGNS = (
    "AZUREML_RUN_ID",
    "AZUREML_NODE_COUNT",
    "AZ_BATCH_MASTER_NODE",
    "AZ_BATCHAI_MPI_MASTER_NODE",
    "AZ_BATCH_HOST_LIST",
    "AZ_BATCH_NODE_LIST",
    "AZUREML_CR_NODE_RANK",
    "AZ_BATCHAI_TASK_INDEX",
    "AZUREML_CR_DISTRIBUTED_CONFIG",
    "AZ_BATCHAI_JOB_MASTER_NODE_IP",
)
"""Variables that only processes of AzureML's have."""
_NAMES = ("AZUREML_RUN_ID", "AZUREML_ROOT_RUN_ID", "AZ_BATCH_JOB_ID", "AZ_BATCHAI_JOB_NAME")

_WHAT: dict[Form, str] = {
    "mpi": "an MPI job, whose processes AzureML's mpirun started",
    "processes": "a PyTorch job, started once per process",
    "node": "a PyTorch job, started once per node",
    "tensorflow": "a TensorFlow job, started once per task",
    "ray": "a Ray job, whose cluster AzureML started",
    "none": "a job without a distribution",
}


class _Started(NamedTuple):
    """The rank that this process was started as (None: none), and how many there are on each host (None: unknown)."""

    rank: StartedRank | None = None
    per_host: int | None = None
    notes: tuple[Note, ...] = ()


def read(environ: Mapping[str, str], settings: Settings, _base: str = "") -> Job:
    """The job that AzureML's variables describe, without a program.

    Raises:
        UsageError: a variable is malformed, or doesn't fit the others; the message names it.
    """
    form = form_of(environ)
    count = azureml_hosts.node_count(environ, form, settings.nnodes)
    started = _started(environ, form, count)
    cluster = azureml_hosts.read(environ, form, count, started.rank, settings.rollcall_leader)
    paths, output_notes = outputs_of(environ, os.getcwd(), cluster.rank or 0)
    port = whole(environ, "MASTER_PORT", 1) if environ.get("MASTER_PORT") else AZUREML_PORT
    if port > 65535:
        raise UsageError(f"the variable MASTER_PORT is {port}, expected a port number, 1 to 65535")
    return Job(
        platform=NAME,
        name=environ.get(first_set(environ, _NAMES), ""),
        hosts=cluster.hosts,
        current_host=cluster.current,
        group_hosts=cluster.hosts,
        entry_point=EntryPoint(""),
        distribution=_distribution(form, started, environ),
        paths=paths,
        notes=(
            Note("info", _about(form, environ, count, cluster, started)),
            *cluster.notes,
            *started.notes,
            *unexpanded(environ),
            *output_notes,
        ),
        unnamed=cluster.unnamed,
        assumed=count.number == 1 and not count.variable,
        started=started.rank,
        master_port=port,
        cluster=ray_cluster(environ) if form == "ray" else "",
    )


def form_of(environ: Mapping[str, str]) -> Form:
    """How AzureML started this process."""
    if first_set(environ, RANK) and first_set(environ, SIZE):
        return "mpi"
    if environ.get("TF_CONFIG"):
        return "tensorflow"
    if environ.get("RANK") and environ.get("LOCAL_RANK"):
        return "processes"
    if environ.get("RAY_ADDRESS"):
        return "ray"
    if environ.get("NODE_RANK") or (environ.get("MASTER_ADDR") and environ.get("WORLD_SIZE")):
        return "node"
    return "ray" if ray_cluster(environ) else "none"


def _started(environ: Mapping[str, str], form: Form, count: Count) -> _Started:
    if form == "mpi":
        return _started_by_mpi(environ, count)
    if form == "processes":
        return _started_per_process(environ, count)
    if form == "node" and environ.get("WORLD_SIZE"):
        world = whole(environ, "WORLD_SIZE", 1)
        return _Started(None, world // count.number if world % count.number == 0 else None)
    return _Started()


def _started_by_mpi(environ: Mapping[str, str], count: Count) -> _Started:
    of_rank, of_size = first_set(environ, RANK), first_set(environ, SIZE)
    of_local, of_local_size = first_set(environ, LOCAL_RANK), first_set(environ, LOCAL_SIZE)
    rank, size = whole(environ, of_rank, 0), whole(environ, of_size, 0)
    notes: list[Note] = []
    each = max(1, size // count.number)
    if not of_local_size:
        notes.append(_missing(LOCAL_SIZE[0], f"{each} processes a host are taken, {size} on {count.number}"))
    else:
        each = whole(environ, of_local_size, 1)
    if not of_local:
        notes.append(_missing(LOCAL_RANK[0], f"this is taken for local rank {rank % each}"))
    local = whole(environ, of_local, 0) if of_local else rank % each
    _check_place(of_rank, rank, size)
    _check_place(of_local or of_rank, local, each)
    if each * count.number != size:
        raise UsageError(
            f"{of_size} is {size}, and {each} processes on each of {count.number} hosts "
            f"({count.variable}) are {each * count.number}: musterpoint needs the same number on every host"
        )
    return _Started(StartedRank(rank, local, size, each, mpi=True), each, tuple(notes))


def _started_per_process(environ: Mapping[str, str], count: Count) -> _Started:
    rank, local = whole(environ, "RANK", 0), whole(environ, "LOCAL_RANK", 0)
    if not environ.get("WORLD_SIZE"):
        raise UsageError(
            f"RANK={rank} and LOCAL_RANK={local} are set, but not WORLD_SIZE, which AzureML sets too: set it to the "
            "number of all processes, or unset RANK and LOCAL_RANK for musterpoint to start the ranks"
        )
    world = whole(environ, "WORLD_SIZE", 1)
    _check_place("RANK", rank, world)
    if environ.get("LOCAL_WORLD_SIZE"):
        each = whole(environ, "LOCAL_WORLD_SIZE", 1)
    elif world % count.number:
        raise UsageError(
            f"WORLD_SIZE={world} processes on {count.number} hosts ({count.variable}) leave a remainder: AzureML "
            "starts the same number on each; set LOCAL_WORLD_SIZE to this host's"
        )
    else:
        each = world // count.number
    _check_place("LOCAL_RANK", local, each)
    return _Started(StartedRank(rank, local, world, each), each)


def _check_place(variable: str, place: int, size: int) -> None:
    if place >= size:
        raise UsageError(f"the variable {variable} is {place}, expected less than {size}, the number of processes")


def _missing(variable: str, instead: str) -> Note:
    return Note("warning", f"{variable} isn't set: {instead}")


def _distribution(form: Form, started: _Started, environ: Mapping[str, str]) -> Distribution:
    if form == "tensorflow":
        servers = bool(azureml_hosts.tasks(environ, "ps"))
        return Distribution("parameter_server" if servers else "multi_worker_mirrored_strategy")
    if form in ("ray", "none"):
        return Distribution("none", 1)
    return Distribution("torch_distributed", started.per_host or 1)


def _about(
    form: Form, environ: Mapping[str, str], count: Count, cluster: azureml_hosts.Cluster, started: _Started
) -> str:
    """How the variables were understood, in one sentence for the log and ``muster plan``."""
    hosts = f"{count.number} host{'s' if count.number > 1 else ''} ({count.variable or 'no variable says how many'})"
    parts = [f"AzureML: {_WHAT[form]}", hosts]
    if count.number > 1:
        number = "of unknown number" if cluster.rank is None else f"number {cluster.rank}"
        parts.append(f"this one is {number} ({cluster.rank_from})")
        parts.append(f"the first is {cluster.leader} ({cluster.leader_from})")
    if started.rank is not None:
        rank, local, world, each = started.rank[:4]
        parts.append(f"this process is rank {rank} of {world}, local rank {local} of {each}")
    return ", ".join(parts)


PLATFORM = Platform(
    name=NAME,
    title="AzureML",
    read=read,
    variables=("AZUREML_", "_AZUREML_", "AZ_BATCH", "AZURE_ML_", "OMPI_", "PMIX_", "PMI_", "MPI_LOCAL"),
    families=(PREFIX,),
    found=lambda environ, _base: any(environ.get(name) for name in SIGNS),
    folder="outputs",
    paths_at=of_node,
    once_per_host="process_count_per_instance: 1",
    slots_key="process_count_per_instance",
    unexpanded=True,
    tensorflow_port=PARAMETER_SERVER_PORT,
    tensorflow_keys={"environment": "cloud"},
    played="musterpoint.local.platforms.azureml",
    row=Row(
        "azureml.md",
        "`AZUREML_*`, `AZ_BATCH_*`; `OMPI_*`, `RANK`, `MASTER_ADDR` or `TF_CONFIG` by the distribution",
        "`muster launch …` in `command:`",
        "ranks that AzureML has started are supervised",
        "its named outputs, else `outputs`, which it uploads",
        "`outputs/musterpoint/node-N/failure`",
    ),
)
