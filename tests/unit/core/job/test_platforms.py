"""A platform is one object in one file: the table of them, and nothing else that asks for a platform's name."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Iterator

import pytest

from musterpoint.base.errors import UsageError
from musterpoint.core.job import platforms
from musterpoint.core.job.platform import Platform
from musterpoint.core.job.platforms import PLATFORMS
from musterpoint.local import platforms as local_platforms
from musterpoint.local.platforms.local_platform import LocalPlatform

from ...sources import IN_ONE_WORKER, PACKAGE, files, nodes

pytestmark = IN_ONE_WORKER

OWN = ("core/job/platforms/", "local/platforms/")
"""Where a platform's own files are."""
OTHER_MEANINGS = {
    "core/job/platforms/__init__.py": set(PLATFORMS),  # the table of all platforms
    "base/settings.py": {"sagemaker"},  # the spelling of arguments
    "core/job/hyperparameters.py": {"sagemaker"},  # the toolkit that spells arguments so
    "core/job/sagemaker_files.py": {"sagemaker"},  # likewise; a folder's name, and what the files' reader fills in
    "core/code/install.py": {"sagemaker"},  # a module of ours
    "local/options.py": {"sagemaker"},  # the spelling of arguments
    "integrations/sagemaker_drivers.py": {"sagemaker"},  # a package of AWS's
    "core/launch/mpi/open_mpi.py": {"slurm", "lsf"},  # Open MPI's own names for its parts
    "serve/": {"sagemaker"},  # the API that it serves
}
"""Texts that are called as a platform is and mean something else, by file, or by folder with a slash at its end."""


def names_in(path: Path) -> Iterator[tuple[int, str]]:
    """Every text in the code of ``path`` that is a platform's name, docstrings apart."""
    for node in nodes(path):
        if isinstance(node, ast.Constant) and node.value in PLATFORMS:
            yield node.lineno, str(node.value)


def folders(inside: str) -> list[str]:
    return [f"{folder.as_posix()}/" for folder in Path(inside).parents]


def test_nothing_but_its_own_file_knows_a_platforms_name() -> None:
    wrong = []
    for path in files():
        inside = path.relative_to(PACKAGE).as_posix()
        if inside.startswith(OWN):
            continue
        allowed = set().union(
            *(OTHER_MEANINGS[place] for place in (inside, *folders(inside)) if place in OTHER_MEANINGS)
        )
        wrong += [f"{inside}:{line}: {name!r}" for line, name in names_in(path) if name not in allowed]
    assert wrong == []


def test_a_platforms_file_names_itself_only() -> None:
    for path in sorted((PACKAGE / "core" / "job" / "platforms").glob("*.py")):
        others = {name for _, name in names_in(path)} - {path.stem}
        assert others == set() or path.stem == "__init__", path.name


def test_the_tables_agree() -> None:
    assert sorted(platforms.PLATFORMS) == sorted(PLATFORMS)
    for name in platforms.PLATFORMS:
        assert platforms.load(name).name == name
        assert platforms.load(name).row.start
    played = {name: local_platforms.played(name) for name in local_platforms.playable()}
    assert set(platforms.PLATFORMS) - set(played) == {"vertex", "determined", "plain"}
    assert all(isinstance(made, LocalPlatform) for made in played.values())


def test_what_cannot_be_played_is_told() -> None:
    with pytest.raises(UsageError, match="--platform vertex: muster local can't play it: expected one of sagemaker"):
        local_platforms.played("vertex")


