"""A small Llama under torch.sagemaker: layers shared by two ranks, parameters sharded over the others.

muster local --slots 4 --distribution '{"torch_distributed": {"enabled": true}, "smdistributed": {"modelparallel":
    {"enabled": true, "parameters": {"tensor_parallel_degree": 2}}}}' examples/smdistributed/version_2.py
"""

import argparse
import os

import torch
import torch.distributed as dist
import torch.sagemaker as tsm
from torch.distributed.checkpoint.state_dict import get_model_state_dict
from torch.distributed.fsdp import fully_shard
from torch.sagemaker.distributed.checkpoint import state_dict_saver
from torch.sagemaker.grad_norm import clip_grad_norm_
from transformers import LlamaConfig, LlamaForCausalLM

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=20)
arguments, _ = parser.parse_known_args()

tsm.init()
torch.manual_seed(0)
config = LlamaConfig(
    vocab_size=64, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4, use_cache=False
)
model = tsm.transform(LlamaForCausalLM(config))
for layer in (*model.model.layers, model):
    fully_shard(layer)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
data = torch.Generator().manual_seed(tsm.state.dp_rank)  # ranks that share layers get the same batch
for _ in range(arguments.steps):
    words = torch.randint(64, (8, 1), generator=data) + torch.arange(16)  # a row of numbers from anywhere on
    optimizer.zero_grad()
    loss = model(input_ids=words % 64, labels=words % 64).loss
    loss.backward()
    clip_grad_norm_(model, 1.0)
    optimizer.step()
mean = loss.detach().clone()
dist.all_reduce(mean)
print(f"rank {dist.get_rank()} loss={mean.item() / dist.get_world_size():.4f}")
state_dict_saver.save(
    {"model": get_model_state_dict(model)}, checkpoint_id=os.path.join(os.environ.get("SM_MODEL_DIR", "."), "weights")
)
