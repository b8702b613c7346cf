"""Kubeflow: the pods of a TrainJob called ``train``, with the torch, JAX or XGBoost runtime's variables."""

from __future__ import annotations

from typing import Any, Mapping

from musterpoint.base.errors import UsageError
from musterpoint.core.job.fields import count, shown
from musterpoint.local.platforms import commands
from musterpoint.local.platforms.platform import PlayedHost

RUNTIMES = ("torch", "jax", "xgboost")
FORM = '{"runtime": "torch", "numProcPerNode": 4}'
PORT = "29500"


def read_distribution(distribution: Mapping[str, Any], _hosts: int) -> dict[str, Any]:
    """The runtime (torch by default) and its processes per node (``auto`` by default).

    Raises:
        UsageError: a key or value is wrong.
    """
    runtime, each = distribution.get("runtime", "torch"), distribution.get("numProcPerNode", "auto")
    unknown = set(distribution) - {"runtime", "numProcPerNode"}
    if unknown or runtime not in RUNTIMES:
        raise UsageError(
            f"--distribution is {shown(dict(distribution))}, expected a TrainJob's runtime ({', '.join(RUNTIMES)}), "
            f"such as {FORM}"
        )
    return {"runtime": runtime, "each": each if each == "auto" else count(each, "--distribution: numProcPerNode")}


def environment(host: PlayedHost) -> dict[str, str]:
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


PLAYED = commands.launching(commands.called("train-node-0-{}.train"), environment)._replace(
    read_distribution=read_distribution
)
