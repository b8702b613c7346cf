"""What variables of platforms without a reader say: one host, or several; as recorded there."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from musterpoint.errors import UsageError
from musterpoint.job.other_platforms import PLATFORMS, several
from musterpoint.job.read import read_job
from musterpoint.settings import Settings

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
    ("MPI", {"PMIX_RANK": "3"}, "PMIX_RANK"),
    ("TensorFlow", {"TF_CONFIG": TF_CONFIG % ', "b:2222"'}, "TF_CONFIG"),
    ("TensorFlow", {"TF_CONFIG": '{"cluster": {"chief": ["a:1"], "ps": ["b:1"]}, "task": {}}'}, "TF_CONFIG"),
    ("JAX", {"JAX_NUM_PROCESSES": "2", "JAX_PROCESS_ID": "0"}, "JAX_NUM_PROCESSES"),
    ("JAX", {"JAX_PROCESS_ID": "1"}, "JAX_PROCESS_ID"),
    ("XGBoost", {"DMLC_NUM_WORKER": "2", "DMLC_TASK_ID": "0"}, "DMLC_NUM_WORKER"),
    ("XGBoost", {"DMLC_TASK_ID": "1"}, "DMLC_TASK_ID"),
    ("AWS Batch", {"AWS_BATCH_JOB_NUM_NODES": "2"}, "AWS_BATCH_JOB_NUM_NODES"),
    ("AWS Batch", {"AWS_BATCH_JOB_NODE_INDEX": "1"}, "AWS_BATCH_JOB_NODE_INDEX"),
    ("SkyPilot", {"SKYPILOT_NUM_NODES": "2"}, "SKYPILOT_NUM_NODES"),
    ("SkyPilot", {"SKYPILOT_NODE_RANK": "1"}, "SKYPILOT_NODE_RANK"),
    ("dstack", {"DSTACK_NODES_NUM": "2"}, "DSTACK_NODES_NUM"),
    ("dstack", {"DSTACK_NODE_RANK": "1"}, "DSTACK_NODE_RANK"),
    ("LSF", {"LSB_MCPU_HOSTS": "h1 4 h2 4"}, "LSB_MCPU_HOSTS"),
    ("PBS", {"PBS_NUM_NODES": "2"}, "PBS_NUM_NODES"),
    ("PBS", {"PBS_NODENUM": "1"}, "PBS_NODENUM"),
    ("Grid Engine", {"NHOSTS": "2", "PE_HOSTFILE": "/x"}, "NHOSTS"),
    ("Flux", {"FLUX_JOB_NNODES": "2"}, "FLUX_JOB_NNODES"),
    ("Flux", {"FLUX_TASK_RANK": "1"}, "FLUX_TASK_RANK"),
]

ONE: list[dict[str, str]] = [
    {},
    {"SM_HOSTS": '["algo-1"]'},
    {"SM_HOSTS": "", "SM_HOST_COUNT": "1", "SM_CURRENT_HOST_RANK": "0", "SM_RESOURCE_CONFIG": '{"hosts": ["a"]}'},
    {**PET, "PET_NNODES": "1"},
    {**PET, "PET_NNODES": "1:1"},
    BOTH,
    {"PET_NPROC_PER_NODE": "8", "PET_NNODES": "many"},
    {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "a", "GROUP_WORLD_SIZE": "1"},
    {"WORLD_SIZE": "8"},
    {"NNODES": "2"},
    {"NHOSTS": "2"},
    {"OMPI_COMM_WORLD_SIZE": "1", "PMI_SIZE": "1", "PMI_RANK": "0", "PMIX_RANK": "0"},
    {"TF_CONFIG": TF_CONFIG % ""},
    {"TF_CONFIG": "no JSON"},
    {"JAX_NUM_PROCESSES": "1", "DMLC_NUM_WORKER": "1", "LSB_MCPU_HOSTS": "h1 4"},
    {"SLURM_ARRAY_TASK_COUNT": "8", "AWS_BATCH_JOB_ARRAY_INDEX": "3"},
]  # fmt: skip


@pytest.mark.parametrize(("platform", "environ", "named"), SEVERAL)
def test_several_are_refused_by_name(platform: str, environ: dict[str, str], named: str, tmp_path: Path) -> None:
    found = several(environ)
    assert found is not None
    assert (found.platform.name, " ".join(name for name, _ in found.variables)) == (platform, named)
    with pytest.raises(UsageError) as error:
        read_job(environ, Settings(), str(tmp_path), "train.py")
    for name in named.split():
        assert f"{name}=" in str(error.value)
    assert len(str(error.value)) < 900


@pytest.mark.parametrize(("platform", "environ", "named"), SEVERAL)
def test_what_the_user_says_goes_before(platform: str, environ: dict[str, str], named: str, tmp_path: Path) -> None:
    job = read_job(environ, Settings(platform="plain"), str(tmp_path), "train.py")
    assert (job.platform, len(job.hosts)) == ("plain", 1)
    said = {**environ, "SM_HOSTS": '["node-1", "node-2"]', "SM_CURRENT_HOST": "node-1", "SM_RESOURCE_CONFIG": ""}
    assert read_job(said, Settings(), str(tmp_path), "train.py").hosts == ("node-1", "node-2")


@pytest.mark.parametrize("environ", ONE)
def test_one_host_goes_on(environ: dict[str, str], tmp_path: Path) -> None:
    assert several(environ) is None
    assert read_job(environ, Settings(), str(tmp_path), "train.py").platform == "plain"


def test_every_sign_is_tried_both_ways() -> None:
    signs = {sign.variable for platform in PLATFORMS for group in platform.signs for sign in group}
    assert signs == {name for _, _, named in SEVERAL for name in named.split()}


def test_a_platforms_own_tree_goes_before(tmp_path: Path) -> None:
    """``muster local`` on a login node of Slurm, and ``train`` wherever it runs."""
    folder = tmp_path / "input" / "config"
    folder.mkdir(parents=True)
    (folder / "resourceconfig.json").write_text('{"current_host": "algo-1", "hosts": ["algo-1"]}')
    assert read_job(PET, Settings(), str(tmp_path)).hosts == ("algo-1",)


NAMES = sorted({sign.variable for platform in PLATFORMS for group in platform.signs for sign in group})


@given(st.dictionaries(st.sampled_from([*NAMES, "RANK", "LOCAL_RANK", "MASTER_ADDR", "PE_HOSTFILE"]), st.text()))
def test_whatever_they_hold_only_usage_errors_come_out(environ: dict[str, str]) -> None:
    try:
        read_job(environ, Settings(), os.devnull, "train.py")
    except UsageError as error:
        assert str(error)
