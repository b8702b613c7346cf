"""The AzureML reader: a job from the variables that AzureML gives every process it starts.

AzureML starts MPI jobs by its own mpirun, PyTorch jobs once per process (RANK and LOCAL_RANK are set then) or once per
node, TensorFlow jobs once per task, and other jobs once per node. Sources: Microsoft's "Distributed GPU training
guide" for SDK v1 and v2, azureml-examples, and variables of real jobs in public issues (Lightning 13639, 13907);
for outputs "Access data in a job" (they are in ``AZURE_ML_OUTPUT_<name>``) and "Submit a training job" (files in
``./outputs`` are uploaded to the run).
"""

import os
import re
from typing import Mapping

from musterpoint.base.errors import UsageError
from musterpoint.base.records import NamedTuple
from musterpoint.base.settings import AZUREML_PORT, PARAMETER_SERVER_PORT, Settings
from musterpoint.core.job import azureml_hosts
from musterpoint.core.job.azureml_hosts import LOCAL_RANK, LOCAL_SIZE, RANK, SIZE, Count, Form, ray_cluster, whole
from musterpoint.core.job.fields import first_set
from musterpoint.core.job.model import Distribution, EntryPoint, Job, Note, Paths, StartedRank
from musterpoint.core.job.platform import DocsRow, Platform

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
PREFIX = "AZURE_ML_OUTPUT_"
_MODEL = ("model", "trained_model", "output_model", "finetuned_model")
_CHECKPOINTS = ("checkpoint", "checkpoints")
_DATA = ("output", "outputs", "output_data", "data", "results")
_LITERAL = re.compile(r"\$\{\{\s*(inputs|outputs)\.([A-Za-z0-9_.]+)\s*\}\}")


class _Started(NamedTuple):
    """The rank that this process was started as (None: none), and how many there are on each host (None: unknown)."""

    rank: StartedRank | None = None
    per_host: int | None = None
    notes: tuple[Note, ...] = ()


def read_job(environ: Mapping[str, str], settings: Settings, _base: str = "") -> Job:
    """The job that AzureML's variables describe, without a program.

    Raises:
        UsageError: a variable is malformed, or doesn't fit the others; the message names it.
    """
    form = form_of(environ)
    count = azureml_hosts.node_count(environ, form, settings.nnodes)
    started = _started(environ, form, count)
    cluster = azureml_hosts.read_hosts(environ, form, count, started.rank, settings.rollcall_leader)
    paths, output_notes = _outputs_of(environ, os.getcwd(), cluster.rank or 0)
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
            *_unexpanded(environ),
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


def _outputs_of(environ: Mapping[str, str], cwd: str, node: int) -> tuple[Paths, tuple[Note, ...]]:
    """The job's directories: its named outputs, and ``outputs/musterpoint/node-N`` for reports."""
    outputs = {
        name[len(PREFIX) :]: value
        for name, value in sorted(environ.items())
        if name.startswith(PREFIX) and value.startswith("/")
    }
    chosen = {
        "model": _choose(outputs, _MODEL),
        "checkpoints": _choose(outputs, _CHECKPOINTS),
        "output_data": _choose(outputs, _DATA),
    }
    if not any(chosen.values()) and len(outputs) == 1:
        chosen["model"] = next(iter(outputs))
    paths = Paths(
        model=outputs.get(chosen["model"], ""),
        output_data=outputs.get(chosen["output_data"], ""),
        checkpoints=outputs.get(chosen["checkpoints"], ""),
    )
    paths = _of_node(paths._replace(output=os.path.join(cwd, "outputs", "musterpoint", f"node-{node}")), node)
    used = [f"{use.replace('_', ' ')} in {PREFIX}{name}" for use, name in chosen.items() if name]
    return paths, (Note("info", f"AzureML's outputs: {', '.join(used)}"),) if used else ()


def _of_node(paths: Paths, node: int) -> Paths:
    """``paths`` with the reports' directory of the host at place ``node``."""
    report = os.path.join(os.path.dirname(paths.output), f"node-{node}")
    return paths._replace(output=report, failure=os.path.join(report, "failure"))


def _choose(outputs: Mapping[str, str], names: tuple[str, ...]) -> str:
    """The output with one of these names, else one that begins with the first of them; empty: none."""
    by_name = {name.lower(): name for name in outputs}
    exact = next((by_name[name] for name in names if name in by_name), "")
    return exact or next((by_name[name] for name in sorted(by_name) if name.startswith(names[0])), "")


def _unexpanded(environ: Mapping[str, str]) -> tuple[Note, ...]:
    """Warnings about ``${{outputs.x}}`` in variables: AzureML replaces it only in a job's command."""
    notes = []
    for variable, value in sorted(environ.items()):
        found = _LITERAL.search(value) if "${{" in value else None
        if found:
            kind, name = found.groups()
            read = f"AZURE_ML_{kind.removesuffix('s').upper()}_{name}"
            path = f", which is {environ[read]}" if environ.get(read) else ""
            notes.append(
                Note(
                    "warning",
                    f"the variable {variable} holds {found.group()} as it was written: AzureML puts paths into a job's "
                    f"command only, not into its environment_variables; read {read}{path}, or pass it in the command",
                )
            )
    return tuple(notes)


PLATFORM = Platform(
    name=NAME,
    title="AzureML",
    read=read_job,
    variables=("AZUREML_", "_AZUREML_", "AZ_BATCH", "AZURE_ML_", "OMPI_", "PMIX_", "PMI_", "MPI_LOCAL"),
    families=(PREFIX,),
    found=lambda environ, _base: any(environ.get(name) for name in SIGNS),
    folder="outputs",
    paths_at=_of_node,
    once_per_host="process_count_per_instance: 1",
    slots_key="process_count_per_instance",
    unexpanded=True,
    tensorflow_port=PARAMETER_SERVER_PORT,
    tensorflow_keys={"environment": "cloud"},
    row=DocsRow(
        "azureml.md",
        "`AZUREML_*`, `AZ_BATCH_*`; `OMPI_*`, `RANK`, `MASTER_ADDR` or `TF_CONFIG` by the distribution",
        "`muster launch …` in `command:`",
        "ranks that AzureML has started are supervised",
        "its named outputs, else `outputs`, which it uploads",
        "`outputs/musterpoint/node-N/failure`",
    ),
)
