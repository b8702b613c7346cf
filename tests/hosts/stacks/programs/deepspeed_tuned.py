"""A model that DeepSpeed's autotuner tries with its configurations, for ten steps each; every rank says where it is."""

from __future__ import annotations

import argparse
import os

import deepspeed
import torch
import torch.distributed as dist

parser = argparse.ArgumentParser()
parser.add_argument("--local_rank", type=int, default=-1)
args = deepspeed.add_config_arguments(parser).parse_args()

deepspeed.init_distributed(dist_backend="gloo")
rank, world = dist.get_rank(), dist.get_world_size()
model = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 10))
engine, *_ = deepspeed.initialize(args=args, model=model, model_parameters=model.parameters())
size = engine.train_micro_batch_size_per_gpu()
print(f"rank {rank} of {world} on {os.environ['SM_CURRENT_HOST']}", flush=True)
for _ in range(10):
    loss = torch.nn.functional.cross_entropy(engine(torch.randn(size, 64)), torch.randint(10, (size,)))
    engine.backward(loss)
    engine.step()
