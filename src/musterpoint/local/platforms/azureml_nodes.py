"""AzureML: variables on every host, and the processes that its distributions start there.

Forms are those of SDK v2 (``type``, ``process_count_per_instance``, ``worker_count``, ``parameter_server_count``) and
of v1's configurations (``process_count_per_node``, ``process_count`` for all nodes together, ``node_count``). Source:
Microsoft's "Distributed GPU training guide" for v1 and v2, and the YAML schema of command jobs.
"""

from __future__ import annotations

import json
import os
from typing import Any, Mapping, Sequence

from musterpoint.base.errors import UsageError
from musterpoint.base.settings import AZUREML_PORT, PARAMETER_SERVER_PORT
from musterpoint.core.fabric.mpirun import mpirun_of
from musterpoint.core.job.fields import count, is_loopback, shown, text, wrong
from musterpoint.core.job.platforms.azureml import PREFIX
from musterpoint.local.job_request import HostNaming, LocalJob
from musterpoint.local.platforms import commands
from musterpoint.local.platforms.local_platform import HostProcess, LocalPlatform, PlayedHost
from musterpoint.local.tree import Layout

FORMS: dict[str, str] = {
    "pytorch": '{"type": "pytorch", "process_count_per_instance": 4}, or of SDK v1 {"type": "pytorch", '
    '"process_count": 8, "node_count": 2}',
    "mpi": '{"type": "mpi", "process_count_per_instance": 4}, or of SDK v1 {"type": "mpi", '
    '"process_count_per_node": 4}',
    "tensorflow": '{"type": "tensorflow", "worker_count": 2, "parameter_server_count": 1}',
    "ray": '{"type": "ray"}',
}
"""The right form of each type of distribution."""
_KEYS: dict[str, tuple[str, ...]] = {
    "pytorch": ("process_count_per_instance", "process_count", "node_count"),
    "mpi": ("process_count_per_instance", "process_count_per_node", "node_count"),
    "tensorflow": ("worker_count", "parameter_server_count", "node_count"),
    "ray": (
        "port",
        "address",
        "include_dashboard",
        "dashboard_port",
        "head_node_additional_args",
        "worker_node_additional_args",
    ),
}
_NAMES = {"pytorchconfiguration": "pytorch", "mpiconfiguration": "mpi", "tensorflowconfiguration": "tensorflow"}
"""The classes of SDK v1."""
WHERE = "--distribution"
MPI_PORT = 6000
"""Of AZ_BATCH_MASTER_NODE, where a job of several nodes was recorded."""
_ROOT = "AZUREML_CR_EXECUTION_WORKING_DIR_PATH"
"""The variable with the directory above the working directory, which is called ``wd``, on every host."""
_AGENT = """#!/bin/sh
# ADDRESS COMMAND...: what mpirun calls to start its daemon on another host, which would leave it with --daemonize
folder={folder} address=$1
shift
printf '%s\\n' "$*" | sed 's/ --daemonize / /' > "$folder/$address"
"""
_OWN_OUTPUT = 'for fd in 1 2; do [ ! -w /proc/$PPID/fd/$fd ] || eval "exec $fd>/proc/$PPID/fd/$fd"; done'
"""mpirun's daemon, which starts ranks, has the output of its host. mpirun itself would tear lines of two hosts, and all
would be the first host's.
"""
_DAEMON = 'IFS= read -r command < "$0"; eval "exec $command"'


def host_names(number: int, _naming: HostNaming) -> tuple[str, ...]:
    """``node-0``, ``node-1``, …: AzureML's own are random, and jobs know each other's addresses only."""
    return tuple(f"node-{place}" for place in range(number))


