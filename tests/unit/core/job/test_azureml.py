"""AzureML's variables, as recorded and as its guides list them, read as a job; and malformed ones."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest

from musterpoint.base.errors import UsageError
from musterpoint.base.settings import Settings
from musterpoint.core.job import azureml_hosts, platforms
from musterpoint.core.job.model import Job, StartedRank
from musterpoint.core.job.platforms.azureml import read_job as read_azureml
from musterpoint.core.job.read import masker_of, read_job
from musterpoint.core.launch.launcher import Question
from musterpoint.core.launch.launchers import find_launcher

TWO, BOTH = "10.0.0.4,10.0.0.5", ("10.0.0.4", "10.0.0.5")
MPI = {
    "AZUREML_RUN_ID": "plum_soup", "AZUREML_NODE_COUNT": "2", "AZ_BATCH_HOST_LIST": TWO,
    "AZ_BATCH_MASTER_NODE": "10.0.0.4:6000", "OMPI_COMM_WORLD_RANK": "5", "OMPI_COMM_WORLD_SIZE": "8",
    "OMPI_COMM_WORLD_LOCAL_RANK": "1", "OMPI_COMM_WORLD_LOCAL_SIZE": "4", "OMPI_COMM_WORLD_NODE_RANK": "1",
}  # fmt: skip
MPI_PER_NODE = {
    **MPI, "OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_LOCAL_RANK": "0",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "1", "OMPI_COMM_WORLD_NODE_RANK": "0",
}  # fmt: skip
MPI_ONE_NODE = {
    "AZUREML_RUN_ID": "plum_soup", "AZ_BATCHAI_MPI_MASTER_NODE": "10.0.0.4", "AZUREML_CR_NODE_RANK": "0",
    "OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_LOCAL_RANK": "1",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "4",
}  # fmt: skip
NODE = {
    "AZUREML_RUN_ID": "plum_soup", "AZ_BATCH_HOST_LIST": TWO, "MASTER_ADDR": "10.0.0.4", "MASTER_PORT": "6105",
    "WORLD_SIZE": "2", "NODE_RANK": "1",
}  # fmt: skip
PROCESS = {**NODE, "WORLD_SIZE": "8", "RANK": "6", "LOCAL_RANK": "2", "AZUREML_PROCESS_NAME": "rank_6"}
ON_KUBERNETES = {
    "AZUREML_CR_DISTRIBUTED_CONFIG": '{"rank":"VK_TASK_INDEX","host_list":["w-0.w.svc.cluster.local",'
    '"w-1.w.svc.cluster.local"],"remote_grpc":{"Tcp":{"lifecycler_port":13333,"executor_port":13334}}}',
    "VK_TASK_INDEX": "1", "AZUREML_RUN_ID": "plum_soup",
}  # fmt: skip
WORKER = (
    '{"cluster": {"worker": ["host0:2222", "host1:2222"]%s}, "task": {"type": "%s", "index": %d}, '
    '"environment": "cloud"}'
)
LIGHTNING_13907 = {
    "AZ_BATCH_HOST_LIST": "10.0.1.17,10.0.1.18,10.0.1.21", "AZ_BATCHAI_TASK_INDEX": "2", "AZUREML_NODE_COUNT": "3",
    "AZ_BATCHAI_JOB_MASTER_NODE_IP": "10.0.1.17", "AZ_BATCH_JOB_ID": "f59d575e",
}  # fmt: skip


def without(environ: dict[str, str], *names: str) -> dict[str, str]:
    return {name: value for name, value in environ.items() if name not in names}


JOBS: dict[str, tuple[dict[str, str], tuple[str, ...], str, str, int | None, tuple[int, ...] | None]] = {
    # variables: hosts, this one, distribution, processes per host, rank local_rank world local_size
    "mpi": (MPI, BOTH, "10.0.0.5", "torch_distributed", 4, (5, 1, 8, 4)),
    "mpi-per-node": (MPI_PER_NODE, BOTH, "10.0.0.5", "torch_distributed", 1, (1, 0, 2, 1)),
    "mpi-one-node": (MPI_ONE_NODE, ("node-0",), "node-0", "torch_distributed", 4, (1, 1, 4, 4)),
    "mpi-without-a-count": (without(MPI, "AZUREML_NODE_COUNT", "AZ_BATCH_HOST_LIST"), ("node-0", "node-1"), "node-1",
     "torch_distributed", 4, (5, 1, 8, 4)),
    "mpi-without-a-master": (without(MPI, "AZ_BATCH_MASTER_NODE"), BOTH, "10.0.0.5", "torch_distributed", 4,
     (5, 1, 8, 4)),
    "mpi-without-local-variables": (without(MPI, "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"), BOTH,
     "10.0.0.5", "torch_distributed", 4, (5, 1, 8, 4)),
    "mpi-by-node": (  # ranks dealt out in turn: the rank says nothing about the node
        {**MPI, "OMPI_COMM_WORLD_RANK": "2", "OMPI_COMM_WORLD_LOCAL_RANK": "1", "AZUREML_CR_NODE_RANK": "0"},
        BOTH, "10.0.0.4", "torch_distributed", 4, (2, 1, 8, 4),
    ),
    "intel-mpi": (
        {
            "AZUREML_NODE_COUNT": "2", "AZ_BATCH_HOST_LIST": TWO, "AZ_BATCH_MASTER_NODE": "10.0.0.4:6000",
            "PMI_RANK": "3", "PMI_SIZE": "4", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "2",
        },
        BOTH, "10.0.0.5", "torch_distributed", 2, (3, 1, 4, 2),
    ),
    "per-node": (NODE, BOTH, "10.0.0.5", "torch_distributed", 1, None),
    "per-process": (PROCESS, BOTH, "10.0.0.5", "torch_distributed", 4, (6, 2, 8, 4)),
    "per-process-without-a-list": (without(PROCESS, "AZ_BATCH_HOST_LIST"), ("node-0", "node-1"), "node-1",
     "torch_distributed", 4, (6, 2, 8, 4)),
    "per-process-local-world": ({**without(PROCESS, "AZ_BATCH_HOST_LIST", "NODE_RANK"), "LOCAL_WORLD_SIZE": "4"},
     ("node-0", "node-1"), "node-1", "torch_distributed", 4, (6, 2, 8, 4)),
    "tensorflow": ({"AZUREML_RUN_ID": "a", "TF_CONFIG": WORKER % ("", "worker", 1)}, ("host0", "host1"), "host1",
     "multi_worker_mirrored_strategy", None, None),
    "tensorflow-empty-ps": ({"AZUREML_RUN_ID": "a", "TF_CONFIG": WORKER % (', "ps": []', "worker", 0)},
     ("host0", "host1"), "host0", "multi_worker_mirrored_strategy", None, None),
    "tensorflow-ps": ({"AZUREML_RUN_ID": "a", "TF_CONFIG": WORKER % (', "ps": ["host2:2222"]', "ps", 0)},
     ("host0", "host1", "host2"), "host2", "parameter_server", None, None),
    "ray": ({"AZUREML_RUN_ID": "a", "RAY_ADDRESS": "10.0.0.4:6379"}, ("node-0",), "node-0", "none", 1, None),
    "ray-by-the-variable-that-asks-for-it": (
        {"AZUREML_RUN_ID": "a", "AZUREML_NODE_COUNT": "2", "_AZUREML_CR_START_RAY": "true"}, ("node-0",), "node-0",
        "none", 1, None,
    ),
    "kubernetes": (ON_KUBERNETES, ("w-0.w.svc.cluster.local", "w-1.w.svc.cluster.local"), "w-1.w.svc.cluster.local",
     "none", 1, None),
    "no-distribution": (LIGHTNING_13907, ("10.0.1.17", "10.0.1.18", "10.0.1.21"), "10.0.1.21", "none", 1, None),
    "one-node": ({"AZUREML_RUN_ID": "plum_soup", "HOSTNAME": "b3e5f3"}, ("b3e5f3",), "b3e5f3", "none", 1, None),
}  # fmt: skip


@pytest.mark.parametrize("name", JOBS)
def test_recorded_jobs(name: str) -> None:
    environ, hosts, current, kind, each, started = JOBS[name]
    assert platforms.here(environ, "/none").name == "azureml"
    job = read_azureml(environ, Settings())
    assert (job.hosts, job.current_host, job.group_hosts) == (hosts, current, hosts)
    assert (job.distribution.kind, job.distribution.processes_per_host) == (kind, each)
    assert (tuple(job.started[:4]) if job.started else None) == started
    assert job.master_port == 6105
    assert job.notes[0].text.startswith("AzureML: ")


@pytest.mark.parametrize(
    ("environ", "level", "words"),
    [
        (without(MPI, "AZ_BATCH_MASTER_NODE"), "warning", "AZ_BATCH_MASTER_NODE isn't set: the first host is taken"),
        (without(PROCESS, "AZ_BATCH_HOST_LIST"), "warning", "AZ_BATCH_HOST_LIST isn't set: the roll call learns"),
        (without(NODE, "NODE_RANK"), "warning", "NODE_RANK, AZUREML_CR_NODE_RANK, AZ_BATCHAI_TASK_INDEX aren't set"),
        ({**NODE, "MASTER_ADDR": "10.0.0.5"}, "warning", "the first host in AZ_BATCH_HOST_LIST isn't 10.0.0.5"),
        ({**MPI, "AZ_BATCH_HOST_LIST": "10.0.0.4"}, "warning", "AZ_BATCH_HOST_LIST has 1 hosts, and the job 2"),
        (without(MPI, "OMPI_COMM_WORLD_LOCAL_RANK"), "warning", "OMPI_COMM_WORLD_LOCAL_RANK isn't set: this is taken"),
        ({**NODE, "OUT": "--to ${{outputs.model}}", "AZURE_ML_OUTPUT_model": "/mnt/m"}, "warning",
         "the variable OUT holds ${{outputs.model}} as it was written: AzureML puts paths into a job's command "
         "only, not into its environment_variables; read AZURE_ML_OUTPUT_model, which is /mnt/m"),
        ({**NODE, "AZURE_ML_OUTPUT_Model_Dir": "/m"}, "info", "AzureML's outputs: model in AZURE_ML_OUTPUT_Model_Dir"),
    ],
)  # fmt: skip
def test_what_is_missing_is_said(environ: dict[str, str], level: str, words: str) -> None:
    notes = read_azureml(environ, Settings()).notes
    assert [note for note in notes if note.level == level and note.text.startswith(words)], notes


def test_options_say_what_no_variable_does() -> None:
    two = {"AZUREML_RUN_ID": "a", "AZUREML_NODE_COUNT": "2", "AZUREML_CR_NODE_RANK": "1"}
    unnamed = read_azureml(two, Settings(rollcall_leader="10.0.0.4:7000")).unnamed
    assert unnamed is not None
    assert (unnamed.nnodes, unnamed.node_rank, unnamed.leader) == (2, 1, "10.0.0.4")
    alone = read_azureml(without(two, "AZUREML_NODE_COUNT"), Settings(nnodes=2, rollcall_leader="10.0.0.4"))
    assert alone.unnamed == unnamed


def test_a_ray_cluster_of_azuremls_is_not_started_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It leaves its address where ray.init() looks for it; the program runs once, whatever the number of nodes."""
    environ = {"AZUREML_RUN_ID": "a", "AZUREML_NODE_COUNT": "2", "AZ_BATCH_HOST_LIST": TWO, "AZUREML_CR_NODE_RANK": "0"}
    assert len(read_azureml(environ, Settings()).hosts) == 2
    file = tmp_path / "ray_current_cluster"
    file.write_text("10.0.0.4:6379\n")
    monkeypatch.setattr(azureml_hosts, "RAY_FILE", str(file))
    job = read_azureml(environ, Settings())
    assert (len(job.hosts), job.distribution.kind) == (1, "none")
    assert f"1 host ({file}: 10.0.0.4:6379)" in job.notes[0].text
    assert len(read_azureml(PROCESS, Settings()).hosts) == 2, "a job whose processes AzureML started"
    survey = find_launcher("ray").survey
    assert survey is not None
    with pytest.raises(UsageError, match=r"--launcher ray: AzureML has started a Ray cluster .*leave --launcher out"):
        survey(Question(job, Settings(launcher="ray"), environ, ""))
    with pytest.raises(UsageError, match=r"AZUREML_CR_NODE_RANK=1 and .*ray_current_cluster: 10.0.0.4:6379"):
        read_azureml({**environ, "AZUREML_CR_NODE_RANK": "1"}, Settings())


