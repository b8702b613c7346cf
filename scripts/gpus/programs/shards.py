"""Version 2 (torch.sagemaker): a model in shards, against one process: shards.py DEGREE OFFLOAD STEPS."""

import copy
import sys
import time

import torch
import torch.distributed as dist
import torch.sagemaker as tsm
from ranks import RANK, SHARED, WORLD, batch, device, settle, tell
from torch import nn
from torch.distributed.fsdp import fully_shard

degree, offload, steps = int(sys.argv[1]), sys.argv[2] == "offload", int(sys.argv[3])
mine = device()
if SHARED:
    dist.init_process_group("gloo")
tsm.init({
    "hybrid_shard_degree": degree, "sm_activation_offloading": str(offload),
    "activation_loading_horizon": 2, "random_seed": 7,
})  # fmt: skip
WIDTH = 128


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner, self.outer = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, data: torch.Tensor) -> torch.Tensor:
        return data + self.outer(torch.tanh(self.inner(data)))


torch.manual_seed(5)
net = nn.Sequential(*(Block() for _ in range(6))).double().to(mine)
plain = copy.deepcopy(net)
model = tsm.transform(net) if hasattr(tsm, "transform") else net
if offload:
    from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper, offload_wrapper

    for name, layer in list(model.named_children()):
        setattr(model, name, offload_wrapper(checkpoint_wrapper(layer)))
for layer in (*model.children(), model):
    fully_shard(layer)
optimizers = [torch.optim.SGD(each.parameters(), lr=0.05) for each in (model, plain)]
began = time.monotonic()
for step in range(steps):
    data = batch(8 * WORLD, WIDTH, step).to(mine)
    for optimizer, each, part in ((optimizers[0], model, data[8 * RANK : 8 * RANK + 8]), (optimizers[1], plain, data)):
        optimizer.zero_grad()
        each(part).square().mean().backward()
        optimizer.step()
settle()
# Each rank compares its own part: to gather them (full_state_dict, full_tensor) torch uses Gloo's coalesced all_gather,
# which takes a GPU's memory for the host's and ends with SIGSEGV (pytorch/pytorch#152645).
worst = max(
    float((part.to_local() - whole.chunk(WORLD)[RANK]).abs().max() / whole.abs().max())
    for part, whole in zip(model.parameters(), plain.parameters(), strict=True)
)
tell(**{f"difference_{RANK}": worst, "seconds": time.monotonic() - began})
dist.destroy_process_group()
