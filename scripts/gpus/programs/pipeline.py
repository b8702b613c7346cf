"""Version 1 of the model-parallel library with partitions, against one process: pipeline.py PARTITIONS KIND STEPS.

KIND: exact (float64), half (fp16 with a loss scale), bfloat, offload (activations, computed again), checkpoint.
"""

import copy
import os
import sys

import smdistributed.modelparallel.torch as smp
import torch
from ranks import HAS_GPU, SHARED, batch, device, difference, settle, tell
from torch import nn

partitions, kind, steps = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
more = {
    "half": {"fp16": True},
    "bfloat": {"bf16": True},
    "offload": {"offload_activations": True, "activation_loading_horizon": 2},
}.get(kind, {})
more["ddp_dist_backend"] = "gloo" if SHARED else "auto"
smp.init({"partitions": partitions, "microbatches": 4, "ddp": True, **more})
mine = device()
dtype = torch.float64 if kind in ("exact", "checkpoint") else torch.float32
torch.manual_seed(3)
WIDTH = 256


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner, self.outer = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, data: torch.Tensor) -> torch.Tensor:
        return data + self.outer(torch.tanh(self.inner(data)))


def loss_of(model: nn.Module, data: torch.Tensor) -> torch.Tensor:
    return model(data).float().square().mean() if kind in ("half", "bfloat") else model(data).square().mean()


@smp.step
def train_step(model: nn.Module, data: torch.Tensor) -> torch.Tensor:
    loss = loss_of(model, data)
    model.backward(loss)
    return loss


net = nn.Sequential(*(Block() for _ in range(8))).to(dtype)
plain = copy.deepcopy(net).to(mine)
model = smp.DistributedModel(net.to(mine))
if kind == "offload":
    smp.set_activation_checkpointing(model.get_module())
optimizer = smp.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.05))
whole = torch.optim.SGD(plain.parameters(), lr=0.05)
losses = []
for step in range(steps):
    data = batch(32, WIDTH, step, dtype).to(mine)
    optimizer.zero_grad()
    loss = train_step(model, data).reduce_mean()
    optimizer.step()
    whole.zero_grad()
    expected = loss_of(plain, data)
    expected.backward()
    whole.step()
    losses.append((float(loss), float(expected)))
settle()
if kind == "checkpoint":
    folder = os.path.join(os.environ["SM_MODEL_DIR"], "checkpoint")
    smp.save_checkpoint(folder, tag="last", partial=True, model=model, optimizer=optimizer)
    smp.resume_from_checkpoint(folder, tag="last", partial=True)
state = model.state_dict()
if smp.rank() == 0:
    copied = copy.deepcopy(plain)
    copied.load_state_dict({key: value.to(mine) for key, value in state.items()})
    tell(
        difference=difference(copied, plain),
        loss_difference=max(abs(a - b) / max(abs(b), 1e-12) for a, b in losses),
        peak_bytes=torch.cuda.max_memory_allocated() if HAS_GPU else 0,
    )
smp.barrier()
