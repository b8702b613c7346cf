"""Scaled losses, clipped gradients and activations that are computed again.

In two parts, against one process that has the whole model.
"""

import copy

import smdistributed.modelparallel.torch as smp
import torch
from ending import leave
from torch import nn
from torch.nn.utils import clip_grad_norm_

torch.set_default_dtype(torch.float64)
torch.set_num_threads(1)
calls = 0


class Block(nn.Module):
    """Counts how often it computes; draws random numbers."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(6, 6)

    def forward(self, inputs):
        global calls
        calls += 1
        return inputs + torch.tanh(self.linear(inputs))


@smp.step
def train_step(model, scaler, inputs, poison):
    loss = model(inputs).square().mean()
    model.backward(scaler.scale(loss * poison))
    return loss


smp.init({"partitions": 2, "microbatches": 2})
torch.manual_seed(1)
plain = nn.Sequential(*(Block() for _ in range(4)))
whole = copy.deepcopy(plain)
for parameter in plain[0].parameters():  # the first part has nothing to train
    parameter.requires_grad_(False)
plain[1].requires_grad_(False)
whole[0].requires_grad_(False)
whole[1].requires_grad_(False)
model = smp.DistributedModel(plain)
smp.set_activation_checkpointing(model.get_module())
optimizer = smp.DistributedOptimizer(torch.optim.SGD(plain.parameters(), lr=0.1, momentum=0.9))
scaler = smp.amp.GradScaler(init_scale=1024.0, growth_interval=2)
reference = torch.optim.SGD(whole.parameters(), lr=0.1, momentum=0.9)
own = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=2)
scales, counted, norms = [], [], []
for step in range(5):
    inputs = torch.randn(4, 6, generator=torch.Generator().manual_seed(step))
    poison = torch.tensor(float("inf") if step == 2 else 1.0)
    calls = 0
    optimizer.zero_grad()
    train_step(model, scaler, inputs, poison)
    counted.append(calls)
    if step > 2:
        scaler.unscale_(optimizer)
        norms.append(float(clip_grad_norm_(model.parameters(), 0.01, norm_type=(2.0, float("inf"))[step % 2])))
    scaler.step(optimizer)
    scaler.update()
    reference.zero_grad()
    for part in inputs.chunk(2):
        own.scale(whole(part).square().mean() * poison / 2).backward()
    if step > 2:
        own.unscale_(reference)
        norms[-1] -= float(clip_grad_norm_(whole.parameters(), 0.01, norm_type=(2.0, float("inf"))[step % 2]))
    own.step(reference)
    own.update()
    scales.append((scaler.get_scale(), own.get_scale()))
final, expected = model.state_dict(), whole.state_dict()
error = max(float((final[key] - value).abs().max()) for key, value in expected.items())
owned = sorted({name.partition(".")[0] for name, _ in model.local_named_parameters()})
leave(error=error, norms=norms, scales=scales, calls=counted, owned=owned)
