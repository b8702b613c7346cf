"""The platforms that start ``muster launch`` on their hosts and describe the job in variables: a row for each."""

from typing import Callable, Mapping, NamedTuple

from musterpoint.base.settings import Settings
from musterpoint.core.job.model import Job


class Reader(NamedTuple):
    """A platform's reader.

    ``found``: whether a process's variables are that platform's.
    ``load``: imports the module that reads them and returns its function from variables and settings to the job, which
    has no program yet. It raises a UsageError that names the variable, its value and what was expected.
    """

    platform: str
    found: Callable[[Mapping[str, str]], bool]
    load: Callable[[], Callable[[Mapping[str, str], Settings], Job]]


def _azureml(environ: Mapping[str, str]) -> bool:
    return any(environ.get(name) for name in AZUREML_SIGNS)


def _load_azureml() -> Callable[[Mapping[str, str], Settings], Job]:
    from musterpoint.core.job.azureml import read

    return read


AZUREML_SIGNS = (
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


def _slurm(environ: Mapping[str, str]) -> bool:
    """An allocation or a step; or a task's number, where a container was given no more of Slurm's variables."""
    named = ("SLURM_JOB_ID", "SLURM_JOBID", "SLURM_STEP_ID", "SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST")
    numbers = (
        ("SLURM_NTASKS", "1"),
        ("SLURM_NNODES", "1"),
        ("SLURM_PROCID", "0"),
        ("SLURM_NODEID", "0"),
        ("SLURM_LOCALID", "0"),
    )
    return any(map(environ.get, named)) or any(environ.get(name, alone) not in ("", alone) for name, alone in numbers)


def _load_slurm() -> Callable[[Mapping[str, str], Settings], Job]:
    from musterpoint.core.job.slurm import read_slurm

    return read_slurm


_LEADERS = (
    "PET_MASTER_ADDR",
    "JAX_COORDINATOR_ADDRESS",
    "DMLC_TRACKER_URI",
    "MASTER_ADDR",
    "PET_RDZV_ENDPOINT",
    "K_MPI_JOB_ROLE",
    "OMPI_MCA_orte_default_hostfile",
    "I_MPI_HYDRA_HOST_FILE",
    "HYDRA_HOST_FILE",
)


def _kubeflow(environ: Mapping[str, str]) -> bool:
    """One of the variables that only Kubeflow sets, or a leader that is called as its pods are."""
    of_torchtune = environ.get("PET_NNODES") and environ.get("JOB_COMPLETION_INDEX")
    if not of_torchtune and not any(map(environ.get, _LEADERS)):
        return False
    from musterpoint.core.job.kubeflow import has_variables

    return has_variables(environ)


def _load_kubeflow() -> Callable[[Mapping[str, str], Settings], Job]:
    from musterpoint.core.job.kubeflow import read_kubeflow

    return read_kubeflow


def _kubernetes(environ: Mapping[str, str]) -> bool:
    """A pod of an Indexed Job, or one that says how many there are without saying where they meet."""
    counted = environ.get("MUSTER_NNODES") and not environ.get("MUSTER_ROLLCALL_LEADER")
    return bool(environ.get("JOB_COMPLETION_INDEX") or (environ.get("KUBERNETES_SERVICE_HOST") and counted))


def _load_kubernetes() -> Callable[[Mapping[str, str], Settings], Job]:
    from musterpoint.core.job.kubernetes import read_kubernetes

    return read_kubernetes


def _load_vertex() -> Callable[[Mapping[str, str], Settings], Job]:
    from musterpoint.core.job.vertex import read_vertex

    return read_vertex


READERS: tuple[Reader, ...] = (
    Reader("azureml", _azureml, _load_azureml),
    Reader("slurm", _slurm, _load_slurm),
    Reader("kubeflow", _kubeflow, _load_kubeflow),
    Reader("vertex", lambda environ: bool(environ.get("CLUSTER_SPEC")), _load_vertex),
    Reader("kubernetes", _kubernetes, _load_kubernetes),
)
"""All but SageMaker's, in the order in which their variables are looked for; only the one found is imported."""