def read_distribution(distribution: Mapping[str, Any], hosts: int) -> dict[str, Any]:
    """The distribution with the number of processes on each host: ``{"type", "per_host"}``, or tasks of TensorFlow's.

    Raises:
        UsageError: a key or value is wrong, or the processes can't be shared out evenly.
    """
    if not distribution:
        return {"type": "none", "per_host": None}
    kind = text(distribution.get("type"), f"{WHERE}: type").lower()
    kind = _NAMES.get(kind, kind)
    if kind not in FORMS:
        forms = "\n".join(FORMS.values())
        raise UsageError(f"{WHERE}: type is {shown(distribution.get('type'))}, expected one of:\n{forms}")
    for key in distribution:
        if key != "type" and key not in _KEYS[kind]:
            raise UsageError(f"{WHERE}: {kind} has no key {shown(key)}, expected {FORMS[kind]}")
    numbers = {
        key: count(value, f"{WHERE}: {key}", 0 if key == "parameter_server_count" else 1)
        for key, value in distribution.items()
        if key.endswith(("_count", "_instance", "_node"))
    }
    nodes = numbers.get("node_count", hosts)
    if nodes != hosts:
        raise UsageError(f"{WHERE}: node_count is {nodes}, and the job has {hosts} hosts: say --hosts {nodes}")
    if kind == "tensorflow":
        return _tasks(numbers, hosts)
    if kind == "ray":
        return {"type": "ray", "per_host": 1}
    total = numbers.get("process_count")
    if total is not None and total % hosts:
        raise UsageError(
            f"{WHERE}: process_count is {total}, the processes of all nodes together, which {hosts} hosts can't share "
            "evenly: expected a multiple of that"
        )
    each = numbers.get("process_count_per_instance") or numbers.get("process_count_per_node")
    if each is not None and total is not None and each * hosts != total:
        raise UsageError(
            f"{WHERE}: process_count is {total} in all, and process_count_per_instance {each} on each of {hosts} "
            "hosts: leave one of them out"
        )
    each = each or (total // hosts if total is not None else None)
    return {"type": kind, "per_host": each or (1 if kind == "mpi" else None)}


def _tasks(numbers: Mapping[str, int], hosts: int) -> dict[str, Any]:
    servers = numbers.get("parameter_server_count", 0)
    workers = numbers.get("worker_count", hosts - servers if hosts > servers else hosts)
    if workers + servers != hosts:
        raise UsageError(
            f"{WHERE}: worker_count {workers} and parameter_server_count {servers} are {workers + servers} tasks, one "
            f"for each host, and the job has {hosts}: say --hosts {workers + servers}"
        )
    return {"type": "tensorflow", "workers": workers, "servers": servers}


def check_job(job: LocalJob) -> None:
    """Checks that this machine has what the job's distribution is started with.

    Raises:
        UsageError: an MPI job without an Open MPI.
    """
    commands.no_sharding(job)
    if job.hyperparameters:
        raise wrong("--hyperparameters", job.hyperparameters, "none: an AzureML job has arguments only")
    if job.host_slots:
        raise UsageError("--host-slots: AzureML starts the same number of processes on every host; use --distribution")
    if job.distribution["type"] == "mpi" and not mpirun_of(os.environ):
        raise UsageError(
            f"{WHERE}: AzureML starts MPI jobs by mpirun, and there is none on PATH (Debian: apt-get install "
            "openmpi-bin)"
        )


def prepare(job: LocalJob, host: str, layout: Layout) -> None:
    """Makes the working directory, and the outputs ``model`` and ``checkpoints``."""
    commands.prepare_directory(job, host, layout, ("outputs", "logs"))
    tree = layout.tree(host)
    for name in ("model", "checkpoints", "output"):
        os.makedirs(os.path.join(tree, name), exist_ok=True)
    reports = os.path.join(commands.working_directory(layout, host), "outputs", "musterpoint")
    os.makedirs(reports, exist_ok=True)
    os.symlink(os.path.join(tree, "output"), os.path.join(reports, _report(job, host)))


def _report(job: LocalJob, host: str) -> str:
    return f"node-{job.hosts.index(host)}"


def node_environment(host: PlayedHost) -> dict[str, str]:
    """The variables of every process of a host, by the job's distribution."""
    job = host.job
    addresses = [host.addresses[name] for name in job.hosts]
    found = {
        "AZUREML_RUN_ID": job.name,
        "AZUREML_ROOT_RUN_ID": job.name,
        _ROOT: host.layout.host(host.name),
        "AZUREML_EXPERIMENT_NAME": "musterpoint-local",
        "AZUREML_NODE_COUNT": str(len(addresses)),
        "AZUREML_CR_NODE_RANK": str(host.rank),
        "AZ_BATCHAI_TASK_INDEX": str(host.rank),
        "AZ_BATCH_HOST_LIST": ",".join(addresses),
        "AZ_BATCHAI_JOB_MASTER_NODE_IP": addresses[0],
        PREFIX + "model": os.path.join(host.tree, "model"),
        PREFIX + "checkpoints": os.path.join(host.tree, "checkpoints"),
        **{f"AZURE_ML_INPUT_{name}": path for name, path in job.channels.items()},
    }
    kind = job.distribution["type"]
    if kind == "ray":
        found["MUSTER_LAUNCHER"] = "ray"  # it starts the cluster that AzureML would
    elif kind == "mpi":
        several = {"AZ_BATCH_MASTER_NODE": f"{addresses[0]}:{MPI_PORT}"} if len(addresses) > 1 else {}
        found.update(AZ_BATCHAI_MPI_MASTER_NODE=addresses[0], **several)
    elif kind == "pytorch":
        each = job.distribution["per_host"] or 1
        found.update(
            MASTER_ADDR=addresses[0],
            MASTER_PORT=str(_port(host)),
            NODE_RANK=str(host.rank),
            WORLD_SIZE=str(each * len(addresses)),
        )
    elif kind == "tensorflow":
        found["TF_CONFIG"] = _tf_config(host, addresses)
    return found


def _port(host: PlayedHost) -> int:
    """AzureML's port; where hosts share this machine's ports, the free one that the backend has found."""
    return int(host.own.get("MUSTER_MASTER_PORT", AZUREML_PORT))


def _tf_config(host: PlayedHost, addresses: list[str]) -> str:
    workers = host.job.distribution["workers"]
    served = [f"{address}:{PARAMETER_SERVER_PORT}" for address in addresses]
    task = ("worker", host.rank) if host.rank < workers else ("ps", host.rank - workers)
    return json.dumps(
        {
            "cluster": {"worker": served[:workers], "ps": served[workers:]},
            "task": {"type": task[0], "index": task[1]},
            "environment": "cloud",
        }
    )


def processes(host: PlayedHost) -> tuple[HostProcess, ...]:
    """What AzureML starts on a host: mpirun on the first one, a process per rank, or one process."""
    job = host.job
    each: int | None = job.distribution.get("per_host")
    (once,) = commands.launched(host)
    if job.distribution["type"] == "mpi" and each:
        return (_mpirun_process(host, once.argv, each, once.cwd),)
    if job.distribution["type"] != "pytorch" or each is None:
        return (once,)
    return tuple(once._replace(environment=_rank(host, each, local)) for local in range(each))


def _rank(host: PlayedHost, each: int, local: int) -> dict[str, str]:
    rank = host.rank * each + local
    return {"RANK": str(rank), "LOCAL_RANK": str(local), "AZUREML_PROCESS_NAME": f"rank_{rank}"}


def seen(host: PlayedHost) -> dict[str, str]:
    """The variables of a host's first process, with those that mpirun will set."""
    each: int | None = host.job.distribution.get("per_host")
    if host.job.distribution["type"] == "mpi" and each:
        return _mpirun_variables(host.rank * each, 0, len(host.job.hosts) * each, each)
    return dict(processes(host)[0].environment)


PLAYED = LocalPlatform(
    host_names=host_names,
    read_distribution=read_distribution,
    check=check_job,
    prepare=prepare,
    environment=node_environment,
    processes=processes,
    seen=seen,
)


def _mpirun_process(host: PlayedHost, command: Sequence[str], each: int, cwd: str) -> HostProcess:
    """What ``host`` runs for an mpirun that starts ``command`` ``each`` times on every host, in ``cwd``.

    mpirun runs on the first host, with a daemon on each of the others. Open MPI starts its daemons through an agent
    (ssh elsewhere). Here the agent writes the daemon's command line into a named pipe of the other host, which waits
    for it there.

    Raises:
        UsageError: several hosts have only loopback addresses, all of which mpirun takes for one host.
    """
    addresses = [host.addresses[name] for name in host.job.hosts]
    if is_loopback(addresses[0]):
        if len(addresses) > 1:
            raise UsageError(
                "--backend process: mpirun takes all hosts of this machine's loopback for one, and an MPI job of "
                f"{len(addresses)} hosts would wait for ever: use --backend netns, or --hosts 1"
            )
        addresses = ["localhost"]  # of the loopback's other addresses mpirun doesn't know that they are its own
    folder = os.path.join(host.layout.hosts, "mpirun")
    if host.rank:
        return HostProcess(("sh", "-c", _DAEMON, os.path.join(folder, addresses[host.rank])), {}, cwd)
    os.makedirs(folder, exist_ok=True)
    for address in addresses[1:]:
        os.mkfifo(os.path.join(folder, address))
    agent = os.path.join(folder, "agent")
    with open(agent, "w", encoding="utf-8") as file:
        file.write(_AGENT.format(folder=folder))
    os.chmod(agent, 0o755)
    # mpirun enters its own working directory on every host, and here each host has another one
    here = ("sh", "-c", f'{_OWN_OUTPUT}; cd "${_ROOT}/wd" && exec "$@"', "sh")
    return HostProcess(
        (
            "mpirun",
            "--allow-run-as-root",
            "--oversubscribe",
            "-n",
            str(each * len(addresses)),
            "--host",
            ",".join(f"{address}:{each}" for address in addresses),
            "--map-by",
            "slot",
            "--bind-to",
            "none",
            "--mca",
            "plm_rsh_agent",
            agent,
            "--mca",
            "plm_rsh_no_tree_spawn",
            "1",
            "--mca",
            "btl_vader_single_copy_mechanism",
            "none",
            # Open MPI calls its directory ompi.HOST.UID/pid.N: of jobs side by side, whose mpirun is the first process
            # of a host with the same name, all would have one below /tmp, and whoever ends first removes it.
            "--mca",
            "orte_tmpdir_base",
            "/dev/shm",
            *here,
            *command,
        ),
        {},
        cwd,
    )


def _mpirun_variables(rank: int, local: int, size: int, each: int) -> dict[str, str]:
    """The variables by which Open MPI tells a process who it is."""
    return {
        "OMPI_COMM_WORLD_RANK": str(rank),
        "OMPI_COMM_WORLD_SIZE": str(size),
        "OMPI_COMM_WORLD_LOCAL_RANK": str(local),
        "OMPI_COMM_WORLD_LOCAL_SIZE": str(each),
        "OMPI_COMM_WORLD_NODE_RANK": str(local),
    }
