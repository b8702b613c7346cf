"""A script for AWS's model-parallel library, version 2: trains in shards and saves, or evaluates what was saved."""

import argparse
import json
import os

import torch
import torch.distributed as dist
import torch.sagemaker as tsm
from torch import nn
from torch.distributed.checkpoint.state_dict import get_model_state_dict, set_model_state_dict
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.sagemaker.distributed.checkpoint import state_dict_loader, state_dict_saver

parser = argparse.ArgumentParser()
parser.add_argument("--mp_parameters", type=json.loads)
parser.add_argument("--steps", type=int)
parser.add_argument("--most", type=float, help="the largest loss on held-out data that is no error")
args = parser.parse_args()
tsm.init()
rank, size = tsm.state.dp_rank, tsm.state.dp_size
torch.manual_seed(0)
data = torch.randn(64, 8, dtype=torch.float64)
held_out = torch.randn(16, 8, dtype=torch.float64)


def loss_of(model, inputs):
    return nn.functional.mse_loss(model(inputs), inputs.sin().sum(dim=1, keepdim=True))


def trained(model, inputs):
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)
    for _ in range(args.steps):
        optimizer.zero_grad()
        loss_of(model, inputs).backward()
        optimizer.step()
    return model


def untrained():
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(8, 24), nn.Tanh(), nn.Linear(24, 1)).double()


model = FullyShardedDataParallel(untrained(), device_id=torch.device("cpu"), use_orig_params=True)
kept = sum(each.numel() for each in model.parameters())
if args.steps:
    trained(model, data.chunk(size)[rank])
    state_dict_saver.save({"model": get_model_state_dict(model)}, checkpoint_id=os.environ["SM_MODEL_DIR"])
else:
    state = get_model_state_dict(model)
    state_dict_loader.load({"model": state}, checkpoint_id=os.environ["SM_CHANNEL_TRAINING"])
    set_model_state_dict(model, state)
loss = loss_of(model, held_out).item()
if loss > args.most and rank == size - 1:
    raise ArithmeticError(f"the loss on held-out data is {loss:.12f}")
rows = [None] * size
dist.all_gather_object(rows, [os.environ["SM_CURRENT_HOST"], int(os.environ["LOCAL_RANK"]), kept])
if rank == 0:
    found = {"ranks": rows, "job": args.mp_parameters, "degree": tsm.state.hybrid_shard_degree, "whose": tsm.__shim__}
    one = trained(untrained(), data)
    with open(os.path.join(os.environ["SM_MODEL_DIR"], "result.json"), "w") as file:
        json.dump({**found, "loss": loss, "of_one_process": loss_of(one, held_out).item()}, file)
dist.destroy_process_group()
