"""Parameters of the configuration that no other program of these tests sets, each against a model without it."""

import copy
import logging
import os

import smdistributed.modelparallel.torch as smp
import torch
import torch.distributed as dist
from another import begin as begin_world
from ending import leave
from smdistributed.modelparallel.torch import routing
from smdistributed.modelparallel.torch.nn.attention import DistributedAttentionLayer
from smdistributed.modelparallel.torch.patches import checkpoint as offload
from smdistributed.shared.offload import Offload
from torch import nn

MICROBATCHES, WIDTH = 2, 8
lines = []
handler = logging.Handler()
handler.emit = lambda record: lines.append(record.getMessage())
smp.get_logger().addHandler(handler)
result = {}
port = int(os.environ.pop("MASTER_PORT"))


def begin(**config):
    """The world again, with another configuration."""
    lines.clear()
    begin_world({"ddp": True, "microbatches": MICROBATCHES, **config})


@smp.step
def train(model, inputs):
    output = model(inputs)
    output = output[0] if isinstance(output, tuple) else output
    model.backward(output.float().square().mean())
    return output


def trained(make, inputs, checkpoints=False, **config):
    """Gradients after a step of a model that ``make`` makes, by name."""
    begin(**config)
    torch.manual_seed(3)
    model = smp.DistributedModel(make())
    if checkpoints:
        smp.set_activation_checkpointing(model.get_module())
    train(model, inputs)
    return {name: each.grad.clone() for name, each in model.local_named_parameters()}


def same(one, two):
    return one.keys() == two.keys() and all(torch.equal(each, two[name]) for name, each in one.items())


def layers():
    return nn.Sequential(*(nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh()) for _ in range(4)))


class Mixed(nn.Module):
    """A layer of smp.nn's and one of torch's."""

    def __init__(self):
        super().__init__()
        self.ours, self.theirs = smp.nn.DistributedLinear(WIDTH, WIDTH), nn.Linear(WIDTH, 2)

    def forward(self, inputs):
        return self.theirs(self.ours(inputs.half()).float())


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.transformer = smp.nn.DistributedTransformer(
            num_layers=2, num_attention_heads=2, attention_head_size=4, hidden_size=WIDTH, intermediate_size=16,
            attention_dropout_prob=0.0, hidden_dropout_prob=0.0,
        )  # fmt: skip

    def forward(self, inputs):
        return self.transformer((inputs, torch.zeros(len(inputs), 1, 1, inputs.shape[1])))


data = torch.randn(4, WIDTH, generator=torch.Generator().manual_seed(1))
words = torch.randn(4, 3, WIDTH, generator=torch.Generator().manual_seed(2))

begin(ddp_port=port, ddp_dist_backend="gloo")
result["port"] = os.environ["MASTER_PORT"] == str(port)
result["backend"] = dist.get_backend()

# --- fp16_params: what smp.nn has is float16, the rest isn't
begin(fp16_params=True)
torch.manual_seed(3)
net = Mixed()
model = smp.DistributedModel(net)
optimizer = smp.DistributedOptimizer(torch.optim.SGD(model.parameters(), 0.5))
before = copy.deepcopy(net.state_dict())
train(model, data)
optimizer.step()
result["types"] = {name: str(each.dtype) for name, each in net.named_parameters()}
result["moved"] = [name for name, each in net.state_dict().items() if not torch.equal(each, before[name])]
result["scaled"] = smp.state.optimizer.loss_scale

# --- checkpoint_attentions: smp.nn's attention layers compute twice, and nothing else changes
calls = []
compute = DistributedAttentionLayer.forward


def counting(self, *args, **kwargs):
    calls.append(1)
    return compute(self, *args, **kwargs)


DistributedAttentionLayer.forward = counting
found = []
for again in (False, True):
    calls.clear()
    found.append((trained(Attention, words, checkpoint_attentions=again), len(calls)))
result["attentions"] = [same(found[0][0], found[1][0]), found[0][1], found[1][1]]
DistributedAttentionLayer.forward = compute
trained(layers, data, checkpoint_attentions=True)
result["no attention"] = [line for line in lines if "checkpoint_attentions" in line]

# --- skip_tracing: nothing is compared, and modules are called one by one
decided = []
decide = routing.ModuleRouting.decide
routing.ModuleRouting.decide = lambda self, *args: decided.append(1) or decide(self, *args)
counts, gradients = [], []
for skips in (False, True):
    decided.clear()
    gradients.append(trained(layers, data, partitions=2, skip_tracing=skips))
    counts.append(len(decided))
result["tracing"] = [counts, same(*gradients)]

# --- offload_activations and activation_loading_horizon: what checkpoints keep, as far ahead as it says
made = []
offload.backend.has_nccl = lambda: True
offload.Offload = lambda ahead: made.append((ahead, Offload(ahead, "cpu"))) or made[-1][1]
gradients = [trained(layers, data, True, offload_activations=on, activation_loading_horizon=3) for on in (False, True)]
result["offload"] = [same(*gradients), [ahead for ahead, _ in made], hasattr(made[0][1]._thread, "line")]


# --- tensors that forward leaves on a module
class Leaves(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = layers(), layers()

    def forward(self, inputs):
        self.kept = self.first(inputs)
        return self.last(self.kept)


trained(Leaves, data, partitions=2)
result["left"] = [line for line in lines if "one microbatch runs after the other" in line]
trained(layers, data, partitions=2)
result["nothing left"] = [line for line in lines if "one microbatch runs after the other" in line]
leave(**result)
