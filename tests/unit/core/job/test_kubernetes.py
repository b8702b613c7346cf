"""What Kubernetes and Kubeflow say to a pod: Indexed Jobs, JobSets, StatefulSets, TrainJobs, PyTorchJobs, MPIJobs."""

from __future__ import annotations

from pathlib import Path

import pytest

from musterpoint.base.errors import UsageError
from musterpoint.base.settings import Settings
from musterpoint.core.job.read import read_job

from .conftest import read

POD = {"KUBERNETES_SERVICE_HOST": "10.96.0.1", "KUBERNETES_SERVICE_PORT": "443"}
INDEXED = {**POD, "JOB_COMPLETION_INDEX": "1", "HOSTNAME": "train-1", "MUSTER_NNODES": "3"}
TORCH = {
    **POD, "PET_NNODES": "2", "PET_NPROC_PER_NODE": "auto", "PET_NODE_RANK": "1", "PET_MASTER_ADDR": "tj-node-0-0.tj",
    "PET_MASTER_PORT": "29500", "JOB_COMPLETION_INDEX": "1", "HOSTNAME": "tj-node-0-1",
}  # fmt: skip
JAX = {
    "JAX_NUM_PROCESSES": "2", "JAX_PROCESS_ID": "1", "JAX_COORDINATOR_ADDRESS": "tj-node-0-0.tj:29500",
    "JOB_COMPLETION_INDEX": "1",
}  # fmt: skip
XGBOOST = {
    "DMLC_TRACKER_URI": "tj-node-0-0.tj", "DMLC_TRACKER_PORT": "29500", "DMLC_TASK_ID": "1", "DMLC_NUM_WORKER": "2",
    "JOB_COMPLETION_INDEX": "1",
}  # fmt: skip
OPERATOR = {
    **POD, "MASTER_ADDR": "job-master-0", "MASTER_PORT": "23456", "WORLD_SIZE": "3", "RANK": "2",
    "PYTHONUNBUFFERED": "0",
}  # fmt: skip
OPERATOR_1_8 = {
    **OPERATOR, "WORLD_SIZE": "12", "PET_NPROC_PER_NODE": "4", "PET_NODE_RANK": "2", "PET_NNODES": "3",
    "PET_MASTER_ADDR": "job-master-0", "PET_MASTER_PORT": "23456",
}  # fmt: skip
ELASTIC = {
    **POD, "PET_RDZV_BACKEND": "c10d", "PET_RDZV_ENDPOINT": "job-worker-0:23456", "PET_NNODES": "2:2",
    "HOSTNAME": "job-worker-1",
}  # fmt: skip
NODES, PODS = "tj-node-0-0.tj tj-node-0-1.tj", "job-master-0 job-worker-0 job-worker-1"