def test_unnamed_hosts_have_a_leader_and_a_place() -> None:
    unnamed = read_azureml(without(PROCESS, "AZ_BATCH_HOST_LIST"), Settings()).unnamed
    assert unnamed is not None
    assert (unnamed.nnodes, unnamed.node_rank, unnamed.leader) == (2, 1, "10.0.0.4")
    assert read_azureml(PROCESS, Settings()).unnamed is None


@pytest.mark.parametrize(
    ("environ", "message"),
    [
        ({**MPI, "OMPI_COMM_WORLD_RANK": "8"}, "OMPI_COMM_WORLD_RANK is 8, expected less than 8"),
        ({**MPI, "OMPI_COMM_WORLD_LOCAL_RANK": "4"}, "OMPI_COMM_WORLD_LOCAL_RANK is 4, expected less than 4"),
        ({**MPI, "OMPI_COMM_WORLD_SIZE": "eight"}, 'OMPI_COMM_WORLD_SIZE is "eight", expected a whole number'),
        ({**MPI, "OMPI_COMM_WORLD_SIZE": "7"}, "OMPI_COMM_WORLD_SIZE is 7, and 4 processes on each of 2 hosts"),
        ({**MPI, "AZUREML_NODE_COUNT": "0"}, "AZUREML_NODE_COUNT is 0, expected a whole number, 1 to "),
        ({**MPI, "AZ_BATCH_MASTER_NODE": "10.0.0.4:port"}, "AZ_BATCH_MASTER_NODE is"),
        ({**MPI, "AZ_BATCH_HOST_LIST": "10.0.0.4,10.0.0.4"}, "AZ_BATCH_HOST_LIST has 10.0.0.4 more than once"),
        ({**MPI, "AZ_BATCH_HOST_LIST": "10.0.0.4,a b"}, "AZ_BATCH_HOST_LIST is"),
        ({"AZUREML_NODE_COUNT": "1", "AZ_BATCH_HOST_LIST": TWO},
         "AZUREML_NODE_COUNT says that there is 1 host, and AZ_BATCH_HOST_LIST has 2"),
        ({"AZUREML_NODE_COUNT": "1", "AZUREML_CR_NODE_RANK": "1"},
         "AZUREML_NODE_COUNT says that there is 1 host, and AZUREML_CR_NODE_RANK gives this one the number 1"),
        ({"AZUREML_NODE_COUNT": "2", "TF_CONFIG": '{"cluster": {"worker": ["a:1"]}, "task": {"type": "worker"}}'},
         "TF_CONFIG says that there is 1 host, and AZUREML_NODE_COUNT is 2"),
        ({"AZUREML_NODE_COUNT": "2", "RAY_ADDRESS": "10.0.0.4:6379", "AZUREML_CR_NODE_RANK": "1"},
         "AZUREML_CR_NODE_RANK=1 and RAY_ADDRESS="),
        ({"AZUREML_RUN_ID": "run", "VC_WORKER_HOSTS": "w-0.w,w-1.w"}, "by Volcano's variables this is one of several"),
        ({**PROCESS, "WORLD_SIZE": "7"}, "WORLD_SIZE=7 processes on 2 hosts (AZ_BATCH_HOST_LIST) leave a remainder"),
        ({**PROCESS, "RANK": "9"}, "the variable RANK is 9, expected less than 8"),
        ({**PROCESS, "LOCAL_RANK": "4"}, "the variable LOCAL_RANK is 4, expected less than 4"),
        (without(PROCESS, "WORLD_SIZE"), "but not WORLD_SIZE"),
        ({**NODE, "NODE_RANK": "2"}, "NODE_RANK gives this host the number 2, from 0, of 2"),
        ({**NODE, "MASTER_PORT": "70000"}, "MASTER_PORT is 70000, expected a port number"),
        ({"AZUREML_RUN_ID": "a", "TF_CONFIG": "["}, "the variable TF_CONFIG isn't valid JSON"),
        ({"AZUREML_RUN_ID": "a", "TF_CONFIG": WORKER % ("", "worker", 2)}, "its task is \"worker\" 2, and its cluster"),
        ({"AZUREML_CR_DISTRIBUTED_CONFIG": '{"host_list": 3}'}, "AZUREML_CR_DISTRIBUTED_CONFIG: host_list is 3"),
        ({"AZUREML_CR_NODE_RANK": "1"}, "AZUREML_CR_NODE_RANK=1: this is one of several hosts"),
        ({"AZ_BATCH_MASTER_NODE": "10.0.0.4:6000"}, "AZ_BATCH_MASTER_NODE=10.0.0.4:6000: this is one of several hosts"),
        ({"AZUREML_NODE_COUNT": "2"}, "no variable says which one is the first: pass --rollcall-leader"),
        ({"AZUREML_RUN_ID": "a", "TF_CONFIG": WORKER % (', "ps": ["host0:2223"]', "ps", 0)},
         "several tasks on the host host0: host0:2222, host0:2223"),
        (without({**PROCESS, "NODE_RANK": "0", "RANK": "0", "LOCAL_RANK": "0"}, "AZ_BATCH_HOST_LIST"),
         "LOCAL_WORLD_SIZE says how many hosts share these processes: set AZUREML_NODE_COUNT"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(environ: dict[str, str], message: str) -> None:
    with pytest.raises(UsageError, match=re.escape(message)):
        read_azureml(environ, Settings())


def test_the_jobs_directories(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    environ = {**PROCESS, "AZURE_ML_OUTPUT_trained_model": "/mnt/a", "AZURE_ML_OUTPUT_checkpoints": "/mnt/b"}
    paths = read_azureml(environ, Settings()).paths
    assert (paths.model, paths.checkpoints, paths.output_data) == ("/mnt/a", "/mnt/b", "")
    assert paths.failure == os.path.join(tmp_path, "outputs", "musterpoint", "node-1", "failure")
    assert read_azureml({**PROCESS, "AZURE_ML_OUTPUT_weights": "/mnt/w"}, Settings()).paths.model == "/mnt/w"


def launched(environ: dict[str, str], **options: Any) -> Job:
    return read_job(environ, Settings(**options), "/none", "train.py")


def test_its_secrets_are_hidden() -> None:
    context = '{"experiment_id": "e", "run_token": "eyJrun0000000000000", "run_uuid": "u-1"}'
    environ = {
        **NODE, "AZUREML_RUN_TOKEN": "eyJtoken111111", "AZUREML_OBO_CANARY_TOKEN": "canary-222222",
        "AZUREML_CR_AZUREML_CONTEXT": context,
    }  # fmt: skip
    masker = masker_of(environ, launched(environ))
    said = masker.mask("eyJtoken111111 canary-222222 eyJrun0000000000000 u-1")
    assert said == "*** *** *** u-1"
    assert "eyJrun" not in masker.mask_value("AZUREML_CR_AZUREML_CONTEXT", context)


def test_a_platform_may_be_left_aside() -> None:
    assert launched(MPI, platform="plain").hosts != ("10.0.0.4", "10.0.0.5")
    assert launched(MPI).started == StartedRank(5, 1, 8, 4, mpi=True)
    sagemaker = {"SM_HOSTS": '["a"]', "SM_CURRENT_HOST": "a"}
    assert platforms.here({**MPI, **sagemaker}, "/none").name == "sagemaker"
