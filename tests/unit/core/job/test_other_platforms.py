"""What variables of platforms without a reader say: one host, or several; as recorded there."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from musterpoint.base.errors import UsageError
from musterpoint.base.settings import Settings
from musterpoint.core.job.model import Job
from musterpoint.core.job.other_platforms import PLATFORMS, several
from musterpoint.core.job.read import read_job

PET = {
    "PET_NNODES": "2", "PET_NPROC_PER_NODE": "1", "PET_NODE_RANK": "0", "PET_MASTER_ADDR": "10.0.0.1",
    "PET_MASTER_PORT": "29500",
}  # fmt: skip
BOTH = {
    "MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "29500", "WORLD_SIZE": "4", "RANK": "0", "PET_NNODES": "1",
    "PET_NPROC_PER_NODE": "4", "PET_NODE_RANK": "0", "PET_MASTER_ADDR": "10.0.0.1",
}  # fmt: skip
TF_CONFIG = '{"cluster": {"worker": ["a:2222"%s]}, "task": {"type": "worker", "index": 0}}'
TORCH = "torch.distributed"

SEVERAL = [
    ("SageMaker", {"SM_HOSTS": '["algo-1", "algo-2"]'}, "SM_HOSTS"),
    ("SageMaker", {"SM_HOSTS": "algo-1,algo-2"}, "SM_HOSTS"),
    ("SageMaker", {"SM_HOST_COUNT": "2"}, "SM_HOST_COUNT"),
    ("SageMaker", {"SM_CURRENT_HOST_RANK": "1"}, "SM_CURRENT_HOST_RANK"),
    ("SageMaker", {"SM_RESOURCE_CONFIG": '{"hosts": ["a", "b"]}'}, "SM_RESOURCE_CONFIG"),
    ("SageMaker", {"SM_CURRENT_HOST": "algo-1"}, "SM_CURRENT_HOST"),
    (TORCH, {**PET, "PET_NNODES": "1:4"}, "PET_NNODES"),
    (TORCH, {"PET_NODE_RANK": "1"}, "PET_NODE_RANK"),
    (TORCH, {"MASTER_ADDR": "job-master-0", "WORLD_SIZE": "2", "RANK": "1"}, "WORLD_SIZE"),
    (TORCH, {**BOTH, "LOCAL_RANK": "0"}, "WORLD_SIZE"),
    (TORCH, {"MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "6105", "WORLD_SIZE": "2", "NODE_RANK": "0"}, "WORLD_SIZE"),
    (TORCH, {"NNODES": "2", "NODE_RANK": "0"}, "NNODES"),
    (TORCH, {"GROUP_WORLD_SIZE": "2"}, "GROUP_WORLD_SIZE"),
    ("MPI", {"OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_RANK": "0"}, "OMPI_COMM_WORLD_SIZE"),
    ("MPI", {"PMI_SIZE": "2", "PMI_RANK": "1"}, "PMI_SIZE"),
    ("MPI", {"MV2_COMM_WORLD_SIZE": "2"}, "MV2_COMM_WORLD_SIZE"),
    ("MPI", {"OMPI_COMM_WORLD_RANK": "1"}, "OMPI_COMM_WORLD_RANK"),
    ("MPI", {"PMI_RANK": "1"}, "PMI_RANK"),
    ("MPI", {"OMPI_COMM_WORLD_LOCAL_SIZE": "4"}, "OMPI_COMM_WORLD_LOCAL_SIZE"),
    ("MPI", {"PMIX_RANK": "3"}, "PMIX_RANK"),
    ("JAX", {"JAX_NUM_PROCESSES": "2", "JAX_PROCESS_ID": "0"}, "JAX_NUM_PROCESSES"),
    ("JAX", {"JAX_PROCESS_ID": "1"}, "JAX_PROCESS_ID"),
    ("XGBoost", {"DMLC_NUM_WORKER": "2", "DMLC_TASK_ID": "0"}, "DMLC_NUM_WORKER"),
    ("MXNet", {"DMLC_NUM_WORKER": "2", "DMLC_NUM_SERVER": "1", "DMLC_ROLE": "worker", "DMLC_PS_ROOT_URI": "mx-0"},
     "DMLC_NUM_WORKER DMLC_NUM_SERVER"),
    ("TonY", {"CLUSTER_SPEC": '{"worker": ["h1:1", "h2:1"]}', "JOB_NAME": "worker", "TASK_INDEX": "0"}, "CLUSTER_SPEC"),
    ("XGBoost", {"DMLC_TASK_ID": "1"}, "DMLC_TASK_ID"),
    (TORCH, {"NUM_NODES": "2", "NODE_RANK": "1"}, "NUM_NODES"),
    (TORCH, {"NODE_RANK": "1"}, "NODE_RANK"),
    (TORCH, {"NODE_RANK": "0", "MASTER_ADDR": "10.0.0.1"}, "MASTER_ADDR"),
    ("MPI", {"MVP_COMM_WORLD_SIZE": "2"}, "MVP_COMM_WORLD_SIZE"),
    ("MPI", {"JSM_NAMESPACE_SIZE": "2", "JSM_NAMESPACE_RANK": "0"}, "JSM_NAMESPACE_SIZE"),
    ("MPI", {"PALS_SIZE": "2", "PALS_RANKID": "0"}, "PALS_SIZE"),
    ("MPI", {"PALS_RANKID": "1", "PALS_NODEID": "1"}, "PALS_RANKID"),
    ("MPI", {"PALS_RANKID": "0", "PALS_LOCAL_SIZE": "4"}, "PALS_LOCAL_SIZE"),
    ("Horovod", {"HOROVOD_SIZE": "2", "HOROVOD_RANK": "0"}, "HOROVOD_SIZE"),
    ("Horovod", {"HOROVOD_RANK": "1"}, "HOROVOD_RANK"),
    ("a JAXJob", {"NUM_PROCESSES": "2", "PROCESS_ID": "0", "COORDINATOR_ADDRESS": "j-worker-0"}, "NUM_PROCESSES"),
    ("a JAXJob", {"PROCESS_ID": "1", "COORDINATOR_ADDRESS": "j-worker-0"}, "PROCESS_ID"),
    ("PaddlePaddle", {"PADDLE_NNODES": "2", "PADDLE_MASTER": "p-worker-0:37777"}, "PADDLE_NNODES"),
    ("PaddlePaddle", {"PADDLE_TRAINERS_NUM": "2"}, "PADDLE_TRAINERS_NUM"),
    ("accelerate", {"NUM_MACHINES": "2", "MACHINE_RANK": "0"}, "NUM_MACHINES"),
    ("accelerate", {"MACHINE_RANK": "1"}, "MACHINE_RANK"),
    ("Cloud TPU", {"TPU_WORKER_HOSTNAMES": "t-0.t,t-1.t", "TPU_WORKER_ID": "0"}, "TPU_WORKER_HOSTNAMES"),
    ("Cloud TPU", {"TPU_WORKER_ID": "1"}, "TPU_WORKER_ID"),
    ("Cloud TPU", {"MEGASCALE_NUM_SLICES": "2", "TPU_WORKER_HOSTNAMES": "localhost"}, "MEGASCALE_NUM_SLICES"),
    ("Metaflow", {"MF_PARALLEL_NUM_NODES": "2"}, "MF_PARALLEL_NUM_NODES"),
    ("Metaflow", {"MF_PARALLEL_NODE_INDEX": "1"}, "MF_PARALLEL_NODE_INDEX"),
    ("Beaker", {"BEAKER_REPLICA_COUNT": "2"}, "BEAKER_REPLICA_COUNT"),
    ("Beaker", {"BEAKER_REPLICA_RANK": "1"}, "BEAKER_REPLICA_RANK"),
    ("DGX Cloud Lepton", {"LEPTON_JOB_TOTAL_WORKERS": "2"}, "LEPTON_JOB_TOTAL_WORKERS"),
    ("DGX Cloud Lepton", {"LEPTON_JOB_WORKER_INDEX": "1"}, "LEPTON_JOB_WORKER_INDEX"),
    ("Base Command", {"NGC_ARRAY_SIZE": "2"}, "NGC_ARRAY_SIZE"),
    ("Base Command", {"NGC_ARRAY_INDEX": "1"}, "NGC_ARRAY_INDEX"),
    ("Volcengine", {"MLP_WORKER_NUM": "2"}, "MLP_WORKER_NUM"),
    ("Volcengine", {"MLP_ROLE_INDEX": "1"}, "MLP_ROLE_INDEX"),
    ("OCI Data Science", {"OCI__WORKER_COUNT": "1"}, "OCI__WORKER_COUNT"),
    ("OAR", {"OAR_NODEFILE": "two"}, "OAR_NODEFILE"),
    ("HTCondor", {"_CONDOR_NPROCS": "2", "_CONDOR_PROCNO": "0"}, "_CONDOR_NPROCS"),
    ("HTCondor", {"_CONDOR_PROCNO": "1"}, "_CONDOR_PROCNO"),
    ("Fujitsu's job manager", {"PJM_NODE": "2"}, "PJM_NODE"),
    ("Grid Engine", {"NHOSTS": "2", "PE_HOSTFILE": "/x"}, "NHOSTS"),
]  # fmt: skip

ONE: list[dict[str, str]] = [
    {},
    {"SM_HOSTS": '["algo-1"]'},
    {"SM_HOSTS": "", "SM_HOST_COUNT": "1", "SM_CURRENT_HOST_RANK": "0", "SM_RESOURCE_CONFIG": '{"hosts": ["a"]}'},
    {**PET, "PET_NNODES": "1"},
    {**PET, "PET_NNODES": "1:1"},
    BOTH,
    {"PET_NPROC_PER_NODE": "8"},
    {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "a", "GROUP_WORLD_SIZE": "1"},
    {"WORLD_SIZE": "8"},
    {"NNODES": "2"},
    {"NHOSTS": "2"},
    {"OMPI_COMM_WORLD_SIZE": "1", "PMI_SIZE": "1", "PMI_RANK": "0", "PMIX_RANK": "0"},
    {"TF_CONFIG": TF_CONFIG % ""},
    {"NODE_RANK": "0", "MASTER_ADDR": "localhost"},
    {"NUM_PROCESSES": "2", "NUM_MACHINES": "2", "PROCESS_ID": "1"},
    {"TPU_WORKER_ID": "0", "TPU_WORKER_HOSTNAMES": "localhost", "VC_WORKER_HOSTS": "v-worker-0.v"},
    {"OCI__WORKER_COUNT": "0", "FLUX_JOB_NNODES": "1", "FLUX_JOB_SIZE": "1", "LWS_GROUP_SIZE": "1"},
    {"PBS_NODEFILE": "one", "PBS_NODENUM": "0", "OAR_NODEFILE": "one"},
    {"JAX_NUM_PROCESSES": "1", "DMLC_NUM_WORKER": "1", "LSB_MCPU_HOSTS": "h1 4"},
    {"SLURM_ARRAY_TASK_COUNT": "8", "AWS_BATCH_JOB_ARRAY_INDEX": "3"},
]  # fmt: skip


MALFORMED = [
    ({"PET_NPROC_PER_NODE": "8", "PET_NNODES": "many"}, "PET_NNODES=many"),
    ({"BEAKER_REPLICA_COUNT": "two"}, "BEAKER_REPLICA_COUNT=two"),
    ({"NODE_RANK": "first"}, "NODE_RANK=first"),
    ({"NGC_ARRAY_INDEX": "main"}, "NGC_ARRAY_INDEX=main"),
    ({"OMPI_COMM_WORLD_SIZE": "2.0"}, "OMPI_COMM_WORLD_SIZE=2.0"),
]


@pytest.fixture(autouse=True)
def _files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files with hosts: once for each slot of theirs."""
    monkeypatch.chdir(tmp_path)
    Path("one").write_text("h1\nh1\n")
    Path("two").write_text("h1\nh1\nh2\nh2\n")