@pytest.mark.parametrize(
    ("environ", "name"),
    [
        ({"AZUREML_RUN_ID": "x"}, "azureml"),
        ({"AZ_BATCHAI_TASK_INDEX": "1"}, "azureml"),
        ({"SLURM_PROCID": "1"}, "slurm"),
        ({"SLURM_JOB_ID": "1", "AZUREML_RUN_ID": "x"}, "azureml"),
        ({"PET_NNODES": "2", "PET_MASTER_ADDR": "a-node-0-0.a"}, "kubeflow"),
        ({"JAX_COORDINATOR_ADDRESS": "a-node-0-0.a:1"}, "kubeflow"),
        ({"DMLC_TRACKER_URI": "a-node-0-0.a"}, "kubeflow"),
        ({"K_MPI_JOB_ROLE": "launcher"}, "kubeflow"),
        ({"I_MPI_HYDRA_HOST_FILE": "/etc/mpi/hostfile"}, "kubeflow"),
        ({"HYDRA_HOST_FILE": "/etc/mpi/hostfile"}, "kubeflow"),
        ({"OMPI_MCA_orte_default_hostfile": "/etc/mpi/hostfile"}, "kubeflow"),
        ({"MASTER_ADDR": "a-master-0", "KUBERNETES_SERVICE_HOST": "10.0.0.1"}, "kubeflow"),
        ({"PET_RDZV_ENDPOINT": "a-worker-0:1", "KUBERNETES_SERVICE_HOST": "10.0.0.1"}, "kubeflow"),
        ({"CLUSTER_SPEC": '{"cluster": {"workerpool0": ["a:1"]}, "task": {"type": "workerpool0"}}'}, "vertex"),
        ({"JOB_COMPLETION_INDEX": "0"}, "kubernetes"),
        ({"LWS_GROUP_SIZE": "2", "MASTER_ADDR": "a-master-0", "KUBERNETES_SERVICE_HOST": "10.0.0.1"}, "lws"),
        ({"PET_MASTER_ADDR": "a-pods-0", "PET_NNODES": "2", "HOSTNAME": "a-pods-1"}, "hyperpod"),
        ({"PET_MASTER_ADDR": "a-pods-0", "PET_NNODES": "2", "HOSTNAME": "b"}, "plain"),
        ({"VC_WORKER_HOSTS": "a,b", "TF_CONFIG": '{"cluster": {"worker": ["a:1", "b:1"]}}'}, "tfconfig"),
        ({"VC_WORKER_HOSTS": "a,b"}, "volcano"),
        ({"AZ_BATCH_NODE_LIST": "10.0.0.4;10.0.0.5", "AZ_BATCH_TASK_ID": "t"}, "azurebatch"),
        ({"AZ_BATCH_NODE_LIST": "10.0.0.4;10.0.0.5"}, "azureml"),
        ({"AZ_BATCH_NODE_LIST": "10.0.0.4;10.0.0.5", "AZ_BATCH_TASK_ID": "t", "AZUREML_RUN_ID": "x"}, "azureml"),
        ({"AWS_BATCH_JOB_NUM_NODES": "2"}, "awsbatch"),
        ({"AWS_BATCH_JOB_ID": "1", "AWS_BATCH_JOB_ARRAY_INDEX": "1"}, "plain"),
        ({"SKYPILOT_NODE_RANK": "0"}, "skypilot"),
        ({"DSTACK_NODES_NUM": "2"}, "dstack"),
        ({"FLUX_JOB_NNODES": "2"}, "flux"),
        ({"FLUX_URI": "local:///x"}, "plain"),
        ({"LSB_HOSTS": "a b"}, "lsf"),
        ({"PBS_JOBID": "1.s"}, "pbs"),
        ({"PBS_NODEFILE": "/nonexistent"}, "plain"),
        ({"NOMAD_ALLOC_INDEX": "0", "MUSTER_NNODES": "2"}, "nomad"),
        ({"NOMAD_ALLOC_INDEX": "0"}, "plain"),
        ({"SLURM_JOB_ID": "1", "PBS_JOBID": "1", "LSB_HOSTS": "a"}, "slurm"),
        ({"KUBERNETES_SERVICE_HOST": "10.0.0.1", "MUSTER_NNODES": "2"}, "kubernetes"),
        ({"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, "plain"),
        ({"SLURM_JOB_ID": ""}, "plain"),
        ({}, "plain"),
    ],
)
def test_a_platform_is_recognised(environ: dict[str, str], name: str) -> None:
    found: Platform = platforms.here(environ, "/nonexistent")
    assert found.name == name
