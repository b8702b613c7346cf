"""Platforms that list a job's hosts, or count them: the variables that their documentation shows, and wrong ones."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from musterpoint.base.errors import UsageError
from musterpoint.base.settings import Settings
from musterpoint.core.job import platforms, rosters
from musterpoint.core.job.platform import RankPlace
from musterpoint.core.job.platforms import awsbatch, determined, pbs
from musterpoint.core.job.read import read_job

from .conftest import read

POD = {"KUBERNETES_SERVICE_HOST": "10.96.0.1"}
SKY = {
    "SKYPILOT_NUM_NODES": "2", "SKYPILOT_NODE_RANK": "1", "SKYPILOT_NODE_IPS": "10.0.1.17\n10.0.1.18",
    "SKYPILOT_NUM_GPUS_PER_NODE": "4", "SKYPILOT_TASK_ID": "sky-2024-11-02-20-18-09-351_train-cluster_task-1",
}  # fmt: skip
DSTACK = {
    "DSTACK_NODES_NUM": "2", "DSTACK_NODE_RANK": "1", "DSTACK_NODES_IPS": "10.128.0.47\n10.128.0.48",
    "DSTACK_MASTER_NODE_IP": "10.128.0.47", "DSTACK_GPUS_PER_NODE": "8", "DSTACK_RUN_NAME": "train-distrib",
}  # fmt: skip
BATCH = {
    "AWS_BATCH_JOB_ID": "106a2f0e-7f3a-4ee6-a3b4-7e0f5a8b3c11#1", "AWS_BATCH_JOB_NUM_NODES": "3",
    "AWS_BATCH_JOB_NODE_INDEX": "1", "AWS_BATCH_JOB_MAIN_NODE_INDEX": "0",
    "AWS_BATCH_JOB_MAIN_NODE_PRIVATE_IPV4_ADDRESS": "10.0.3.4",
}  # fmt: skip
AZURE = {
    "AZ_BATCH_JOB_ID": "batchjob001", "AZ_BATCH_TASK_ID": "task001", "AZ_BATCH_HOST_LIST": "10.0.0.4,10.0.0.5",
    "AZ_BATCH_NODE_LIST": "10.0.0.4;10.0.0.5", "AZ_BATCH_MASTER_NODE": "10.0.0.4:6000",
    "AZ_BATCH_IS_CURRENT_NODE_MASTER": "false",
}  # fmt: skip
VOLCANO = {
    **POD, "VC_MASTER_HOSTS": "mpi-master-0.mpi", "VC_MASTER_NUM": "1", "VC_WORKER_NUM": "2", "VC_TASK_INDEX": "1",
    "VC_WORKER_HOSTS": "mpi-worker-0.mpi,mpi-worker-1.mpi", "VK_TASK_INDEX": "1", "HOSTNAME": "mpi-worker-1",
}  # fmt: skip
LWS = {
    **POD, "LWS_LEADER_ADDRESS": "vllm-0.vllm.default", "LWS_GROUP_SIZE": "3", "LWS_WORKER_INDEX": "2",
    "HOSTNAME": "vllm-0-2",
}  # fmt: skip
HYPERPOD = {
    **POD, "PET_NNODES": "2", "PET_NODE_RANK": "1", "PET_MASTER_ADDR": "llama-pods-0", "PET_MASTER_PORT": "23456",
    "HOSTNAME": "llama-pods-1", "MASTER_ADDR": "llama-pods-0", "WORLD_SIZE": "2", "RANK": "1",
}  # fmt: skip
PBS = {"PBS_JOBID": "4711.pbs01", "PBS_JOBNAME": "train", "PBS_NODEFILE": "nodefile", "PBS_NUM_NODES": "2"}
LSF = {"LSB_JOBID": "3856", "LSB_JOBNAME": "train", "LSB_MCPU_HOSTS": "batch5 1 a01n01 42 a01n02 42"}
FLUX = {
    "FLUX_JOB_ID": "8213456789", "FLUX_JOB_NNODES": "2", "FLUX_JOB_SIZE": "2", "FLUX_TASK_RANK": "1",
    "FLUX_TASK_LOCAL_ID": "0", "MASTER_ADDR": "corona171", "PMI_SIZE": "2", "PMI_RANK": "1",
}  # fmt: skip
NOMAD = {
    "NOMAD_ALLOC_INDEX": "1", "NOMAD_GROUP_NAME": "train", "NOMAD_JOB_NAME": "llama", "NOMAD_ALLOC_ID": "5fc9",
    "MUSTER_NNODES": "2", "MUSTER_ROLLCALL_LEADER": "10.0.0.7",
}  # fmt: skip
CLUSTER = {"chief": ["tf-chief-0.ml.svc:2222"], "worker": ["tf-worker-0.ml.svc:2222", "tf-worker-1.ml.svc:2222"]}
TF = {**POD, "TF_CONFIG": json.dumps({"cluster": CLUSTER, "task": {"type": "worker", "index": 1}})}
RENDEZVOUS = {
    "container_addrs": ["10.1.0.4", "10.1.0.5"], "container_rank": 1, "container_slot_counts": [8, 4],
}  # fmt: skip

NAMED: dict[str, tuple[dict[str, str], str, tuple[str, ...], int]] = {
    # variables: the job's name, its hosts, this one's place
    "skypilot": (SKY, SKY["SKYPILOT_TASK_ID"], ("10.0.1.17", "10.0.1.18"), 1),
    "dstack": (DSTACK, "train-distrib", ("10.128.0.47", "10.128.0.48"), 1),
    "volcano": (VOLCANO, "train", ("mpi-master-0.mpi", "mpi-worker-0.mpi", "mpi-worker-1.mpi"), 2),
    "pbs": (PBS, "train-4711", ("n1", "n2"), 1),
    "lsf": ({**LSF, "JSM_NAMESPACE_SIZE": "2", "JSM_NAMESPACE_RANK": "1"}, "train-3856", ("a01n01", "a01n02"), 1),
    "tfconfig": (TF, "train", ("tf-chief-0.ml.svc", "tf-worker-0.ml.svc", "tf-worker-1.ml.svc"), 2),
    "determined": ({"DET_TRIAL_ID": "7"}, "trial-7", ("10.1.0.4", "10.1.0.5"), 1),
}
COUNTED: dict[str, tuple[dict[str, str], str, int, int | None, str]] = {
    # variables: the job's name, how many hosts, this one's place, where they meet
    "awsbatch": (BATCH, "106a2f0e-7f3a-4ee6-a3b4-7e0f5a8b3c11", 3, 1, "10.0.3.4"),
    "dstack": ({**DSTACK, "DSTACK_NODES_IPS": ""}, "train-distrib", 2, 1, "10.128.0.47"),  # before it listed its nodes
    "azurebatch": (AZURE, "batchjob001", 2, None, "10.0.0.4"),
    "lws": (LWS, "vllm-0", 3, 2, "vllm-0.vllm.default"),
    "hyperpod": (HYPERPOD, "llama", 2, 1, "llama-pods-0"),
    "flux": (FLUX, "flux-8213456789", 2, 1, "corona171"),
    "nomad": (NOMAD, "llama-train", 2, 1, "10.0.0.7"),
}
RECORDED = {name: row[0] for name, row in (*COUNTED.items(), *NAMED.items())}


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The files of hosts, and this host's name in them."""
    monkeypatch.chdir(tmp_path)
    Path("nodefile").write_text("n1\nn1\nn2.cluster\nn2.cluster\n".replace(".cluster", ""))
    Path("rendezvous.json").write_text(json.dumps(RENDEZVOUS))
    monkeypatch.setattr(determined, "FILE", "absent")
    for module in (rosters, pbs, awsbatch):
        monkeypatch.setattr(module, "node_name", lambda: "n2.cluster.local")