@pytest.mark.parametrize(("platform", "environ", "named"), SEVERAL)
def test_several_are_refused_by_name(platform: str, environ: dict[str, str], named: str, tmp_path: Path) -> None:
    """Unless the user says which hosts there are."""
    found = several(environ)
    assert found is not None
    assert (found.platform.name, " ".join(name for name, _ in found.variables)) == (platform, named)
    with pytest.raises(UsageError) as error:
        read_job(environ, Settings(), str(tmp_path), "train.py")
    for name in named.split():
        assert f"{name}=" in str(error.value)
    assert len(str(error.value)) < 900
    job = read_job(environ, Settings(platform="plain"), str(tmp_path), "train.py")
    assert (job.platform, len(job.hosts)) == ("plain", 1)
    said = {**environ, "SM_HOSTS": '["node-1", "node-2"]', "SM_CURRENT_HOST": "node-1", "SM_RESOURCE_CONFIG": ""}
    assert read_job(said, Settings(), str(tmp_path), "train.py").hosts == ("node-1", "node-2")


@pytest.mark.parametrize("environ", ONE)
def test_one_host_goes_on(environ: dict[str, str], tmp_path: Path) -> None:
    assert several(environ) is None
    job = read_job(environ, Settings(), str(tmp_path), "train.py")
    assert len(job.hosts) == 1


