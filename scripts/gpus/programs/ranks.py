"""What the programs of these parts share: the device of a rank, its group, and how it tells the part what it found."""

from __future__ import annotations

import json
import os
from typing import Any

import torch
import torch.distributed as dist

RANK, WORLD = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
HAS_GPU = torch.cuda.is_available()
SHARED = not HAS_GPU or torch.cuda.device_count() < WORLD
"""Whether ranks share a device: NCCL refuses that, and Gloo carries tensors of GPUs, too."""


def device() -> torch.device:
    """The rank's GPU; ranks share what there is. The CPU where there is none."""
    if not HAS_GPU:
        return torch.device("cpu")
    number = int(os.environ.get("LOCAL_RANK", "0")) % torch.cuda.device_count()
    torch.cuda.set_device(number)
    return torch.device("cuda", number)


def join(backend: str = "") -> torch.device:
    """Joins the job's group; NCCL where each rank has a GPU, unless a ``backend`` is given."""
    mine = device()
    dist.init_process_group(backend or ("gloo" if SHARED else "nccl"))
    return mine


def settle() -> None:
    """Waits until the GPU has done what it was given."""
    if HAS_GPU:
        torch.cuda.synchronize()


def tell(**facts: Any) -> None:
    """Tells the part what this rank found."""
    print("facts of a part: " + json.dumps(facts), flush=True)


def network(width: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> torch.nn.Module:
    torch.manual_seed(seed)
    return torch.nn.Sequential(
        torch.nn.Linear(width, 4 * width), torch.nn.GELU(), torch.nn.Linear(4 * width, width),
        torch.nn.GELU(), torch.nn.Linear(width, 1),
    ).to(dtype)  # fmt: skip


def batch(size: int, width: int, step: int, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return torch.randn(size, width, dtype=dtype, generator=torch.Generator().manual_seed(step))


def difference(one: torch.nn.Module, other: torch.nn.Module) -> float:
    """The largest relative difference of two models' parameters."""
    pairs = zip(one.parameters(), other.parameters(), strict=True)
    return max(float((a.cpu() - b.cpu()).abs().max() / b.cpu().abs().max().clamp_min(1e-300)) for a, b in pairs)
