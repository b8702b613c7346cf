"""What a host is started with, and what it must not inherit."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest

from musterpoint.base.settings import OUTER, PLANNED, SOCKET_TOKEN
from musterpoint.core.fabric.devices import Devices
from musterpoint.local.host_environment import PATCHES, host_environment, threads
from musterpoint.local.job_request import Container, LocalJob
from musterpoint.local.platforms import training_container
from musterpoint.local.platforms.local_platform import PlayedHost
from musterpoint.local.tree import CONTAINER_PATCHES, Layout

JOB = LocalJob("digits", ("algo-1", "algo-2"), "train.py", "/code", arguments=("--a", "b c"))


def variables(job: LocalJob = JOB) -> dict[str, str]:
    """What SageMaker gives the first host of ``job``."""
    return training_container.container_environment(PlayedHost(job, "algo-1", Layout("/out"), {}, "/opt/ml"))


def test_a_surrounding_job_is_left_behind() -> None:
    outer = {"SM_HOSTS": "[]", "RANK": "3", "TORCHELASTIC_RUN_ID": "x", "PATH": "/bin", "RANKING": "1", "HOME": "/root"}
    ours = dict.fromkeys((OUTER, PLANNED, SOCKET_TOKEN, "MUSTER_SOCKET"), "@of-the-outer-job")
    environment = host_environment(JOB, "algo-1", {**outer, **ours}, {}, {})
    assert not {"SM_HOSTS", "RANK", "TORCHELASTIC_RUN_ID", *ours} & set(environment)
    assert (environment["PATH"], environment["RANKING"], environment["HOME"]) == ("/bin", "1", "/root")


def test_the_nearer_word_wins() -> None:
    job = JOB._replace(options={"MUSTER_SECRET": "given"}, environment={"A": "user"})
    own = {"MUSTER_SECRET": "made", "MUSTER_LOG_DIR": "/r"}
    environment = host_environment(job, "algo-1", {"A": "caller"}, variables(), own)
    assert (environment["MUSTER_SECRET"], environment["MUSTER_LOG_DIR"], environment["A"]) == ("given", "/r", "user")
    assert (environment["MUSTER_LOCAL"], environment["TRAINING_JOB_NAME"]) == ("1", "digits")
    assert json.loads(environment["MUSTER_PROGRAM_ARGS"]) == ["--a", "b c"]


@pytest.mark.parametrize(
    ("changes", "devices", "expected"),
    [
        ({}, Devices(cpus=8), 4),
        ({"options": {"MUSTER_SLOTS": "2"}}, Devices(cpus=8), 2),
        ({"host_slots": (1, 3)}, Devices(cpus=8), 2),
        ({"distribution": {"type": "pytorch", "per_host": 4}}, Devices(cpus=8), 1),
        ({"distribution": {"sagemaker_mpi_num_of_processes_per_host": "2"}}, Devices(cpus=8), 2),
        ({}, Devices(cpus=16, gpus=4), 2),
        ({}, Devices(cpus=1), 1),
        ({"container": Container("i")}, Devices(cpus=8), 4),
        ({"container": Container("i", cpus=2.5)}, Devices(cpus=8), 2),
        ({"container": Container("i", cpus=0.5)}, Devices(cpus=8), 1),
    ],
)
def test_hosts_share_the_processors(changes: dict[str, Any], devices: Devices, expected: int) -> None:
    assert threads(JOB._replace(**changes), devices) == expected


def test_a_gpu_for_each_slot_where_a_cpu_stands_for_them() -> None:
    job = JOB._replace(cpu_fallback=True, options={"MUSTER_SLOTS": "2"})
    own = job._replace(environment={"SM_NUM_GPUS": "3"})
    assert [host_environment(each, "algo-1", {}, {}, {})["SM_NUM_GPUS"] for each in (job, own)] == ["2", "3"]


def test_what_every_rank_loads_first_comes_first_on_the_path() -> None:
    assert host_environment(JOB, "algo-1", {}, {}, {})["PYTHONPATH"] == PATCHES
    job = JOB._replace(environment={"PYTHONPATH": "lib"})
    environment = host_environment(job, "algo-1", {"PYTHONPATH": "/other"}, {}, {})
    assert environment["PYTHONPATH"].split(os.pathsep) == [PATCHES, os.path.abspath("lib")]
    assert os.path.isfile(os.path.join(PATCHES, "sitecustomize.py"))


def test_paths_in_a_container_are_the_containers() -> None:
    job = JOB._replace(container=Container("i"), environment={"PYTHONPATH": "lib:/opt/ml/code/lib"})
    environment = host_environment(job, "algo-1", {}, {}, {})
    assert environment["PYTHONPATH"].split(":") == [CONTAINER_PATCHES, "lib", "/opt/ml/code/lib"]


@pytest.mark.parametrize(
    ("changes", "typed"),
    [
        ({}, True),
        ({"hyperparameters": {"train_script": "train.py"}}, True),
        ({"hyperparameters": {"train-script": "train.py"}}, False),
        ({"arguments": ("--epochs", "3", "--train-script=train.py")}, False),
    ],
)
def test_a_launcher_runs_once_per_host(changes: dict[str, Any], typed: bool) -> None:
    assert ("MUSTER_LOCAL" in variables(JOB._replace(**changes))) == typed
