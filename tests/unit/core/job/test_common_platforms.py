"""What jobs on common platforms set: the right hosts, or a refusal that names a variable.

Written from those platforms' documented variables: KubeRay, Volcano, HyperPod, Flyte, Polyaxon, PAI, RunPod, MosaicML,
Databricks, ModelArts, AzureML on virtual machines and on Kubernetes, Slurm with Pyxis, arrays, LSF, PALS and Flux.
"""

from __future__ import annotations

from itertools import combinations

import pytest

from musterpoint.base.errors import UsageError
from musterpoint.base.settings import from_environ
from musterpoint.core.job.model import Job
from musterpoint.core.job.read import read_job

POD = {"KUBERNETES_SERVICE_HOST": "10.96.0.1"}
RUN = {"AZUREML_RUN_ID": "plum_soup"}
STEP = {
    "SLURM_JOB_ID": "1", "SLURM_NNODES": "2", "SLURM_JOB_NODELIST": "n[1-2]", "SLURM_STEP_ID": "0",
    "SLURM_STEP_NODELIST": "n[1-2]", "SLURM_STEP_NUM_NODES": "2", "SLURM_STEP_NUM_TASKS": "2", "SLURM_NTASKS": "2",
    "SLURM_STEP_TASKS_PER_NODE": "1(x2)", "SLURM_PROCID": "1", "SLURM_LOCALID": "0", "SLURM_NODEID": "1",
    "SLURMD_NODENAME": "n2",
}  # fmt: skip
MASTER = {"MASTER_PORT": "23456", "WORLD_SIZE": "2", "RANK": "1"}
WORLDS: dict[str, tuple[dict[str, str], str, str, int]] = {
    # variables: platform, this host, how many hosts
    "an XGBoostJob": (
        {**POD, **MASTER, "MASTER_ADDR": "xgb-master-0", "WORLD_SIZE": "3", "WORKER_ADDRS": "xgb-worker-0,xgb-worker-1",
         "HOSTNAME": "xgb-worker-0"}, "kubeflow", "xgb-worker-0", 3,
    ),
    "Volcano's plugin for PyTorch": (
        {**POD, **MASTER, "VC_TASK_INDEX": "0", "VC_WORKER_HOSTS": "j-worker-0.j,j-worker-1.j", "WORLD_SIZE": "3",
         "MASTER_ADDR": "j-master-0.j", "HOSTNAME": "j-worker-0"}, "kubeflow", "j-worker-0.j", 3,
    ),
    "a TrainJob's older names": (
        {**POD, "PET_NNODES": "2", "PET_NPROC_PER_NODE": "auto", "PET_NODE_RANK": "1", "JOB_COMPLETION_INDEX": "1",
         "PET_MASTER_ADDR": "ft-trainer-node-0-0.ft", "PET_MASTER_PORT": "29500", "HOSTNAME": "ft-trainer-node-0-1"},
        "kubernetes", "node-1", 2,
    ),
    "a JobSet with node ranks": (
        {**POD, "JOB_COMPLETION_INDEX": "2", "MASTER_ADDR": "pytorch-workers-0-0.pytorch", "MASTER_PORT": "3389",
         "NNODES": "4", "NODE_RANK": "2", "HOSTNAME": "pytorch-workers-0-2"}, "kubernetes", "node-2", 4,
    ),
    "Flyte's elastic task": (
        {**POD, "PET_RDZV_BACKEND": "c10d", "PET_RDZV_ENDPOINT": "abc-n0-0-worker-0:29400", "PET_NNODES": "2:2",
         "PET_NPROC_PER_NODE": "8", "HOSTNAME": "abc-n0-0-worker-1"}, "kubeflow", "abc-n0-0-worker-1", 2,
    ),
    "HyperPod on EKS": (
        {**POD, **MASTER, "PET_NNODES": "2", "PET_NODE_RANK": "1", "PET_MASTER_ADDR": "job-pods-0",
         "PET_MASTER_PORT": "23456", "MASTER_ADDR": "job-pods-0", "HOSTNAME": "job-pods-1"}, "hyperpod", "node-1", 2,
    ),
    "PAI": ({**MASTER, "MASTER_ADDR": "dlc1-master-0", "HOSTNAME": "dlc1-worker-0"}, "kubeflow", "dlc1-worker-0", 2),
    "Polyaxon": ({**MASTER, "MASTER_ADDR": "plx-master-0", "POLYAXON_RUN_UUID": "u"}, "kubeflow", "plx-worker-0", 2),
    "RunPod": (
        {"NUM_NODES": "2", "NODE_RANK": "1", "MASTER_ADDR": "10.65.0.2", "PRIMARY_ADDR": "10.65.0.2",
         "WORLD_SIZE": "16", "NUM_TRAINERS": "8"}, "plain", "node-1", 2,
    ),
    "MosaicML": (
        {"NUM_NODES": "2", "NODE_RANK": "0", "MASTER_ADDR": "10.0.0.1", "WORLD_SIZE": "16", "LOCAL_WORLD_SIZE": "8"},
        "plain", "node-0", 2,
    ),
    "AzureML on Kubernetes": (
        {**RUN, "AZUREML_NODE_COUNT": "2", "VC_TASK_INDEX": "1", "VC_WORKER_HOSTS": "x-worker-0.y,x-worker-1.y",
         "MASTER_ADDR": "x-worker-0.y", "WORLD_SIZE": "2", "NODE_RANK": "1", "RANK": "1", "LOCAL_RANK": "0"},
        "azureml", "node-1", 2,
    ),
    "AzureML without a distribution": (
        {**RUN, "AZUREML_NODE_COUNT": "2", "AZUREML_CR_NODE_RANK": "1", "AZ_BATCHAI_JOB_MASTER_NODE_IP": "10.0.0.4",
         "AZUREML_CR_DISTRIBUTED_CONFIG": '{"rank": "X", "host_list": ["10.0.0.4", "10.0.0.5"]}'},
        "azureml", "10.0.0.5", 2,
    ),
    "AzureML's mpirun and an address of IPv6": (
        {**RUN, "OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_LOCAL_RANK": "0",
         "OMPI_COMM_WORLD_LOCAL_SIZE": "1", "AZ_BATCH_MASTER_NODE": "[fd00::4]:6000"}, "azureml", "node-0", 2,
    ),
    "AzureML's processes of one node": (
        {**RUN, "MASTER_ADDR": "127.0.0.1", "WORLD_SIZE": "8", "RANK": "5", "LOCAL_RANK": "5", "NODE_RANK": "0"},
        "azureml", "node-0", 1,
    ),
    "Slurm with Pyxis": (
        {**STEP, "PMIX_RANK": "1", "RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "MASTER_ADDR": "n1"},
        "slurm", "n2", 2,
    ),
    "HyperPod with Slurm": (
        {**STEP, "SLURM_STEP_NODELIST": "ip-10-1-2-[3,44]", "SLURM_JOB_NODELIST": "ip-10-1-2-[3,44]",
         "SLURMD_NODENAME": "ip-10-1-2-44"}, "slurm", "ip-10-1-2-44", 2,
    ),
    "ModelArts": ({"VC_WORKER_HOSTS": "a-0.a,a-1.a", "MA_NUM_HOSTS": "2", "VC_TASK_INDEX": "1"}, "volcano", "a-1.a", 2),
    "jsrun's tasks": (
        {"LSB_MCPU_HOSTS": "batch5 1 a01n01 42 a01n02 42", "JSM_NAMESPACE_SIZE": "2", "JSM_NAMESPACE_RANK": "1"},
        "lsf", "a01n02", 2,
    ),
    "a TFJob": (
        {**POD, "TF_CONFIG": '{"cluster": {"worker": ["a:2222", "b:2222"]}, "task": {"type": "worker", "index": 1}}'},
        "tfconfig", "b", 2,
    ),
    "an array of Slurm jobs": (
        {"SLURM_JOB_ID": "12", "SLURM_ARRAY_JOB_ID": "10", "SLURM_ARRAY_TASK_ID": "2", "SLURM_ARRAY_TASK_COUNT": "4",
         "SLURM_NNODES": "1", "SLURM_JOB_NODELIST": "n1", "SLURMD_NODENAME": "n1", "SLURM_PROCID": "0"},
        "slurm", "n1", 1,
    ),
}  # fmt: skip
REFUSED = {
    "a cluster without a task": (
        {**POD, "TF_CONFIG": '{"cluster": {"worker": ["a:2222", "b:2222"]}, "task": {}}'}, "TF_CONFIG",
    ),
    "an MXJob": ({**POD, "DMLC_PS_ROOT_URI": "mx-scheduler-0", "DMLC_NUM_WORKER": "2"}, "DMLC_NUM_WORKER=2"),
    "an elastic PyTorchJob": (
        {**POD, "PET_RDZV_ENDPOINT": "el-worker-0:23456", "PET_NNODES": "1:3", "HOSTNAME": "el-worker-0"},
        "PET_NNODES=1:3",
    ),
    "an MPIJob of Intel MPI's": ({**POD, "I_MPI_HYDRA_HOST_FILE": "/etc/mpi/hostfile"}, "I_MPI_HYDRA_HOST_FILE="),
    "an MPIJob of MPICH's": ({**POD, "HYDRA_HOST_FILE": "/etc/mpi/hostfile"}, "HYDRA_HOST_FILE="),
    "an Indexed Job of torchrun's": (
        {**POD, "JOB_COMPLETION_INDEX": "0", "MASTER_ADDR": "train-0.train", "WORLD_SIZE": "2", "RANK": "0",
         "HOSTNAME": "train-0"}, "JOB_COMPLETION_INDEX=0",
    ),
    "a JobSet of MaxText's": (
        {**POD, "JOB_COMPLETION_INDEX": "1", "JAX_COORDINATOR_ADDRESS": "js-w-0-0.js", "REPLICATED_JOB_NAME": "w",
         "HOSTNAME": "js-w-0-1"}, "JOB_COMPLETION_INDEX=1",
    ),
    "Databricks' distributor": (
        {"MASTER_ADDR": "10.0.0.4", "WORLD_SIZE": "2", "RANK": "1", "LOCAL_RANK": "0"}, "RANK=1, LOCAL_RANK=0",
    ),
    "slices of TPUs": ({"MEGASCALE_NUM_SLICES": "2", "MEGASCALE_SLICE_ID": "1"}, "MEGASCALE_NUM_SLICES=2"),
    "a container in a step": ({"SLURM_PROCID": "0", "SLURM_NTASKS": "16", "SLURM_NNODES": "2"}, "SLURM_JOB_NODELIST"),
    "Slurm's tasks in turn": (
        {**STEP, "SLURM_STEP_NUM_TASKS": "4", "SLURM_NTASKS": "4", "SLURM_STEP_TASKS_PER_NODE": "2(x2)",
         "SLURM_DISTRIBUTION": "cyclic"}, "SLURM_DISTRIBUTION=cyclic",
    ),
    "PALS": ({"PALS_RANKID": "1", "PMI_RANK": "1", "PMI_SIZE": "8", "PMI_LOCAL_SIZE": "4"}, "PMI_SIZE=8"),
    "Flux": ({"FLUX_JOB_NNODES": "2", "FLUX_JOB_SIZE": "16", "FLUX_TASK_RANK": "0"}, "FLUX_JOB_NNODES=2"),
    "jsrun's ranks": (
        {"LSB_MCPU_HOSTS": "batch5 1 a01n01 42 a01n02 42", "JSM_NAMESPACE_SIZE": "12", "JSM_NAMESPACE_RANK": "1"},
        "JSM_NAMESPACE_SIZE=12",
    ),
    "AzureML's tasks without a list of hosts": (
        {**RUN, "MASTER_ADDR": "10.0.0.4", "WORLD_SIZE": "8", "RANK": "5", "LOCAL_RANK": "5", "NODE_RANK": "0"},
        "WORLD_SIZE=8, RANK=5, LOCAL_RANK=5",
    ),
}  # fmt: skip


def read(environ: dict[str, str]) -> Job:
    return read_job(environ, from_environ(environ), "/nowhere", "train.py")


@pytest.mark.parametrize("name", WORLDS)
def test_its_hosts_are_read(name: str) -> None:
    environ, platform, current, hosts = WORLDS[name]
    job = read(environ)
    assert (job.platform, job.current_host, len(job.hosts)) == (platform, current, hosts)


@pytest.mark.parametrize("name", REFUSED)
def test_it_is_refused_by_name(name: str) -> None:
    environ, named = REFUSED[name]
    with pytest.raises(UsageError) as error:
        read(environ)
    assert named in str(error.value)


COUNTS = (
    "NNODES", "NUM_NODES", "WORLD_SIZE", "PET_NNODES", "AZUREML_NODE_COUNT", "SLURM_NNODES", "SLURM_NTASKS",
    "SLURM_STEP_NUM_NODES", "SLURM_STEP_NUM_TASKS", "OMPI_COMM_WORLD_SIZE", "LOCAL_WORLD_SIZE",
)  # fmt: skip


@pytest.mark.parametrize("name", [name for name, world in WORLDS.items() if world[3] > 1])
def test_a_world_of_one_is_never_silent(name: str) -> None:
    """Whatever two variables are missing: where a count of several is left, the job is refused or warned of."""
    environ = WORLDS[name][0]
    for missing in combinations(environ, 2):
        left = {variable: text for variable, text in environ.items() if variable not in missing}
        if not any(left.get(count, "1").partition(":")[0] not in ("", "1") for count in COUNTS):
            continue
        try:
            job = read(left)
        except UsageError:
            continue
        assert len(job.hosts) > 1 or [note for note in job.notes if note.level == "warning"], missing
