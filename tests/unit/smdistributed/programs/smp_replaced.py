"""Parameters, buffers and attributes with other tensors in their place, and weights that are computed before a call."""

import smdistributed.modelparallel.torch as smp
import torch
from ending import leave
from parts_and_whole import PARTS, SHARDS, TENSORS, WIDTH, table, usual
from torch import nn
from torch.func import functional_call
from torch.utils.checkpoint import checkpoint


class Net(nn.Module):
    """``run``: what it does with ``there`` and ``x``."""

    def __init__(self, run, there=lambda: nn.Linear(WIDTH, WIDTH)):
        super().__init__()
        self.first, self.last = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 2)
        self.there, self.run = there(), run

    def forward(self, x):
        return self.last(torch.tanh(self.run(self.there, torch.tanh(self.first(x)))))


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh())
        self.register_buffer("scale", torch.full((WIDTH,), 0.5))

    def forward(self, x):
        return self.inner(x) * self.scale


class Following(nn.Module):
    """A copy of its weights follows them, as MoCo's encoder of keys does."""

    def __init__(self):
        super().__init__()
        self.query, self.key = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH).requires_grad_(False)

    def forward(self, x):
        with torch.no_grad():
            self.key.weight.data = self.key.weight.data * 0.9 + self.query.weight.data * 0.1
        return self.query(x) + self.key(x)


class Averaging(nn.Module):
    """Gives its buffer another tensor in each call."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)
        self.register_buffer("mean", torch.zeros(WIDTH))

    def forward(self, x):
        self.mean = 0.8 * self.mean + 0.2 * x.detach().mean(0)
        return self.linear(x) + self.mean


class Forces(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        return self.linear(x)


def halved(there, x):
    return functional_call(there, {name: each * 0.5 for name, each in there.named_parameters()}, (x,))


def with_another_buffer(there, x):
    return functional_call(there, {"scale": x.mean(0)}, (x,))


def with_one_inside(there, x):
    return functional_call(there, {"inner.0.bias": x.mean(0)}, (x,)) + there(x)


def adapted(model, net, x, backward):
    """A step of meta-learning through the whole model."""
    given = {name: each * 0.9 for name, each in net.named_parameters()}
    loss = functional_call(net, given, (x,)).pow(2).mean() + model(x).mean()
    backward(loss)
    return loss


def set_there(there, x):
    there.given = x * 2
    return there(x)


def forced(there, x):
    x = x if x.requires_grad else x.detach().requires_grad_()
    (slope,) = torch.autograd.grad(there(x).pow(2).sum(), x, create_graph=True)
    return slope


def mapped(there, x):
    return torch.func.vmap(there)(x)


def chosen(there, x):
    """Each rank its own number of rows, as with experts."""
    count = 1 + smp.rank()
    return torch.cat((there(x[:count]), x[count:]))


class Row(nn.Module):
    """Layers of one shape, of which some are called."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.chosen = (0, 1, 2)

    def forward(self, x):
        for number in self.chosen:
            x = torch.tanh(self.layers[number](x))
        return x


def choosing(*each):
    """A step in which each rank calls its own layers of the row."""

    def run(model, net, x, backward):
        if isinstance(net.there, Row):
            net.there.chosen = each[smp.rank()]
        return usual(model, net, x, backward)

    return run


class Leaving(nn.Module):
    """Leaves a loss on itself, once it is asked to."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)

    def forward(self, x, leaves=True):
        y = self.linear(x)
        if leaves:
            self.aux = y.pow(2).mean()
        return y


def left_late(model, net, x, backward):
    loss = net.there(model(x)[:, :1].expand(-1, WIDTH)).mean() + net.there.aux
    backward(loss)
    return loss


def quiet(there, x):
    return there(x, False)


def sparse(there, x):
    return there(torch.eye(len(x)).to_sparse_csr()) + x


def evaluating(model, net, x, backward):
    with torch.no_grad():
        return choosing((0, 1), (2, 1))(model, net, x, lambda loss: None)


def reentrant(there, x):
    return checkpoint(there, x, use_reentrant=True)


def called(there, x):
    return there(x)


def normed():
    return nn.utils.weight_norm(nn.Linear(WIDTH, WIDTH))


def made(run, there=lambda: nn.Linear(WIDTH, WIDTH), world=PARTS, *runs):
    return (lambda: Net(run, there)), world, *runs


leave(
    exact=table({
        "functional_call": made(halved),
        "functional_call with another buffer": made(with_another_buffer, Scaled),
        "functional_call with one parameter of a module inside": made(with_one_inside, Scaled),
        "functional_call of the model": made(called, Scaled, PARTS, *(adapted,) * 3),
        "functional_call later, one microbatch by one":
            made(called, Scaled, {**PARTS, "active_microbatches": 1}, *(usual,) * 3, adapted, usual),
        "torch's old weight_norm": made(called, normed),
        "torch's old weight_norm with all microbatches under way": made(called, normed, PARTS, *(usual,) * 6),
        "a buffer that is another tensor after each call": made(called, Averaging),
        "weights that follow others on their rank": made(called, Following),
        "a reentrant checkpoint": made(reentrant, Scaled),
        "a reentrant checkpoint, step by step": made(reentrant, Scaled, {**PARTS, "skip_tracing": True}),
        "a buffer that is another tensor, in shards": made(called, Averaging, SHARDS),
        "layers of a row that change from step to step, in shards":
            made(called, Row, SHARDS, choosing((0, 1), (0, 1)), choosing((2, 1, 2), (2, 1, 2)), choosing((1,), (1,))),
    }),
    refused=table({
        "functional_call for the first time late": made(called, Scaled, PARTS, *(usual,) * 3, adapted),
        "an attribute with a gradient": made(set_there),
        "a loss that is left for the first time late": made(quiet, Leaving, PARTS, *(usual,) * 3, left_late),
        "a sparse argument": made(sparse),
        "sparse gradients in shards": made(called, lambda: nn.Embedding(4, WIDTH, sparse=True), SHARDS),
        "weights that follow others, in shards": made(called, Following, SHARDS),
        "gradients of gradients of shared tensors": made(forced, world=TENSORS),
        "torch.func through shared tensors": made(mapped, world=TENSORS),
        "torch.func through a module elsewhere": made(mapped),
        "rows that data choose, of shared tensors": made(chosen, world=TENSORS),
        "fewer modules of shared tensors": made(called, Row, TENSORS, choosing((0, 1), (0,))),
        "other layers of a row, in shards": made(called, Row, SHARDS, choosing((0, 1), (2, 1))),
        "fewer layers of a row, in shards": made(called, Row, SHARDS, choosing((0, 1), (0,))),
        "another order in a row, in shards": made(called, Row, SHARDS, choosing((0, 1), (1, 0))),
        "other layers of a row late, in shards":
            made(called, Row, SHARDS, *(choosing((0, 1), (0, 1)),) * 3, choosing((0, 1), (2, 1))),
        "other layers of a row late and without a backward pass, in shards":
            made(called, Row, SHARDS, *(choosing((0, 1), (0, 1)),) * 3, evaluating),
    }),
)  # fmt: skip
