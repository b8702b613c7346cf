"""Data-parallel training on scikit-learn's digits (the NPZ file given) with horovod.torch.

Every rank prints its place, and the mean of all ranks' losses after each epoch.
``--fail`` makes the last rank raise in the middle of it, ``--die`` kills it before, in the first
attempt.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys

import horovod.torch as hvd
import numpy
import torch

parser = argparse.ArgumentParser()
parser.add_argument("data")
parser.add_argument("--epochs", type=int, default=3)
parser.add_argument("--fail", action="store_true")
parser.add_argument("--die", action="store_true")
args = parser.parse_args()

hvd.init()
rank, size = hvd.rank(), hvd.size()
print(
    f"rank {rank} of {size}: local {hvd.local_rank()} of {hvd.local_size()}, cross {hvd.cross_rank()} of "
    f"{hvd.cross_size()}, mpi {hvd.mpi_enabled()}, fusion {os.environ.get('HOROVOD_FUSION_THRESHOLD')}",
    flush=True,
)

torch.manual_seed(rank)  # the broadcast below makes them one
data = numpy.load(args.data)
images = torch.tensor(data["images"] / 16, dtype=torch.float32)
labels = torch.tensor(data["labels"], dtype=torch.int64)
mine = slice(rank, len(images) - len(images) % size, size)

model = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 10))
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
hvd.broadcast_parameters(model.state_dict(), root_rank=0)
hvd.broadcast_optimizer_state(optimizer, root_rank=0)
optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())

if args.die and rank == size - 1 and os.environ["MUSTER_ATTEMPT"] == "0":
    os.kill(os.getpid(), signal.SIGKILL)
epoch = 0
while epoch < args.epochs:
    if args.fail and epoch == 1 and rank == size - 1:
        raise LookupError("no such shard")
    total, steps = torch.zeros(()), 0
    for batch, wanted in zip(images[mine].split(32), labels[mine].split(32), strict=True):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(batch), wanted)
        loss.backward()
        optimizer.step()
        total, steps = total + loss.detach(), steps + 1
    mean = hvd.allreduce(total / steps, name="loss")
    print(f"rank {rank} epoch {epoch}: loss {mean.item():.6f}", flush=True)
    epoch += 1
weights = torch.cat([parameter.detach().flatten() for parameter in model.parameters()])
everywhere = hvd.allgather(weights.unsqueeze(0), name="weights")
print(f"rank {rank} weights {'equal' if (everywhere == everywhere[0]).all() else 'differ'}", flush=True)
hvd.shutdown()
sys.exit(0)
