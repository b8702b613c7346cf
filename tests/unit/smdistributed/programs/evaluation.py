"""Rank 0 evaluates alone through DDP: between two epochs, and when the other ranks have ended."""

import os
import time

import smdistributed.dataparallel.torch.torch_smddp  # noqa: F401
import torch
import torch.distributed as dist
from ending import leave
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("smddp")
rank = dist.get_rank()
torch.manual_seed(0)
model = DistributedDataParallel(nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 1)))
torch.manual_seed(rank)
evaluated = 0


def train():
    model.train()
    for _ in range(3):
        model(torch.randn(16, 4)).sum().backward()


def evaluate():
    model.eval()
    data = torch.randn(5, 4)
    with torch.no_grad():
        assert torch.equal(model(data), model.module(data))
    return 1


def mean_at_the_start_of_a_pass():
    """BatchNorm's mean on this rank once rank 0's buffers have come."""
    model.train()
    seen = []
    hook = model.module.register_forward_pre_hook(lambda module, inputs: seen.append(module[1].running_mean.clone()))
    model(torch.randn(16, 4)).sum().backward()
    hook.remove()
    means = [torch.empty(8) for _ in range(dist.get_world_size())]
    dist.all_gather(means, seen[0])
    return means


for _epoch in range(2):
    train()
    if rank == 0:
        evaluated += evaluate()
    means = mean_at_the_start_of_a_pass()
    assert all(torch.equal(mean, means[0]) for mean in means), means
evaluated += evaluate()  # on all of them
pids = [None] * dist.get_world_size()
dist.all_gather_object(pids, os.getpid())
if rank:
    leave(evaluated=evaluated)
for pid in pids[1:]:
    while os.path.exists(f"/proc/{pid}/fd/0"):  # a process that has ended and isn't waited for has no files
        time.sleep(0.01)
evaluated += evaluate()
leave(evaluated=evaluated)