READ = [
    ("kubernetes", INDEXED, "train-0 train-1 train-2", "train-1", None),
    # a JobSet's pod, and the domain of the address that its manifests usually give
    ("kubernetes", {**INDEXED, "HOSTNAME": "js-workers-0-1", "MASTER_ADDR": "js-workers-0-0.js", "MUSTER_NNODES": "2"},
     "js-workers-0-0.js js-workers-0-1.js", "js-workers-0-1.js", None),
    ("kubernetes", {**POD, "HOSTNAME": "set-0", "MUSTER_NNODES": "2"}, "set-0 set-1", "set-0", None),
    ("kubernetes", {**INDEXED, "JOB_COMPLETION_INDEX": "0", "HOSTNAME": "a-0", "MUSTER_NNODES": "1"},
     "a-0", "a-0", None),
    ("kubeflow", TORCH, NODES, "tj-node-0-1.tj", None),
    ("kubeflow", {**TORCH, "PET_NPROC_PER_NODE": "4"}, NODES, "tj-node-0-1.tj", 4),
    ("kubeflow", {**TORCH, "PET_NODE_RANK": ""}, NODES, "tj-node-0-1.tj", None),  # by its index
    ("kubeflow", {**TORCH, "MUSTER_NNODES": "2"}, NODES, "tj-node-0-1.tj", None),
    ("kubeflow", {**TORCH, "PET_MASTER_ADDR": "a-node-0-0-node-0-0.a-node-0-0"},
     "a-node-0-0-node-0-0.a-node-0-0 a-node-0-0-node-0-1.a-node-0-0", "a-node-0-0-node-0-1.a-node-0-0", None),
    # a torchtune runtime's, whose command line has the first pod's name
    ("kubeflow", {**TORCH, "PET_MASTER_ADDR": "", "PET_MASTER_PORT": ""}, NODES, "tj-node-0-1.tj", None),
    ("kubeflow", JAX, NODES, "tj-node-0-1.tj", None),
    ("kubeflow", XGBOOST, NODES, "tj-node-0-1.tj", None),
    ("kubeflow", {**XGBOOST, "DMLC_NUM_WORKER": "16", "MUSTER_SLOTS": "8"}, NODES, "tj-node-0-1.tj", None),
    ("kubeflow", {**XGBOOST, "DMLC_NUM_WORKER": "16", "MUSTER_NNODES": "2"}, NODES, "tj-node-0-1.tj", None),
    # RANK is the pod's number, whereas WORLD_SIZE counts the processes of all pods
    ("kubeflow", OPERATOR, PODS, "job-worker-1", None),
    ("kubeflow", OPERATOR_1_8, PODS, "job-worker-1", 4),
    ("kubeflow", {**OPERATOR_1_8, "PET_NNODES": ""}, PODS, "job-worker-1", 4),
    ("kubeflow", {**OPERATOR, "RANK": "0"}, PODS, "job-master-0", None),
    ("kubeflow", {**OPERATOR, "WORLD_SIZE": "1", "RANK": "0"}, "job-master-0", "job-master-0", None),
    ("kubeflow", ELASTIC, "job-worker-0 job-worker-1", "job-worker-1", None),
]  # fmt: skip


@pytest.mark.parametrize(("platform", "environ", "hosts", "current", "slots"), READ)
def test_the_hosts(platform: str, environ: dict[str, str], hosts: str, current: str, slots: int | None) -> None:
    job = read(environ)
    assert (job.platform, " ".join(job.hosts), job.current_host) == (platform, hosts, current)
    assert (job.distribution.processes_per_host, job.unnamed, job.entry_point.program) == (slots, None, "train.py")


JOBSET = {**POD, "MUSTER_NNODES": "3", "JOB_COMPLETION_INDEX": "0", "MASTER_ADDR": "js-driver-0-0.js"}
DRIVER, WORKER = {**JOBSET, "HOSTNAME": "js-driver-0-0"}, {**JOBSET, "HOSTNAME": "js-workers-1-0"}
UNNAMED = [
    # a JobSet of several Jobs: this pod's number is none in the whole
    ({**DRIVER, "MUSTER_NODE_RANK": "0"}, (3, 0, "js-driver-0-0.js", 0)),
    ({**WORKER, "NODE_RANK": "2"}, (3, 2, "js-driver-0-0.js", 0)),
    ({**WORKER, "MUSTER_NODE_RANK": "2", "MASTER_ADDR": "", "MUSTER_ROLLCALL_LEADER": "js-driver-0-0.js:7000"},
     (3, 2, "js-driver-0-0.js", 7000)),
    ({**WORKER, "NODE_RANK": "2", "MASTER_ADDR": "js-workers-0-0.js"}, (3, 2, "js-workers-0-0.js", 0)),
    # torchrun's variables, which somebody sets in an Indexed Job
    ({**TORCH, "PET_MASTER_ADDR": "10.0.0.7"}, (2, 1, "10.0.0.7", 0)),
    ({**POD, "JOB_COMPLETION_INDEX": "1", "NNODES": "4", "NODE_RANK": "1", "MASTER_ADDR": "t-0.t"}, (4, 1, "t-0.t", 0)),
    # pods with the name of their node
    ({**INDEXED, "HOSTNAME": "node7", "MASTER_ADDR": "train-0.train"}, (3, 1, "train-0.train", 0)),
    ({**INDEXED, "HOSTNAME": "node7", "MUSTER_ROLLCALL_LEADER": "10.0.0.7:7000"}, (3, 1, "10.0.0.7", 7000)),
]  # fmt: skip


