"""Steps of DistributedDataParallel over one group and over another, in turns: paces.py ONE OTHER ROUNDS."""

import sys
import time

import smdistributed.dataparallel.torch.torch_smddp  # noqa: F401
import torch
import torch.distributed as dist
from ranks import HAS_GPU, RANK, device, network, settle, tell
from torch.nn.parallel import DistributedDataParallel

mine = device()
names, rounds = sys.argv[1:3], int(sys.argv[3])
dist.init_process_group("smddp")
groups = {name: dist.new_group(backend=name if HAS_GPU or name == "smddp" else "gloo") for name in names}
width = 1024 if HAS_GPU else 64
models = {
    name: DistributedDataParallel(network(width, dtype=torch.float32).to(mine), process_group=group)
    for name, group in groups.items()
}
data = torch.randn(64, width, device=mine)
times: dict[str, list[float]] = {name: [] for name in names}
for turn in range(rounds):
    for name, model in models.items():
        settle()
        began = time.monotonic()
        for _ in range(10):
            model(data).square().mean().backward()
        settle()
        if turn:  # the first round compiles and allocates
            times[name].append((time.monotonic() - began) / 10)
if RANK == 0:
    tell(**{f"{name}_step": sorted(each)[len(each) // 2] for name, each in times.items()})
dist.destroy_process_group()
