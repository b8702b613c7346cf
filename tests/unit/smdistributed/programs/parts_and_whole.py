"""Tables of cases: what a model trained over two ranks has in common with the same model in one process."""

import smdistributed.modelparallel.torch as smp
import torch
from another import begin, meet, together
from comparing import distance
from smdistributed.modelparallel.torch.errors import SMPError
from torch import nn

WIDTH = 4
PARTS = {"partitions": 2, "microbatches": 2, "auto_partition": False, "default_partition": 0}
SHARDS = {"partitions": 1, "microbatches": 2, "ddp": True, "sharded_data_parallel_degree": 2}
TENSORS = {"partitions": 1, "microbatches": 2, "ddp": True, "tensor_parallel_degree": 2}
torch.set_default_dtype(torch.float64)
torch.set_num_threads(1)


def usual(model, net, x, backward):
    loss = model(x).pow(2).mean()
    backward(loss)
    return loss


@smp.step
def step(model, x, run):
    return run(model, model.module, x, model.backward)


def made(make):
    torch.manual_seed(5)
    return make()


def batch(number):
    return torch.randn(8, WIDTH, generator=torch.Generator().manual_seed(number))


def sgd(parameters):
    return torch.optim.SGD(parameters, 0.1)


def nothing(*_):
    """Leaves everything as it is."""


def found(make, world, *runs, optimizers=sgd, is_before=False, clip=nothing, behind=nothing):
    """The largest difference of losses, weights and buffers, or the error's words.

    What is called ``there`` in the model is on rank 1, or shared. All ranks have the same samples. ``runs``: what each
    step does. ``is_before``: the optimizer is made before the model is wrapped. ``clip`` gets the
    parameters before each of its steps, ``behind`` it and them after that.
    """
    begin(world)
    net, whole = made(make), made(make)
    if isinstance(getattr(net, "there", None), nn.Module):
        if world["partitions"] > 1:
            smp.set_partition(net.there, 1)
        if world.get("tensor_parallel_degree"):
            smp.set_tensor_parallelism(net.there)
    try:
        earlier = optimizers(net.parameters()) if is_before else None
        model = together(smp.DistributedModel(net))
        optimizer = smp.DistributedOptimizer(earlier or optimizers(model.parameters()))
        alone = optimizers(whole.parameters())
        worst = 0.0
        for number, run in enumerate(runs or (usual,) * 3):
            optimizer.zero_grad()
            alone.zero_grad()
            losses = step(model, batch(number), run).outputs
            for part, loss in zip(batch(number).chunk(2), losses):
                worst = max(worst, (run(whole, whole, part, torch.Tensor.backward).detach() - loss).abs().item())
            for parameter in whole.parameters():
                if parameter.grad is not None:
                    parameter.grad /= 2
            clip(model.parameters())
            clip(whole.parameters())
            optimizer.step()
            alone.step()
            behind(optimizer, model.parameters())
            behind(alone, whole.parameters())
        state = model.state_dict()
        return max(worst, *(distance(state[name], each) for name, each in whole.state_dict().items()))
    except (SMPError, TypeError) as error:
        return str(error)


def table(cases):
    """Each case by its name: a model, a world, and what its steps do if it isn't the usual."""
    said = {}
    for name, case in cases.items():
        said[name] = found(*case)
        meet()
    return said