def given_files(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if name == "determined":
        monkeypatch.setattr(determined, "FILE", "rendezvous.json")


@pytest.mark.parametrize("name", NAMED)
def test_hosts_that_are_listed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    given_files(name, monkeypatch)
    environ, title, hosts, place = NAMED[name]
    job = read(environ)
    assert (job.platform, job.name, job.hosts, job.current_host) == (name, title, hosts, hosts[place])
    assert (job.group_hosts, job.unnamed, [note.level for note in job.notes]) == (hosts, None, ["plan"])


@pytest.mark.parametrize("name", COUNTED)
def test_hosts_that_are_counted(name: str) -> None:
    environ, title, number, place, leader = COUNTED[name]
    job = read(environ)
    assert (job.platform, job.name, len(job.hosts)) == (name, title, number)
    assert job.unnamed is not None
    assert (job.unnamed.node_rank, job.unnamed.leader) == (place, leader)
    assert [note.level for note in job.notes] == ["plan"]


def test_what_counts_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    assert (read(SKY).counted.slots, read(DSTACK).counted.slots) == (4, 8)
    assert read({**SKY, "SKYPILOT_NUM_GPUS_PER_NODE": "0"}).counted.slots == 0
    given_files("determined", monkeypatch)
    assert read({"DET_TRIAL_ID": "7"}).counted.slots == 4
    Path("rendezvous.json").write_text(json.dumps({**RENDEZVOUS, "container_slot_counts": None}))
    assert read({}).counted.slots == 0


def test_the_main_node_of_aws_batch_leads_whatever_its_number() -> None:
    main = {name: text for name, text in BATCH.items() if not name.endswith("ADDRESS")}
    main.update(AWS_BATCH_JOB_NODE_INDEX="2", AWS_BATCH_JOB_MAIN_NODE_INDEX="2")
    places = [read({**BATCH, "AWS_BATCH_JOB_NODE_INDEX": str(index), "AWS_BATCH_JOB_MAIN_NODE_INDEX": "2"}).unnamed
              for index in range(2)]  # fmt: skip
    first = read(main).unnamed
    assert first is not None
    assert (first.node_rank, first.leader) == (0, "n2.cluster.local")
    assert [each and each.node_rank for each in places] == [1, 2]


def test_a_pod_on_its_hosts_network() -> None:
    """It has the node's name. With one task its number is its place; with several nothing says which pod it is."""
    alone = {name: text for name, text in VOLCANO.items() if name != "VC_MASTER_HOSTS"}
    assert read({**alone, "HOSTNAME": "ip-10-0-0-7"}).current_host == "mpi-worker-1.mpi"
    with pytest.raises(UsageError, match=r"this pod is ip-10-0-0-7 \(hostNetwork takes a pod's own name away\)"):
        read({**VOLCANO, "HOSTNAME": "ip-10-0-0-7"})
    job = read({**LWS, "HOSTNAME": "ip-10-0-0-7"})
    assert (job.unnamed and job.unnamed.node_rank, job.own_name) == (2, "ip-10-0-0-7")


def test_a_workers_place_by_its_name() -> None:
    """Without LWS_WORKER_INDEX, which older versions didn't set."""
    older = {name: text for name, text in LWS.items() if name != "LWS_WORKER_INDEX"}
    places = [read({**older, "HOSTNAME": name}).unnamed for name in ("vllm-0", "vllm-0-2", "elsewhere")]
    assert [each and each.node_rank for each in places] == [0, 2, None]


def test_a_launch_node_of_lsf_takes_no_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rosters, "node_name", lambda: "a01n02")
    for listed, hosts in {
        "batch5 1 a01n01 42 a01n02 42": ("a01n01", "a01n02"),
        "a01n01 1 a01n02 1": ("a01n01", "a01n02"),
        "batch5 1 a01n02 42": ("a01n02",),
    }.items():
        assert read({"LSB_MCPU_HOSTS": listed}).hosts == hosts
    assert read({"LSB_HOSTS": "a01n01 a01n01 a01n02 a01n02"}).current_host == "a01n02"


