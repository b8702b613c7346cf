"""The model of with_smp.py with plain PyTorch, in shards: the same loss and the same weights.

muster local --slots 2 examples/smdistributed/without_smp.py
"""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.fsdp import fully_shard

dist.init_process_group()
torch.manual_seed(0)
layers = [nn.Sequential(nn.Linear(32, 32), nn.Tanh()) for _ in range(4)]
model = nn.Sequential(*layers, nn.Linear(32, 1))
for layer in (*layers, model):
    fully_shard(layer)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
for _ in range(20):
    inputs = torch.randn(64, 32)
    inputs = inputs.chunk(dist.get_world_size())[dist.get_rank()]  # this rank's part of the batch
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(inputs), inputs.sum(dim=1, keepdim=True).sin())
    loss.backward()
    optimizer.step()
dist.all_reduce(loss.detach_(), dist.ReduceOp.AVG)
print(f"loss={loss.item():.6f}")
weights = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
if dist.get_rank() == 0:
    torch.save(weights, os.path.join(os.environ.get("SM_MODEL_DIR", "."), "model.pt"))