@pytest.mark.parametrize(("environ", "facts"), UNNAMED)
def test_hosts_that_are_counted_only(environ: dict[str, str], facts: tuple[object, ...]) -> None:
    job = read(environ)
    assert job.unnamed is not None
    assert job.platform == "kubernetes"
    assert job.unnamed[:4] == facts


def test_the_rendezvous_is_at_the_port_that_the_platform_names() -> None:
    assert [read(environ).master_port for environ in (TORCH, OPERATOR, JAX, INDEXED)] == [29500, 23456, 7777, 7777]


REFUSED = [
    (WORKER,
     "MASTER_ADDR=js-driver-0-0.js: .*another Job than this one, js-workers-1-0, .*MUSTER_NODE_RANK .*from 0 to 2"),
    ({**WORKER, "MUSTER_NNODES": "1"}, "MASTER_ADDR=js-driver-0-0.js: .*MUSTER_NODE_RANK"),
    ({**WORKER, "MUSTER_ROLLCALL_LEADER": "js-driver-0-0.js"}, "MUSTER_ROLLCALL_LEADER=js-driver-0-0.js: "),
    ({**WORKER, "NODE_RANK": "x"}, "NODE_RANK is"),
    ({**WORKER, "MASTER_ADDR": "js-workers-0-0.js"}, "MASTER_ADDR=js-workers-0-0.js: .*js-workers-1-0"),
    ({**INDEXED, "MASTER_ADDR": "other-0.other"}, "MASTER_ADDR=other-0.other: "),
    # the first pod of several has the number 0: it isn't alone because of that
    ({**POD, "JOB_COMPLETION_INDEX": "0", "HOSTNAME": "train-0"}, "JOB_COMPLETION_INDEX=0: .*MUSTER_NNODES"),
    ({"JOB_COMPLETION_INDEX": "1"}, "JOB_COMPLETION_INDEX=1: .*MUSTER_NNODES"),
    ({**INDEXED, "HOSTNAME": "node7"}, 'JOB_COMPLETION_INDEX is "1", and this pod\'s name is "node7"'),
    ({**INDEXED, "HOSTNAME": "host"}, 'JOB_COMPLETION_INDEX is "1", and this pod\'s name is "host"'),
    ({**INDEXED, "HOSTNAME": "train-3", "JOB_COMPLETION_INDEX": "3"}, "JOB_COMPLETION_INDEX is 3, expected less than"),
    ({**INDEXED, "HOSTNAME": "node7", "MASTER_ADDR": "a b"}, 'MASTER_ADDR="a b"'),
    ({**POD, "MUSTER_NNODES": "2", "HOSTNAME": "web"}, "MUSTER_NNODES counts pods"),
    ({**TORCH, "PET_NODE_RANK": "2"}, "PET_NODE_RANK is 2"),
    ({**TORCH, "PET_NODE_RANK": "x"}, "PET_NODE_RANK is"),
    ({**TORCH, "PET_NNODES": "two"}, "PET_NNODES is"),
    ({**TORCH, "PET_NNODES": ""}, "PET_NNODES isn't set"),
    ({**TORCH, "PET_NNODES": "1:4"}, "PET_NNODES=1:4: .*elasticPolicy"),
    ({**TORCH, "PET_MASTER_PORT": "70000"}, "PET_MASTER_PORT is 70000"),
    ({**OPERATOR, "MASTER_PORT": "x"}, "MASTER_PORT is"),
    ({**TORCH, "PET_NPROC_PER_NODE": "0"}, "PET_NPROC_PER_NODE is"),
    ({**TORCH, "MUSTER_NNODES": "3"}, "--nnodes 3, but by Kubeflow's description there are 2 hosts .*leave them out"),
    ({**ELASTIC, "PET_NNODES": "1:4"}, "PET_NNODES=1:4: .*elasticPolicy"),
    ({**ELASTIC, "HOSTNAME": "other"}, "this pod is other"),
    ({**XGBOOST, "DMLC_NUM_WORKER": "15", "MUSTER_SLOTS": "8"}, "DMLC_NUM_WORKER=15"),
    ({**POD, "K_MPI_JOB_ROLE": "launcher", "OMPI_MCA_orte_default_hostfile": "/etc/mpi/hostfile"}, "K_MPI_JOB_ROLE"),
    ({**POD, "K_MPI_JOB_ROLE": "worker"}, "K_MPI_JOB_ROLE=worker: .*ssh"),
    ({**POD, "I_MPI_HYDRA_HOST_FILE": "/etc/mpi/hostfile"}, "I_MPI_HYDRA_HOST_FILE="),
    ({**POD, "HYDRA_HOST_FILE": "/etc/mpi/hostfile"}, "HYDRA_HOST_FILE="),
    ({**POD, "OMPI_MCA_orte_default_hostfile": "/etc/mpi/hostfile"}, "OMPI_MCA_orte_default_hostfile="),
    ({**TORCH, "RANK": "5", "LOCAL_RANK": "1", "WORLD_SIZE": "8"}, "RANK=5, LOCAL_RANK=1, WORLD_SIZE=8"),
    ({**INDEXED, "RANK": "5", "LOCAL_RANK": "1", "WORLD_SIZE": "8"}, "RANK=5, LOCAL_RANK=1, WORLD_SIZE=8"),
]  # fmt: skip