def test_ports_of_jobs_that_may_share_hosts() -> None:
    assert (read(PBS).rollcall_port, read({**PBS, "PBS_JOBID": "12[3].pbs"}).rollcall_port) == (23376, 20192)
    assert rosters.port_of("x") == 0


def test_the_file_of_pbs_is_on_the_first_host_only() -> None:
    with pytest.raises(UsageError, match="copy it there to a shared directory"):
        read({**PBS, "PBS_NODEFILE": "absent"})
    (note,) = read({"PBS_JOBID": "1.s", "PBS_NODEFILE": "absent"}).notes
    assert (note.level, note.text.startswith("PBS_NODEFILE=absent can't be read here")) == ("warning", True)


def test_parameter_servers_are_hosts_and_an_evaluator_is_none() -> None:
    cluster = {"worker": ["w-0:1"], "ps": ["p-0:1"]}
    job = read({"TF_CONFIG": json.dumps({"cluster": cluster, "task": {"type": "ps", "index": 0}})})
    assert (job.hosts, job.current_host, job.distribution.kind) == (("w-0", "p-0"), "p-0", "parameter_server")
    with pytest.raises(UsageError, match=r"task\.type is evaluator"):
        read({"TF_CONFIG": json.dumps({"cluster": cluster, "task": {"type": "evaluator", "index": 0}})})