@pytest.mark.parametrize(("environ", "named"), MALFORMED)
def test_what_cant_be_read_is_refused_by_name(environ: dict[str, str], named: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=f"^{named}: "):
        read_job(environ, Settings(), str(tmp_path), "train.py")
    assert read_job(environ, Settings(platform="plain"), str(tmp_path), "train.py").hosts != ()


OPTIONS: list[tuple[str, dict[str, str], tuple[str, ...]]] = [
    ("a JAXJob", {"NUM_PROCESSES": "2", "PROCESS_ID": "1", "COORDINATOR_ADDRESS": "j-0"}, ("2", "1", "j-0")),
    ("Metaflow", {"MF_PARALLEL_NUM_NODES": "2", "MF_PARALLEL_NODE_INDEX": "1", "MF_PARALLEL_MAIN_IP": "10.0.0.1"},
     ("2", "1", "10.0.0.1")),
    ("Beaker", {"BEAKER_REPLICA_COUNT": "2", "BEAKER_REPLICA_RANK": "1", "BEAKER_LEADER_REPLICA_HOSTNAME": "h1"},
     ("2", "1", "h1")),
    ("DGX Cloud Lepton", {"LEPTON_JOB_TOTAL_WORKERS": "2", "LEPTON_JOB_WORKER_INDEX": "1",
                          "LEPTON_JOB_WORKER_PREFIX": "w", "LEPTON_SUBDOMAIN": "s"}, ("2", "1", "w-0.s")),
    ("Base Command", {"NGC_ARRAY_SIZE": "2", "NGC_ARRAY_INDEX": "1", "NGC_MASTER_ADDR": "h1"}, ("2", "1", "h1")),
    ("Volcengine", {"MLP_WORKER_NUM": "2", "MLP_ROLE_INDEX": "1", "MLP_WORKER_0_HOST": "h1"}, ("2", "1", "h1")),
    ("OAR", {"OAR_NODEFILE": "two"}, ("2", "h1")),
    ("Grid Engine", {"NHOSTS": "2", "PE_HOSTFILE": "slots"}, ("2", "h1")),
]  # fmt: skip


