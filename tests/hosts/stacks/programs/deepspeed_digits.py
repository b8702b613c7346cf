"""ZeRO-2 on scikit-learn's digits (the NPZ file given), on CPU.

Every rank prints its place, the loss over all ranks after each epoch, and a hash of its weights.

``--discover`` forgets the variables that name the world, so that DeepSpeed asks MPI for it.
"""

from __future__ import annotations

import argparse
import hashlib
import os

import deepspeed
import numpy
import torch
import torch.distributed as dist

parser = argparse.ArgumentParser()
parser.add_argument("data")
parser.add_argument("--local_rank", type=int, default=-1)
parser.add_argument("--discover", action="store_true")
parser.add_argument("--epochs", type=int, default=3)
args = parser.parse_args()

if args.discover:
    for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        os.environ.pop(name, None)
    os.environ.pop("SM_TRAINING_ENV")  # or DeepSpeed takes Open MPI's variables, and nobody has a meeting point
deepspeed.init_distributed(dist_backend="gloo", distributed_port=29511)
rank, world = dist.get_rank(), dist.get_world_size()

torch.manual_seed(0)
data = numpy.load(args.data)
images = torch.tensor(data["images"] / 16, dtype=torch.float32)
labels = torch.tensor(data["labels"], dtype=torch.int64)
mine = slice(rank, len(images) - len(images) % world, world)

model = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 10))
config = {
    "train_micro_batch_size_per_gpu": 32,
    "optimizer": {"type": "Adam", "params": {"lr": 5e-3, "torch_adam": True}},
    "zero_optimization": {"stage": 2},
    "wall_clock_breakdown": False,
}
engine, _, _, _ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)
print(f"rank {rank} of {world}: argument {args.local_rank}, device {engine.local_rank}, stage",
      engine.zero_optimization_stage(), flush=True)  # fmt: skip
for epoch in range(args.epochs):
    total, steps = torch.zeros(()), 0
    for batch, wanted in zip(images[mine].split(32), labels[mine].split(32), strict=True):
        loss = torch.nn.functional.cross_entropy(engine(batch), wanted)
        engine.backward(loss)
        engine.step()
        total, steps = total + loss.detach(), steps + 1
    mean = total / steps
    dist.all_reduce(mean)
    print(f"rank {rank} epoch {epoch}: loss {mean.item() / world:.6f}", flush=True)
weights = b"".join(parameter.detach().numpy().tobytes() for parameter in engine.module.parameters())
print(f"rank {rank} weights {hashlib.sha256(weights).hexdigest()[:16]}", flush=True)
dist.barrier()
dist.destroy_process_group()