@pytest.mark.parametrize(
    ("name", "changed", "message"),
    [
        ("skypilot", {"SKYPILOT_NODE_IPS": ""}, "SKYPILOT_NODE_IPS isn't set"),
        ("skypilot", {"SKYPILOT_NODE_RANK": "2"}, "SKYPILOT_NODE_RANK is"),
        ("skypilot", {"SKYPILOT_NUM_NODES": "3"}, "SKYPILOT_NUM_NODES is"),
        ("skypilot", {"SKYPILOT_NODE_IPS": "10.0.0.1 10.0.0.1"}, "every host once"),
        ("dstack", {"DSTACK_NODE_RANK": ""}, "DSTACK_NODE_RANK isn't set"),
        ("awsbatch", {"AWS_BATCH_JOB_NODE_INDEX": "main"}, "AWS_BATCH_JOB_NODE_INDEX is"),
        ("awsbatch", {"AWS_BATCH_JOB_MAIN_NODE_PRIVATE_IPV4_ADDRESS": ""}, "AWS_BATCH_JOB_MAIN_NODE_PRIVATE_"),
        ("azurebatch", {"AZ_BATCH_MASTER_NODE": ""}, "AZ_BATCH_MASTER_NODE isn't set"),
        ("volcano", {"VC_WORKER_HOSTS": "a b"}, "VC_WORKER_HOSTS"),
        ("lws", {"LWS_GROUP_SIZE": "two"}, "LWS_GROUP_SIZE is"),
        ("lws", {"LWS_LEADER_ADDRESS": ""}, "LWS_LEADER_ADDRESS isn't set"),
        ("hyperpod", {"PET_NNODES": "many"}, "PET_NNODES"),
        ("lsf", {"LSB_MCPU_HOSTS": "a01n01 a01n02"}, "LSB_MCPU_HOSTS is"),
        ("lsf", {"JSM_NAMESPACE_SIZE": "4"}, "jsrun -n 2 -r 1"),
        ("flux", {"FLUX_JOB_SIZE": "16"}, "flux run -N 2 --tasks-per-node=1"),
        ("flux", {"MASTER_ADDR": ""}, "flux hostlist --nth=0 local"),
        ("nomad", {"MUSTER_ROLLCALL_LEADER": ""}, "MUSTER_ROLLCALL_LEADER"),
        ("nomad", {"NOMAD_ALLOC_INDEX": "2"}, "NOMAD_ALLOC_INDEX is"),
        ("tfconfig", {"TF_CONFIG": "no JSON"}, "TF_CONFIG isn't valid JSON"),
        ("tfconfig", {"TF_CONFIG": '{"cluster": {"worker": ["a:1", "b:1"]}, "task": {}}'}, "task.type is missing"),
        ("pbs", {"OMPI_COMM_WORLD_SIZE": "4"}, "OMPI_COMM_WORLD_SIZE=4, and the job has 2 hosts"),
        ("pbs", {"WORLD_SIZE": "4", "LOCAL_RANK": "1"}, "LOCAL_RANK=1, WORLD_SIZE=4: a launcher"),
    ],
)
def test_what_is_wrong_is_named(name: str, changed: dict[str, str], message: str) -> None:
    with pytest.raises(UsageError, match=re.escape(message)):
        read({**RECORDED[name], **changed})


@pytest.mark.parametrize("name", RECORDED)
def test_what_the_user_says_goes_before(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError):
        platforms.load(name).read({}, Settings(platform=name), "/nowhere")
    given_files(name, monkeypatch)
    environ = RECORDED[name]
    assert read_job(environ, Settings(platform="plain"), "/nowhere", "t.py").platform == "plain"
    with pytest.raises(UsageError):
        read_job(environ, Settings(nnodes=1, rollcall_leader="10.0.0.7"), "/nowhere", "t.py")


@pytest.mark.parametrize(("name", "rank"), [("flux", "FLUX_TASK_RANK"), ("lsf", "JSM_NAMESPACE_RANK")])
def test_tasks_are_numbered_as_one_per_slot(name: str, rank: str) -> None:
    numbers = platforms.load(name).numbers
    assert numbers is not None
    environ = RECORDED[name]
    assert rank in numbers.stale(environ, "launcher")
    assert numbers.stale(environ, "once") == ()
    assert (rank, "3") in [row[:2] for row in numbers.of_rank(environ, RankPlace(3, 1, 1, (2, 2)))]


def test_tf_config_of_a_host_is_none_of_its_ranks() -> None:
    numbers = platforms.load("tfconfig").numbers
    assert numbers is not None
    assert numbers.of_rank(TF, RankPlace(1, 0, 1, (1, 1))) == ()
    assert [row[:2] for row in numbers.of_rank(TF, RankPlace(1, 1, 0, (2, 2)))] == [("TF_CONFIG", "{}")]
