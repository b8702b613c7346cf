"""What jobs on common platforms set: the right hosts, and no silent world of one.

Written from those platforms' documented variables: Volcano, HyperPod, Flyte, PAI, RunPod, ModelArts, AzureML on virtual
machines and on Kubernetes, Slurm with Pyxis and in arrays.
"""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import settings as limits
from hypothesis import strategies as st

from musterpoint.base.errors import UsageError
from musterpoint.core.job.other_platforms import PLATFORMS
from musterpoint.core.job.platforms.azureml import SIGNS as AZUREML_SIGNS

from . import test_azureml, test_kubernetes, test_rosters, test_toolkit_env
from .conftest import read
from .test_slurm import SRUN

POD = {"KUBERNETES_SERVICE_HOST": "10.96.0.1"}
RUN = {"AZUREML_RUN_ID": "plum_soup"}
MASTER = {"MASTER_PORT": "23456", "WORLD_SIZE": "2", "RANK": "1"}
WORLDS: dict[str, tuple[dict[str, str], str, str, int]] = {
    # variables: platform, this host, how many hosts
    "Volcano's plugin for PyTorch": (
        {**POD, **MASTER, "VC_TASK_INDEX": "0", "VC_WORKER_HOSTS": "j-worker-0.j,j-worker-1.j", "WORLD_SIZE": "3",
         "MASTER_ADDR": "j-master-0.j", "HOSTNAME": "j-worker-0"}, "kubeflow", "j-worker-0.j", 3,
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
    "RunPod": (
        {"NUM_NODES": "2", "NODE_RANK": "1", "MASTER_ADDR": "10.65.0.2", "PRIMARY_ADDR": "10.65.0.2",
         "WORLD_SIZE": "16", "NUM_TRAINERS": "8"}, "plain", "node-1", 2,
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
        {**SRUN, "PMIX_RANK": "1", "RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "MASTER_ADDR": "fa-1"},
        "slurm", "fa-2", 2,
    ),
    "ModelArts": ({"VC_WORKER_HOSTS": "a-0.a,a-1.a", "MA_NUM_HOSTS": "2", "VC_TASK_INDEX": "1"}, "volcano", "a-1.a", 2),
    "an array of Slurm jobs": (
        {"SLURM_JOB_ID": "12", "SLURM_ARRAY_JOB_ID": "10", "SLURM_ARRAY_TASK_ID": "2", "SLURM_ARRAY_TASK_COUNT": "4",
         "SLURM_NNODES": "1", "SLURM_JOB_NODELIST": "n1", "SLURMD_NODENAME": "n1", "SLURM_PROCID": "0"},
        "slurm", "n1", 1,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", WORLDS)
def test_its_hosts_are_read(name: str) -> None:
    environ, platform, current, hosts = WORLDS[name]
    job = read(environ)
    assert (job.platform, job.current_host, len(job.hosts)) == (platform, current, hosts)


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


KUBERNETES = [environ for _, environ, *_ in test_kubernetes.READ]
AZUREML = [environ for environ, *_ in test_azureml.JOBS.values()]
SETS = [*test_rosters.RECORDED.values(), *KUBERNETES, *AZUREML, SRUN, test_toolkit_env.TRAINING]
SIGNS = {sign.variable for platform in PLATFORMS for group in platform.signs for sign in group}
VARIABLES = sorted({*SIGNS, *AZUREML_SIGNS, *COUNTS, "LOCAL_RANK", "RANK", "MASTER_ADDR", "K_MPI_JOB_ROLE"})
TEXTS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=12) | st.sampled_from([
    "", "0", "1", "2", "-1", "a b", "a,b", "a-0.b", "10.0.0.4:6000", "[::1]:6000", "1:4", "n[1-2", "a 4 b 4", "1(x3)",
    "[]", "{}", "null", '["a", 1]', '{"host_list": ["a", 1]}', '{"cluster": [1], "task": 3}', "${{outputs.x}}",
])  # fmt: skip


@limits(max_examples=10 * limits.default.max_examples)
@given(st.data())
def test_whatever_they_hold_it_is_a_job_with_this_host_or_one_sentence(data: st.DataObject) -> None:
    """What else variables may hold is the part ``platforms`` of scripts/fuzz."""
    environ = data.draw(st.sampled_from(SETS))
    different = data.draw(st.dictionaries(st.sampled_from(sorted({*VARIABLES, *environ})), TEXTS, max_size=5))
    try:
        job = read({**environ, **different})
    except UsageError as error:
        assert str(error)
    else:
        assert job.current_host in job.hosts
        assert len(set(job.hosts)) == len(job.hosts)