@pytest.mark.parametrize(("platform", "environ", "expected"), OPTIONS)
def test_a_shell_makes_the_jobs_hosts_of_the_options(
    platform: str, environ: dict[str, str], expected: tuple[str, ...]
) -> None:
    Path("slots").write_text("h1 4 all.q@h1 UNDEFINED\nh2 4 all.q@h2 UNDEFINED\n")
    options = next(each.options for each in PLATFORMS if each.name == platform)
    command, variables = ["bash", "-c", f"printf '%s\\n' {options}"], {**environ, "PATH": os.environ["PATH"]}
    words = subprocess.run(command, env=variables, capture_output=True, text=True, check=True).stdout.splitlines()
    assert words[1::2] == list(expected)
    assert words[::2] == [word for word in shlex.split(options) if word.startswith("--")]


SUSPECTED = [
    ({"FOO_NUM_NODES": "2"}, "FOO_NUM_NODES=2"),
    ({"X_NNODES": "4", "X_HOST_RANK": "1"}, "X_HOST_RANK=1, X_NNODES=4"),
    ({"PAI_TOTAL_TASK_COUNT": "2", "PAI_TASK_INDEX": "0"}, "PAI_TASK_INDEX=0, PAI_TOTAL_TASK_COUNT=2"),
    ({"MASTER_ADDR": "10.0.0.1"}, "MASTER_ADDR=10.0.0.1"),
    ({"RAY_ADDRESS": "10.0.0.1:6379"}, "RAY_ADDRESS=10.0.0.1:6379: a Ray cluster runs already"),
    ({"PBS_NODEFILE": "absent"}, "PBS_NODEFILE=absent"),
    ({"CROSS_RANK": "0", "CROSS_SIZE": "2"}, "CROSS_SIZE=2"),
    ({"X_NODE_IPS": "10.0.0.1,10.0.0.2"}, "X_NODE_IPS=10.0.0.1,10.0.0.2"),
    ({"KUBERNETES_SERVICE_HOST": "10.96.0.1", "HOSTNAME": "train-1"}, "HOSTNAME=train-1"),
    ({"KUBERNETES_SERVICE_HOST": "10.96.0.1", "HOSTNAME": "train-0"}, "HOSTNAME=train-0"),
    ({"FQ_RAY_IP": "rc-head-svc", "RAY_CLUSTER_NAME": "rc"}, "FQ_RAY_IP=rc-head-svc: a Ray cluster runs already"),
    ({"RAY_JOB_ID": "02000000"}, "RAY_JOB_ID=02000000: a Ray cluster runs already"),
    ({"WORLD_SIZE": "2"}, "WORLD_SIZE=2"),
    ({"RANK": "1"}, "RANK=1"),
    ({"PET_RDZV_ENDPOINT": "job-worker-0:23456"}, "PET_RDZV_ENDPOINT=job-worker-0:23456"),
    ({"MODAL_CLUSTER_SIZE": "2", "MODAL_CONTAINER_RANK": "1"}, "MODAL_CLUSTER_SIZE=2"),
    ({"NODE_NUM": "2", "NODE_LIST": "10.0.0.1,10.0.0.2", "INDEX": "1"}, "NODE_LIST=10.0.0.1,10.0.0.2, NODE_NUM=2"),
    ({"NOMAD_ALLOC_INDEX": "1", "NOMAD_GROUP_NAME": "train"}, "NOMAD_ALLOC_INDEX=1"),
    ({"TORCHX_RANK0_HOST": "app-0.app", "TORCHX_JOB_ID": "kubernetes://x/app"}, "TORCHX_RANK0_HOST=app-0.app"),
    ({"CHIEF_IP": "10.0.0.1", "INDEX": "1"}, "CHIEF_IP=10.0.0.1"),
    ({"ARNOLD_WORKER_NUM": "2", "ARNOLD_ID": "1", "ARNOLD_WORKER_HOSTS": "a:1,b:1"}, "ARNOLD_WORKER_HOSTS=a:1,b:1"),
    ({"NOMAD_ALLOC_INDEX": "0"}, "NOMAD_ALLOC_INDEX=0"),
    ({"VC_TASK_INDEX": "0", "VK_TASK_INDEX": "0"}, "VC_TASK_INDEX=0, VK_TASK_INDEX=0"),
    ({"VK_TASK_INDEX": "1"}, "VK_TASK_INDEX=1"),
    ({"FLUX_URI": "local:///run/flux/local"}, "FLUX_URI=local:///run/flux/local"),
    ({"LSB_JOBID": "7"}, "LSB_JOBID=7"),
    ({"DET_ALLOCATION_ID": "7.1.0"}, "DET_ALLOCATION_ID=7.1.0"),
    ({"X_POD_IDX": "0"}, "X_POD_IDX=0"),
    ({"X_CLUSTER_PEERS": "train-0 train-1"}, "X_CLUSTER_PEERS='train-0 train-1'"),
    ({"WORKER_COUNT": "2", "WORKER_INDEX": "0"}, "WORKER_COUNT=2, WORKER_INDEX=0"),
    ({"NUMBER_OF_NODES": "2"}, "NUMBER_OF_NODES=2"),
    ({"X_MASTER_HOST": "10.0.0.1", "X_NODE_INDEX": "0"}, "X_MASTER_HOST=10.0.0.1, X_NODE_INDEX=0"),
]

