"""Cluster managers whose variables need more than a sample: Slurm, Kubeflow, TFJob's TF_CONFIG and PBS.

Each starts ``muster launch`` on every host.
"""

from __future__ import annotations

import json
import os
from typing import Any, Mapping

from musterpoint.base.errors import UsageError
from musterpoint.core.job.fields import count, shown
from musterpoint.local.job_request import LocalJob
from musterpoint.local.platforms import commands
from musterpoint.local.platforms.local_platform import PlayedHost
from musterpoint.local.tree import Layout


def _slurm_environment(host: PlayedHost) -> dict[str, str]:
    """The variables of one task of a step, as Slurm 22.05 sets them."""
    nodes, number = len(host.job.hosts), str(len(host.job.hosts))
    names = f"node[1-{nodes}]" if nodes > 1 else "node1"
    each = f"1(x{nodes})" if nodes > 1 else "1"
    return {
        "SLURM_JOB_ID": "1",
        "SLURM_JOBID": "1",
        "SLURM_JOB_NAME": host.job.name,
        "SLURM_JOB_NODELIST": names,
        "SLURM_NODELIST": names,
        "SLURM_JOB_NUM_NODES": number,
        "SLURM_NNODES": number,
        "SLURM_NTASKS": number,
        "SLURM_NPROCS": number,
        "SLURM_NTASKS_PER_NODE": "1",
        "SLURM_TASKS_PER_NODE": each,
        "SLURM_STEP_ID": "0",
        "SLURM_STEPID": "0",
        "SLURM_STEP_NODELIST": names,
        "SLURM_STEP_NUM_NODES": number,
        "SLURM_STEP_NUM_TASKS": number,
        "SLURM_STEP_TASKS_PER_NODE": each,
        "SLURMD_NODENAME": host.name,
        "SLURM_NODEID": str(host.rank),
        "SLURM_PROCID": str(host.rank),
        "SLURM_LOCALID": "0",
        "SLURM_GTIDS": str(host.rank),
        "SLURM_SUBMIT_DIR": host.job.source_dir,
        "SLURM_CLUSTER_NAME": "local",
    }


SLURM = commands.launching(commands.nodes, _slurm_environment)


_RUNTIMES = ("torch", "jax", "xgboost")
FORM = '{"runtime": "torch", "numProcPerNode": 4}'
PORT = "29500"


def _read_runtime(distribution: Mapping[str, Any], _hosts: int) -> dict[str, Any]:
    """The runtime (torch by default) and its processes per node (``auto`` by default).

    Raises:
        UsageError: a key or value is wrong.
    """
    runtime, each = distribution.get("runtime", "torch"), distribution.get("numProcPerNode", "auto")
    unknown = set(distribution) - {"runtime", "numProcPerNode"}
    if unknown or runtime not in _RUNTIMES:
        raise UsageError(
            f"--distribution is {shown(dict(distribution))}, expected a TrainJob's runtime ({', '.join(_RUNTIMES)}), "
            f"such as {FORM}"
        )
    return {"runtime": runtime, "each": each if each == "auto" else count(each, "--distribution: numProcPerNode")}


def _kubeflow_environment(host: PlayedHost) -> dict[str, str]:
    """The variables of a TrainJob's pod, as kubeflow/trainer's plugins set them."""
    first, number, place = host.job.hosts[0], str(len(host.job.hosts)), str(host.rank)
    runtime, each = host.job.distribution["runtime"], host.job.distribution["each"]
    own = {
        "torch": {
            "PET_NNODES": number,
            "PET_NPROC_PER_NODE": str(each),
            "PET_NODE_RANK": place,
            "PET_MASTER_ADDR": first,
            "PET_MASTER_PORT": PORT,
        },
        "jax": {"JAX_NUM_PROCESSES": number, "JAX_PROCESS_ID": place, "JAX_COORDINATOR_ADDRESS": f"{first}:{PORT}"},
        "xgboost": {
            "DMLC_TRACKER_URI": first,
            "DMLC_TRACKER_PORT": PORT,
            "DMLC_TASK_ID": place,
            "DMLC_NUM_WORKER": number,
        },
    }
    pod = {
        "KUBERNETES_SERVICE_HOST": "10.96.0.1",
        "KUBERNETES_SERVICE_PORT": "443",
        "HOSTNAME": host.name.partition(".")[0],
        "JOB_COMPLETION_INDEX": place,
    }
    return {**pod, **own[runtime]}


KUBEFLOW = commands.launching(commands.called("train-node-0-{rank}.train"), _kubeflow_environment)._replace(
    read_distribution=_read_runtime
)


def _tfconfig_environment(host: PlayedHost) -> dict[str, str]:
    """The variable of one worker; alone it has none, as TFJob's controller leaves it out then."""
    workers = [f"{name}:2222" for name in host.job.hosts]
    config = {"cluster": {"worker": workers}, "task": {"type": "worker", "index": host.rank}, "environment": "cloud"}
    return {"TF_CONFIG": json.dumps(config)} if len(workers) > 1 else {}


TFCONFIG = commands.launching(commands.called("train-worker-{rank}"), _tfconfig_environment)


_FILE = "nodefile"


def _prepare_pbs(job: LocalJob, host: str, layout: Layout) -> None:
    """Makes the host's directories, and the file with two slots of every host."""
    commands.prepare(job, host, layout)
    with open(os.path.join(layout.tree(host), _FILE), "w", encoding="ascii") as file:
        file.writelines(f"{name}\n" for name in job.hosts for _slot in range(2))


def _pbs_environment(host: PlayedHost) -> dict[str, str]:
    """The variables of one process."""
    return {
        "PBS_JOBID": "1.local",
        "PBS_JOBNAME": host.job.name,
        "PBS_NODEFILE": os.path.join(host.tree, _FILE),
        "PBS_NUM_NODES": str(len(host.job.hosts)),
        "PBS_NODENUM": str(host.rank),
    }


PBS = commands.launching(commands.nodes, _pbs_environment)._replace(prepare=_prepare_pbs)