@pytest.mark.parametrize(("environ", "said"), REFUSED)
def test_nobody_trains_alone(environ: dict[str, str], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        read(environ)
    assert read({**environ, "MUSTER_PLATFORM": "plain", "MUSTER_NNODES": ""}).platform == "plain"


PLAIN = [
    {**POD, "HOSTNAME": "web-7d9f-x2x"},  # a pod of its own
    {"PET_MASTER_ADDR": "gpu1", "PET_NNODES": "1"},
    {"HOSTNAME": "node7", "MASTER_ADDR": "gpu-master-0", "MASTER_PORT": "29500"},
]


@pytest.mark.parametrize("environ", PLAIN)
def test_other_processes_are_no_pods(environ: dict[str, str]) -> None:
    assert read(environ).platform == "plain"


def test_the_domain_is_that_of_the_headless_service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hosts = tmp_path / "hosts"
    hosts.write_text(
        "127.0.0.1 localhost\n# 10.0.0.1 train-1.old\n10.2.0.5\ttrain-1.train.default.svc.cluster.local\ttrain-1\n"
    )
    monkeypatch.setattr("musterpoint.core.job.pods.HOSTS", str(hosts))
    job = read(INDEXED)
    assert job.hosts == ("train-0.train", "train-1.train", "train-2.train")
    (note,) = job.notes
    assert note == (
        "plan",
        "Kubernetes: 3 pods by MUSTER_NNODES, called as this one, train-1.train, JOB_COMPLETION_INDEX=1",
    )
    hosts.write_text("10.2.0.5 train-1\n")
    assert [note.level for note in read(INDEXED).notes if "subdomain" in note.text] == ["warning"]


def test_reports_go_to_a_volume_where_one_is_mounted(tmp_path: Path) -> None:
    assert read({**TORCH, "SAGEMAKER_BASE_DIR": str(tmp_path)}).paths.failure == str(tmp_path / "output" / "failure")
    assert read({**INDEXED, "SAGEMAKER_BASE_DIR": str(tmp_path)}).paths.model == str(tmp_path / "model")


@pytest.mark.parametrize("index", ["0", "1"])
def test_pods_that_each_train_alone_are_told(index: str, tmp_path: Path) -> None:
    """``muster torchrun --standalone`` in an Indexed Job."""
    environ = {"JOB_COMPLETION_INDEX": index, "HOSTNAME": f"train-{index}"}
    job = read_job(environ, Settings(nnodes=1), str(tmp_path), "train.py")
    assert (job.hosts, job.platform) == ((f"train-{index}",), "kubernetes")
    (note,) = job.notes
    assert (note.level, note.text.startswith(f"JOB_COMPLETION_INDEX={index}: ")) == ("warning", True)
    of_one = {"JOB_COMPLETION_INDEX": "0", "HOSTNAME": "train-0", "MUSTER_NNODES": "1"}
    assert [note.level for note in read(of_one).notes] == ["plan"]
