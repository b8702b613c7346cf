"""The environment of one host, as the platform would start its container with."""

from __future__ import annotations

import os
from typing import Mapping

from musterpoint.core.fabric.devices import Devices, survey
from musterpoint.local.job_request import LocalJob
from musterpoint.local.tree import CONTAINER_PATCHES

OUTER_JOB = (
    "SM_*",
    "SAGEMAKER_*",
    "TRAINING_JOB_NAME",
    "TRAINING_JOB_ARN",
    "CURRENT_HOST",
    "RANK",
    "LOCAL_RANK",
    "WORLD_SIZE",
    "LOCAL_WORLD_SIZE",
    "GROUP_RANK",
    "NODE_RANK",
    "MASTER_ADDR",
    "MASTER_PORT",
    "TORCHELASTIC_*",
    "OMPI_*",
    "PMI_*",
    "PMIX_*",
    "TF_CONFIG",
    "AZUREML_*",
    "AZURE_ML_*",
    "AZ_BATCH*",
    "PET_*",
    "SLURM_*",
    "SLURMD_*",
    "CLUSTER_SPEC",
    "JOB_COMPLETION_INDEX",
    "KUBEFLOW_*",
    "K_MPI_JOB_ROLE",
    "JAX_COORDINATOR_*",
    "JAX_NUM_PROCESSES",
    "JAX_PROCESS_ID",
    "DMLC_*",
    "MUSTER_CODE_COPY*",
    "MUSTER_OUTER",
    "MUSTER_PLANNED",
    "MUSTER_SHOW_RANKS",
    "MUSTER_SOCKET*",
)
"""Variables of a job in which ``muster local`` itself runs. No host may inherit them."""

PATCHES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "patches")


def host_environment(
    job: LocalJob, host: str, inherited: Mapping[str, str], platform: Mapping[str, str], own: Mapping[str, str]
) -> dict[str, str]:
    """Every variable of ``host``: the caller's without :data:`OUTER_JOB`, then the platform's, then the user's.

    ``platform``: those that the platform sets. ``own``: those of the run and its backend; an option that was given
    replaces them. Paths are as the host sees them.
    """
    environment = {name: value for name, value in inherited.items() if not _is_of_outer_job(name)}
    environment.update(platform)
    environment.update(own)
    environment.update(job.options)
    if job.host_slots:
        environment["MUSTER_SLOTS"] = str(job.host_slots[job.hosts.index(host)])
    environment.update(job.environment)
    paths = [path for path in environment.get("PYTHONPATH", "").split(os.pathsep) if path]
    if job.container is None:
        paths = [os.path.abspath(path) for path in paths]
    if job.cpu_fallback:
        environment["MUSTER_CPU_FALLBACK"] = "1"
        # scripts start as many ranks: without a GPU there would be none
        environment.setdefault("SM_NUM_GPUS", environment.get("MUSTER_SLOTS") or str(ranks_said(job) or 1))
    environment["PYTHONPATH"] = os.pathsep.join([CONTAINER_PATCHES if job.container else PATCHES, *paths])
    return environment


def ranks_said(job: LocalJob) -> int:
    """The ranks on each host that the job's distribution asks for (SageMaker's MPI, AzureML's); 0: it doesn't say."""
    said = str(job.distribution.get("per_host") or job.distribution.get("sagemaker_mpi_num_of_processes_per_host"))
    return int(said) if said.isdecimal() else 0


def threads(job: LocalJob, devices: Devices) -> int:
    """Threads per rank. All hosts share this machine's processors; on the platform each host has its own."""
    slots = int(job.options.get("MUSTER_SLOTS") or ranks_said(job) or devices.slots)
    ranks = sum(job.host_slots) or len(job.hosts) * slots
    cpus = devices.cpus
    if job.container and job.container.cpus:
        cpus = min(cpus, int(job.container.cpus * len(job.hosts)))
    return max(1, cpus // ranks)


def threads_of(job: LocalJob, inherited: Mapping[str, str]) -> dict[str, str]:
    """The variable that says how many threads each rank may have, unless the caller's environment does."""
    if "OMP_NUM_THREADS" in inherited:
        return {}
    return {"OMP_NUM_THREADS": str(threads(job, survey(inherited)))}


def _is_of_outer_job(name: str) -> bool:
    return any(name == known or (known.endswith("*") and name.startswith(known[:-1])) for known in OUTER_JOB)
