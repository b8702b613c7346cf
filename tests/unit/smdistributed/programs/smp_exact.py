"""Trains models in parts and compares everything with one process that has the whole of them."""

import gc

import smdistributed.modelparallel.torch as smp
import smp_models
import torch
from another import forget
from ending import leave
from torch import nn

MICROBATCHES = 4
torch.set_default_dtype(torch.float64)
WORLDS = (
    {"partitions": 4, "active_microbatches": 2},
    {"partitions": 2, "pipeline": "simple", "placement_strategy": "spread"},
    {"partitions": 1},
)


@smp.step
def train(model, x, y, criterion):
    output = model(x)
    loss = criterion(output, y)
    model.backward(loss)
    return {"loss": loss, "output": output, "size": len(x), "none": None}


@smp.step()
def evaluate(model, x):
    return model(x)


def batch(step, replica):
    """What a replica trains with."""
    generator = torch.Generator().manual_seed(100 * step + replica)
    return torch.randn(8, 3, 8, 8, generator=generator), torch.randint(5, (8,), generator=generator)


def garbage():
    return torch.randn(3, 1), torch.zeros(1, dtype=torch.long)


def distance(one, two):
    return (one.double() - two.double()).abs().max().item() if one.numel() else 0.0


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
    worst = dict.fromkeys(("gradient", "loss", "output", "weight", "statistic", "evaluated", "saved"), 0.0)

    def note(what, error):
        worst[what] = max(worst[what], error if error == error else float("inf"))

    for step in range(3):
        x, y = batch(step, smp.dp_rank()) if smp.pp_rank() == 0 else garbage()
        optimizer.zero_grad()
        result = train(model, x, y, criterion)
        assert result["size"] == [2] * MICROBATCHES and result["none"] is None, result
        plain.zero_grad()
        outputs, losses = [], []
        state = {name: buffer.clone() for name, buffer in alone.named_buffers()}
        for replica in range(smp.dp_size()):
            with torch.no_grad():
                for name, buffer in alone.named_buffers():
                    buffer.copy_(state[name])  # of the first replica
            x, y = batch(step, replica)
            for xs, ys in zip(x.chunk(MICROBATCHES), y.chunk(MICROBATCHES)):
                output = alone(xs)
                loss = criterion(output, ys)
                (loss / (MICROBATCHES * smp.dp_size())).backward()
                if replica == smp.dp_rank():
                    outputs.append(output.detach())
                    losses.append(loss.detach())
            if replica == 0:
                first = {name: buffer.clone() for name, buffer in alone.named_buffers()}
            if replica == smp.dp_rank():
                mine = {name: buffer.clone() for name, buffer in alone.named_buffers()}
        for name, buffer in model.local_named_buffers():
            note("statistic", distance(buffer, mine[name]))
        with torch.no_grad():
            for name, buffer in alone.named_buffers():
                buffer.copy_(first[name])
        expected = dict(alone.named_parameters())
        for name, parameter in model.local_named_parameters():
            assert (parameter.grad is None) == (expected[name].grad is None), name
            if parameter.grad is not None:
                note("gradient", distance(parameter.grad, expected[name].grad))
        for name, parameter in net.named_parameters():
            local = name in dict(model.local_named_parameters())
            assert local or parameter.grad is None, name
        note("loss", distance(result["loss"].reduce_mean(), torch.stack(losses).mean()))
        note("output", distance(result["output"].concat(), torch.cat(outputs)))
        optimizer.step()
        plain.step()
    whole = model.state_dict()
    assert list(whole) == list(alone.state_dict())
    for name, value in alone.state_dict().items():
        if smp.dp_rank() == 0 or name in expected:
            note("weight", distance(whole[name], value))
    model.eval()
    again = kind()
    again.load_state_dict(whole)
    again.eval()
    with torch.no_grad():
        x, _ = batch(99, smp.dp_rank())
        note(
            "evaluated",
            distance(
                evaluate(model, x if smp.pp_rank() == 0 else x[:4]).concat(),
                torch.cat([again(part) for part in x.chunk(MICROBATCHES)]),
            ),
        )
    for index, values in plain.state_dict()["state"].items():
        if values["momentum_buffer"] is not None:
            note(
                "saved", distance(optimizer.state_dict()["state"][index]["momentum_buffer"], values["momentum_buffer"])
            )
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
