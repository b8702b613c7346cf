"""The backend ``smddp`` with real ranks: collectives, torch's wrappers, the environment, rank 0 on its own."""

from __future__ import annotations

from typing import Any, Callable

import pytest

from .conftest import RunRanks

pytestmark = pytest.mark.torch


def by_mpirun(rank: int, world_size: int) -> dict[str, str]:
    return {"OMPI_COMM_WORLD_RANK": str(rank), "OMPI_COMM_WORLD_SIZE": str(world_size),
            "OMPI_COMM_WORLD_LOCAL_RANK": str(rank), "OMPI_COMM_WORLD_LOCAL_SIZE": str(world_size)}  # fmt: skip


def by_srun(rank: int, world_size: int) -> dict[str, str]:
    return {"SLURM_PROCID": str(rank), "SLURM_NTASKS": str(world_size), "SLURM_LOCALID": str(rank), "SLURM_NODEID": "0",
            "SLURM_STEP_ID": "0", "SLURM_STEP_TASKS_PER_NODE": str(world_size)}  # fmt: skip


@pytest.mark.parametrize("launched", [by_mpirun, by_srun])
def test_the_environment_is_torchs_from_the_import_on(
    run_ranks: RunRanks, launched: Callable[[int, int], dict[str, str]]
) -> None:
    said = run_ranks("environment.py", 2, launched)
    for rank, each in enumerate(said):
        assert each == {
            "RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": "2",
            "SMDATAPARALLEL_LOCAL_RANK": str(rank), "MASTER_ADDR": "127.0.0.1", "sum": 1.0, "backend": "smddp",
        }  # fmt: skip


def test_collectives(run_ranks: RunRanks) -> None:
    said = run_ranks("collectives.py", 4)
    assert len(said[0]["done"]) == 18
    assert all(set(said[0]["done"]) >= set(each["done"]) for each in said)


def test_collectives_while_torch_checks_each_one(run_ranks: RunRanks) -> None:
    said = run_ranks("collectives.py", 2, TORCH_DISTRIBUTED_DEBUG="DETAIL")
    assert said[0]["debug"] == "DETAIL"


def test_wrappers_compute_what_one_process_computes(run_ranks: RunRanks) -> None:
    for said in run_ranks("wrappers.py", 2):
        assert set(said) == {"DDP", "no_sync", "comm hook", "ZeroRedundancyOptimizer", "FSDP2", "checkpoint"}
        assert max(said.values()) <= 1e-12, said


def test_rank_0_evaluates_alone(run_ranks: RunRanks) -> None:
    said = run_ranks("evaluation.py", 2)
    assert said == [{"evaluated": 4}, {"evaluated": 1}]


def test_a_gpus_tensors_go_to_nccl(run_ranks: RunRanks) -> None:
    """With a gloo group in the place of NCCL's: a machine without GPUs."""
    (said,) = run_ranks("with_nccl.py", 1)
    assert said == {"devices": ["cpu", "cuda"], "timeout": 90.0, "ranks": [0], "first": "high priority",
                    "chosen": [0, 1]}  # fmt: skip


OTHERS = """
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
theirs = lambda *args: None
dist.Backend.register_backend("smddp", theirs, devices=["cpu", "cuda"])
before = DDP.forward
import smdistributed.dataparallel.torch.torch_smddp
print(dist.Backend._plugins["SMDDP"].creator_fn is theirs, DDP.forward is before)
"""


def test_a_backend_of_that_name_stays(python_says: Callable[..., str]) -> None:
    assert python_says(OTHERS) == "True True"


def test_an_older_torch_is_named(python_says: Callable[..., str]) -> None:
    code = (
        "import torch.distributed as dist; del dist.ProcessGroup._set_default_backend\n"
        "import smdistributed.dataparallel.torch.torch_smddp"
    )
    assert "ImportError: the backend smddp needs torch 2.6 or newer, and this is torch 2." in python_says(code)


def test_without_a_launcher(python_says: Callable[..., str]) -> None:
    code = (
        "import smdistributed.dataparallel.torch.distributed as dist\n"
        "assert not dist.is_available() and not dist.is_initialized()\n"
        "dist.get_local_rank()"
    )
    assert python_says(code).startswith("RuntimeError: LOCAL_RANK=None: expected a number")


def test_functions_of_older_versions(run_ranks: RunRanks) -> None:
    said: list[dict[str, Any]] = run_ranks("legacy.py", 2)
    for each in said:
        assert each["error"] <= 1e-12
        assert each["results"] == {"SUM": [3.0, 4.0], "MIN": [1.0, 2.0], "MAX": [2.0, 2.0], "AVERAGE": [1.5, 2.0]}
        assert "gradient_accumulation_steps=2: AWS doesn't say" in each["refused"]
