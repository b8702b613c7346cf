"""Samples per second of DistributedDataParallel: pace.py STEPS."""

import sys
import time

import torch
import torch.distributed as dist
from ranks import HAS_GPU, RANK, WORLD, join, network, settle, tell
from torch.nn.parallel import DistributedDataParallel

steps = int(sys.argv[1])
mine = join()
width = 1024 if HAS_GPU else 64
model = DistributedDataParallel(network(width, dtype=torch.float32).to(mine))
data = torch.randn(256, width, device=mine)
for step in range(steps + 5):
    if step == 5:
        settle()
        began = time.monotonic()
    model.zero_grad()
    model(data).square().mean().backward()
settle()
if RANK == 0:
    tell(samples_per_second=steps * 256 * WORLD / (time.monotonic() - began))
dist.destroy_process_group()
