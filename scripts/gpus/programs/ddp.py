"""Trains data-parallel, and on rank 0 once more as one process: ddp.py BACKEND STEPS. Tells the difference."""

import sys
import time

import torch
import torch.distributed as dist
from ranks import RANK, WORLD, batch, difference, join, network, settle, tell
from torch.nn.parallel import DistributedDataParallel

backend, steps = sys.argv[1].replace("auto", ""), int(sys.argv[2])
if backend == "smddp":
    import smdistributed.dataparallel.torch.torch_smddp  # noqa: F401
mine = join(backend)
plain = network(64).to(mine)
model = DistributedDataParallel(network(64).to(mine))
optimizers = [torch.optim.SGD(each.parameters(), lr=0.05) for each in (model, plain)]
settle()
began = time.monotonic()
for step in range(steps):
    data = batch(16 * WORLD, 64, step).to(mine)
    optimizers[0].zero_grad()
    model(data[RANK * 16 : (RANK + 1) * 16]).square().mean().backward()
    optimizers[0].step()
settle()
seconds = time.monotonic() - began
for step in range(steps):
    optimizers[1].zero_grad()
    plain(batch(16 * WORLD, 64, step).to(mine)).square().mean().backward()
    optimizers[1].step()
if RANK == 0:
    tell(difference=difference(model.module, plain), backend=str(dist.get_backend()), seconds_per_step=seconds / steps)
dist.destroy_process_group()