UNSUSPECTED = [
    {"DATALOADER_NUM_WORKERS": "8", "NUM_WORKERS": "8", "MAX_TASKS": "9", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"},
    {"AWS_BATCH_JOB_ARRAY_SIZE": "10", "AWS_BATCH_JOB_ARRAY_INDEX": "3", "FOO_NUM_NODES": "1", "FOO_NODE_RANK": "0"},
    {"KUBERNETES_SERVICE_HOST": "10.96.0.1", "HOSTNAME": "web-7d9f-x2x", "KUBERNETES_PORT_443_TCP_PORT": "443"},
    {"MASTER_ADDR": "localhost", "RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0"},
    {"CLOUD_RUN_TASK_INDEX": "0", "CLOUD_RUN_TASK_COUNT": "1", "TORCHX_RANK0_HOST": "localhost"},
    {"MASTER_ADDR": "127.0.0.1", "ALLOWED_HOSTS": "a,b", "HOSTNAME": "node-7"},
    {"NNODES": "1", "NODE_RANK": "0", "NUM_NODES": "1", "DSTACK_NODES_NUM": "1", "DSTACK_NODE_RANK": "0"},
    {"ELASTICSEARCH_HOSTS": "http://es-1:9200,http://es-2:9200", "REDIS_MASTER_HOST": "redis", "LSB_HOSTS": "h1 h1"},
    {"LSB_JOBID": "7", "LSB_HOSTS": "h1", "FLUX_URI": "local:///x", "FLUX_JOB_NNODES": "1", "PYTHONHASHSEED": "0"},
    {"SLURM_ARRAY_TASK_ID": "", "PBS_ARRAY_INDEX": "3", "NODE_OPTIONS": "--x", "NODE_VERSION": "22", "TASK_ID": "4"},
]


@pytest.mark.parametrize(("environ", "named"), SUSPECTED)
def test_variables_of_unknown_platforms_are_warned_of(environ: dict[str, str], named: str, tmp_path: Path) -> None:
    job = read_job(environ, Settings(), str(tmp_path), "train.py")
    assert [note.level for note in job.notes] == ["warning"]
    assert job.notes[0].text.startswith(named)
    assert read_job(environ, Settings(platform="plain"), str(tmp_path), "train.py").notes == ()


@pytest.mark.parametrize("environ", UNSUSPECTED)
def test_other_programs_variables_are_not_warned_of(environ: dict[str, str], tmp_path: Path) -> None:
    notes = read_job(environ, Settings(), str(tmp_path), "train.py").notes
    assert [note for note in notes if note.level == "warning"] == []


def test_a_platforms_own_tree_goes_before(tmp_path: Path) -> None:
    """``muster local`` on a login node of Slurm, and ``train`` wherever it runs."""
    folder = tmp_path / "input" / "config"
    folder.mkdir(parents=True)
    (folder / "resourceconfig.json").write_text('{"current_host": "algo-1", "hosts": ["algo-1"]}')
    assert read_job(PET, Settings(), str(tmp_path)).hosts == ("algo-1",)


def test_pods_of_volcano_below_another_platform() -> None:
    found = several({"VC_MASTER_HOSTS": "v-master-0.v", "VC_WORKER_HOSTS": "v-worker-0.v"})
    assert found is not None
    assert (found.platform.name, len(found.variables)) == ("Volcano", 2)
    assert several({"VC_WORKER_HOSTS": "v-worker-0.v"}) is None


def test_a_world_of_one_on_a_platform_of_several_is_said() -> None:
    """By `muster torchrun --standalone` or --nnodes 1, where each host would be a job of its own."""
    two = {"BEAKER_REPLICA_COUNT": "2", "BEAKER_REPLICA_RANK": "0"}
    job = read_job(two, Settings(nnodes=1), "/nowhere", "train.py")
    (note,) = job.notes
    assert (note.level, note.text.startswith("BEAKER_REPLICA_COUNT=2: ")) == ("warning", True)
    assert read_job({"BEAKER_REPLICA_COUNT": "1"}, Settings(nnodes=1), "/nowhere", "train.py").notes == ()


FIRST, WORKERS = "cmle-training-workerpool0-ab-0", [f"cmle-training-workerpool1-ab-{at}" for at in range(2)]
CLUSTER = {"workerpool0": [f"{FIRST}:2222"], "workerpool1": [f"{worker}:2222" for worker in WORKERS]}
JOB = '{"python_module":"","package_uris":[],"job_args":[]}'


def read(cluster: Any = CLUSTER, pool: Any = "workerpool1", index: Any = 1, **more: Any) -> Job:
    spec = {"cluster": cluster, "environment": "cloud", "task": {"type": pool, "index": index}, "job": JOB, **more}
    return read_job({"CLUSTER_SPEC": json.dumps(spec), "CLOUD_ML_JOB_ID": "7"}, Settings(), "/nowhere", "train.py")


def test_the_first_replica_leads_the_workers() -> None:
    assert (read().platform, read().name, read().hosts) == ("vertex", "7", (FIRST, *WORKERS))
    assert (read().current_host, read(pool="workerpool0", index=0).current_host) == (WORKERS[1], FIRST)
    assert read({"chief": ["localhost:1234"]}, "chief", 0).hosts == ("localhost",)  # a job's only replica
    assert read({"workerpool0": ["a"], "workerpool1": []}, "workerpool0", 0).hosts == ("a",)


def test_servers_take_no_part() -> None:
    cluster = {**CLUSTER, "workerpool2": ["reducer-0:2222"], "workerpool3": []}
    job = read(cluster)
    assert (len(job.hosts), [note.text for note in job.notes[1:]]) == (
        3,
        ["CLUSTER_SPEC: workerpool2 take no part: they serve"],
    )
    with pytest.raises(UsageError, match=r"task\.type is workerpool2"):
        read(cluster, "workerpool2", 0)


@pytest.mark.parametrize(
    ("different", "named"),
    [
        ({"cluster": []}, "cluster is"),
        ({"cluster": {"workerpool0": "a:1"}, "pool": "workerpool0"}, "cluster.workerpool0 is"),
        ({"cluster": {"workerpool0": ["a b:1"]}, "pool": "workerpool0"}, r"cluster.workerpool0\[0\]"),
        ({"cluster": {"workerpool0": [7]}, "pool": "workerpool0"}, r"cluster.workerpool0\[0\]"),
        ({"cluster": {"workerpool0": ["a:1", "a:2"]}, "pool": "workerpool0"}, "every replica once"),
        ({"pool": "workerpool9"}, "task.type is"),
        ({"pool": None}, "task.type is"),
        ({"index": 2}, "task.index is 2"),
        ({"index": -1}, "task.index is -1"),
    ],
)
def test_a_wrong_field_is_named(different: dict[str, Any], named: str) -> None:
    with pytest.raises(UsageError, match=f"^CLUSTER_SPEC.*{named}|{named}"):
        read(**different)


@given(st.text() | st.recursive(st.none() | st.integers() | st.text(), lambda inner: st.lists(inner) | st.dictionaries(
    st.sampled_from(["cluster", "task", "type", "index", "workerpool0"]), inner)).map(json.dumps))  # fmt: skip
def test_any_text_is_a_job_or_refused(text: str) -> None:
    if not text:
        return
    try:
        read_job({"CLUSTER_SPEC": text}, Settings(), "/nowhere", "train.py")
    except UsageError as error:
        assert "CLUSTER_SPEC" in str(error)
