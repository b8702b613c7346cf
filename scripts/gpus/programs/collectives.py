"""Collectives of the rank's device between products of matrices on it: collectives.py BACKEND. Tells wrong results."""

import sys

import torch
import torch.distributed as dist
from ranks import RANK, WORLD, join, settle, tell

backend = sys.argv[1].replace("auto", "")
if backend == "smddp":
    import smdistributed.dataparallel.torch.torch_smddp  # noqa: F401
mine = join(backend)
wrong = 0
for turn in range(50):
    product = torch.randn(512, 512, device=mine)
    product = product @ product
    found = torch.full((1000,), float(RANK + turn), device=mine)
    dist.all_reduce(found)
    wrong += int((found != sum(range(WORLD)) + turn * WORLD).any())
    cpu = torch.full((10,), float(RANK))
    if not torch.cuda.is_available() or "gloo" in backend or backend == "smddp":
        dist.all_reduce(cpu)  # the composite backend takes tensors of both devices
        wrong += int((cpu != sum(range(WORLD))).any())
    several = [torch.empty(4, device=mine) for _ in range(WORLD)]
    dist.all_gather(several, torch.full((4,), float(RANK), device=mine))
    wrong += sum(int((each != rank).any()) for rank, each in enumerate(several))
settle()
tell(**{f"wrong_{RANK}": wrong, "backend": str(dist.get_backend())})
dist.destroy_process_group()
