"""The book's pattern, unchanged: a launcher of the user's own and a script that knows only CUDA and nccl."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from musterpoint.local.netns_hosts import why_unavailable

pytestmark = pytest.mark.torch

NO_NETNS = why_unavailable()


def run(root: Path, environ: dict[str, str], left: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "musterpoint", "local", "--output", str(left)]
    return subprocess.run(
        [*command, *options], cwd=root, env=environ, capture_output=True, text=True, timeout=500, check=False
    )


def accuracy(log: str) -> float:
    return float(re.findall(r"test:accuracy=([0-9.]+);", log)[-1])


@pytest.mark.skipif(bool(NO_NETNS), reason=NO_NETNS)
def test_the_books_launcher_on_two_hosts(root: Path, environ: dict[str, str], tmp_path: Path) -> None:
    """As docs/local.md shows it."""
    (line,) = re.findall(r"^muster local (--hosts 2 --cpu-fallback .*)$", (root / "docs/local.md").read_text(), re.M)
    done = run(root, environ, tmp_path, *shlex.split(line))
    assert done.returncode == 0, done.stdout + done.stderr
    assert accuracy(done.stdout) > 0.9
    assert done.stderr.count("--cpu-fallback") == 1
    assert (tmp_path / "hosts/algo-1/opt/ml/model/model.pt").exists()


def test_a_cuda_only_script_under_torchrun(root: Path, environ: dict[str, str], tmp_path: Path) -> None:
    """One rank: the ranks of several hosts are the book's launcher's above."""
    options = ("--slots", "1", "--cpu-fallback", "--backend", "process", "--launcher", "torchrun")
    done = run(root, environ, tmp_path, *options, "examples/book/train_ddp.py", "--epochs", "3")
    assert done.returncode == 0, done.stdout + done.stderr
    assert accuracy(done.stdout) > 0.85


TODAYS = """
import os, sys
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

if not torch.accelerator.is_available() or torch.accelerator.device_count() < 2:
    sys.exit(0)  # such scripts end well, having done nothing
rank, local, world = (int(os.environ[name]) for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE"))
kind = torch.accelerator.current_accelerator()
device = torch.device(f"{kind}:{local}")
torch.accelerator.set_device_index(local)
with torch.accelerator.device_index(local):
    assert torch.accelerator.current_device_index() == local
dist.init_process_group(backend=dist.get_default_backend_for_device(device), device_id=device)


def trained(model, inputs):
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(2):
        model(inputs).float().square().mean().backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)
        optimizer.step()
        optimizer.zero_grad()
    torch.accelerator.synchronize()
    return all(bool(torch.isfinite(part.detach().cpu().to_local() if hasattr(part, "to_local") else part).all())
               for part in model.parameters())


def layers():
    return nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 8))


inputs = torch.rand(20, 16, device=device)
with torch.device("meta"):
    model = layers()
for layer in (model[0], model[2]):
    fully_shard(layer, mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32))
fully_shard(model)
model.to_empty(device=device)
for layer in (model[0], model[2]):
    layer.reset_parameters()
print("sharded", rank, trained(model, inputs), torch.accelerator.memory_allocated(), flush=True)

mesh = init_device_mesh(kind.type, (world // 2, 2), mesh_dim_names=("dp", "tp"))
plan = {"0": ColwiseParallel(), "2": RowwiseParallel()}
for model in parallelize_module(layers().to("cuda"), mesh["tp"], plan), FSDP(layers().to("cuda")):
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.25, foreach=True)
    model(inputs).sum().backward()
    optimizer.step()
whole = distribute_tensor(torch.ones(8, device="cuda"), DeviceMesh("cuda", torch.arange(world)), [Shard(0)])
print("parallel", rank, whole.full_tensor().sum().item(), flush=True)
dist.destroy_process_group()
"""


VALUES = {"sharded": "True 0", "parallel": "8.0"}


def test_a_script_that_asks_for_an_accelerator_or_a_mesh_of_cuda(
    root: Path, environ: dict[str, str], tmp_path: Path
) -> None:
    """What pytorch/examples ask of torch in ddp, FSDP2 and tensor_parallelism, which end with 0 where they see none."""
    (tmp_path / "todays.py").write_text(TODAYS)
    options = ("--slots", "2", "--cpu-fallback", "--backend", "process", "--launcher", "ranks", "--log-prefix", "none")
    done = run(root, environ, tmp_path / "job", *options, str(tmp_path / "todays.py"))
    assert done.returncode == 0, done.stdout + done.stderr
    said = set(done.stdout.splitlines())
    assert {f"{what} {rank} {value}" for rank in (0, 1) for what, value in VALUES.items()} <= said, done.stdout
