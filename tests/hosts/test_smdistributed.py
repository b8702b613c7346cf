"""Scripts for AWS's smdistributed.dataparallel on two hosts, unchanged: under mpirun, and under torchrun without it."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any, Callable

import pytest

pytestmark = pytest.mark.torch

OPTIONS = "-x DIGITS=all -x HOME --mca btl_base_verbose 0"
DISTRIBUTION = json.dumps({"smdistributed": {"dataparallel": {"enabled": True, "custom_mpi_options": OPTIONS}}})
TWO_HOSTS = ("--hosts", "2", "--backend", "process", "--distribution", DISTRIBUTION)

CUDA_ONLY = """
import os
import smdistributed.dataparallel.torch.torch_smddp
import torch, torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group(backend="smddp")
local_rank = int(os.environ["LOCAL_RANK"])
if not torch.cuda.is_available():
    raise RuntimeError("this script needs GPUs")
torch.cuda.set_device(local_rank)
model = DDP(nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 2)).to("cuda"), device_ids=[local_rank])
optimizer = torch.optim.Adadelta(model.parameters())
for epoch in range(2):
    model.train()
    optimizer.zero_grad()
    inputs, labels = torch.randn(16, 4).cuda(), torch.zeros(16, dtype=torch.long, device="cuda")
    nn.functional.cross_entropy(model(inputs), labels).backward()
    optimizer.step()
    if dist.get_rank() == 0:
        model.eval()
        with torch.no_grad():
            model(inputs)
if dist.get_rank() == 0:
    torch.save(model.module.state_dict(), os.path.join(os.environ["SM_MODEL_DIR"], "model.pt"))
print("rank", dist.get_rank(), "of", dist.get_world_size(), "is through, DIGITS:", os.environ["DIGITS"], flush=True)
"""


def accuracy(ran: Any) -> float:
    assert ran.code == 0, ran.stderr + ran.stdout
    assert "ranks=2;" in ran.stdout
    assert "smdistributed.dataparallel is musterpoint's own, on PyTorch" in ran.log("algo-2")
    assert (ran.output / "hosts/algo-1/opt/ml/model/model.pt").exists()
    return float(re.findall(r"test:accuracy=([0-9.]+);", ran.stdout)[-1])


def test_the_example_under_mpirun(local: Any, root: Path, stack: Callable[[str], Path]) -> None:
    local.environ["PATH"] = f"{stack('openmpi4')}{os.pathsep}{local.environ['PATH']}"
    local.environ["MUSTER_PYTHON"] = local.python
    ran = local.run(*TWO_HOSTS, root / "examples/smdistributed/data_parallel.py", "--epochs", "4")
    assert accuracy(ran) > 0.9
    assert "launcher mpi" in ran.log("algo-1")


def test_the_example_where_there_is_no_mpirun(local: Any, root: Path, tmp_path: Path) -> None:
    local.environ["PATH"] = str(tmp_path)
    ran = local.run(*TWO_HOSTS, root / "examples/smdistributed/data_parallel.py", "--epochs", "4")
    assert accuracy(ran) > 0.9
    log = ran.log("algo-1")
    assert "launcher torchrun: the job asks for smdistributed data parallelism; there is no mpirun on PATH" in log
    assert "custom_mpi_options: --mca btl_base_verbose 0 isn't followed: torchrun starts the ranks" in log


@pytest.mark.parametrize("launcher", ["mpi", "torchrun"])
def test_a_script_that_knows_only_gpus(local: Any, stack: Callable[[str], Path], launcher: str) -> None:
    local.environ["PATH"] = f"{stack('openmpi4')}{os.pathsep}{local.environ['PATH']}"
    local.environ["MUSTER_PYTHON"] = local.python
    chosen = ("--cpu-fallback", "--launcher", launcher)
    ran = local.run(*TWO_HOSTS, *chosen, local.program(CUDA_ONLY))
    assert ran.code == 0, ran.stderr + ran.stdout
    for rank, host in enumerate(("algo-1", "algo-2")):
        assert f"rank {rank} of 2 is through, DIGITS: all" in ran.log(host)
