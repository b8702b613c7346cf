"""Trains models in parts and compares everything with one process that has the whole of them."""

import gc

import smdistributed.modelparallel.torch as smp
import smp_models
import torch
from another import forget
from comparing import Worst, distance, gradients, plain_step
from ending import leave
from smp_models import batch
from torch import nn

MICROBATCHES = 4
torch.set_default_dtype(torch.float64)
WORLDS = (
    {"partitions": 4, "active_microbatches": 2},
    {"partitions": 2, "pipeline": "simple", "placement_strategy": "spread"},
    {"partitions": 1},
)


def computed(model, x, y, criterion):
    output = model(x)
    return output, criterion(output, y)


@smp.step
def train(model, x, y, criterion):
    output, loss = computed(model, x, y, criterion)
    model.backward(loss)
    return {"loss": loss, "output": output, "size": len(x), "none": None}


@smp.step()
def evaluate(model, x):
    return model(x)


def garbage():
    return torch.randn(3, 1), torch.zeros(1, dtype=torch.long)


def check(kind):
    """The largest error in each kind of value."""
    forget()
    torch.manual_seed(smp.rank())  # the values of rank 0 count
    net = kind()
    torch.manual_seed(0)
    alone = kind()
    optimizer = smp.DistributedOptimizer(torch.optim.SGD(net.parameters(), 0.05, momentum=0.9))
    model = smp.DistributedModel(net)
    plain = torch.optim.SGD(alone.parameters(), 0.05, momentum=0.9)
    criterion = nn.CrossEntropyLoss()
    worst = Worst()
    for step in range(3):
        batches = [batch(step, replica, 8) for replica in range(smp.dp_size())]
        x, y = batches[smp.dp_rank()] if smp.pp_rank() == 0 else garbage()
        optimizer.zero_grad()
        result = train(model, x, y, criterion)
        assert result["size"] == [2] * MICROBATCHES and result["none"] is None, result
        plain.zero_grad()
        outputs, losses, mine = plain_step(
            alone, batches, smp.dp_rank(), MICROBATCHES, lambda x, y: computed(alone, x, y, criterion)
        )
        for name, buffer in model.local_named_buffers():
            worst.note("statistic", distance(buffer, mine[name]))
        for parameter, expected in gradients(model, alone):
            worst.note("gradient", distance(parameter.grad, expected.grad))
        for name, parameter in net.named_parameters():
            local = name in dict(model.local_named_parameters())
            assert local or parameter.grad is None, name
        worst.note("loss", distance(result["loss"].reduce_mean(), losses.mean()))
        worst.note("output", distance(result["output"].concat(), outputs))
        optimizer.step()
        plain.step()
    whole = model.state_dict()
    assert list(whole) == list(alone.state_dict())
    trained = dict(alone.named_parameters())
    for name, value in alone.state_dict().items():
        if smp.dp_rank() == 0 or name in trained:
            worst.note("weight", distance(whole[name], value))
    model.eval()
    again = kind()
    again.load_state_dict(whole)
    again.eval()
    with torch.no_grad():
        x, _ = batch(99, smp.dp_rank(), 8)
        output = torch.cat([again(part) for part in x.chunk(MICROBATCHES)])
        worst.note("evaluated", distance(evaluate(model, x if smp.pp_rank() == 0 else x[:4]).concat(), output))
    for index, values in plain.state_dict()["state"].items():
        if values["momentum_buffer"] is not None:
            found = optimizer.state_dict()["state"][index]["momentum_buffer"]
            worst.note("saved", distance(found, values["momentum_buffer"]))
        else:
            optimizer.state_dict()
    return worst


result = {}
for world in WORLDS:
    smp.state._world = None  # a world per process is what scripts have
    smp.init({"microbatches": MICROBATCHES, "ddp": True, **world})
    for name, kind in smp_models.MODELS.items():
        if smp.pp_size() > 1 or name == "ResNet":
            result[f"{name}, {world}"] = check(kind)
            gc.collect()
leave(**result)
