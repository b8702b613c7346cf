"""Expressions on a weight and buffers of another rank, most of which torch evaluates without asking their class."""

import copy

import torch
from ending import leave
from parts_and_whole import PARTS, table
from torch import nn
from torch.utils.checkpoint import checkpoint

functional = nn.functional


class There(nn.Module):
    """A weight, indices, a mask, a number, a whole number, and buffers that lie in memory in odd ways."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.arange(6.0).view(2, 3) + 1)
        self.register_buffer("index", torch.tensor([1, 1]))
        self.register_buffer("mask", torch.tensor([True, False]))
        self.register_buffer("number", torch.tensor(2.5))
        self.register_buffer("count", torch.tensor(2))
        self.register_buffer("expanded", torch.arange(3.0).expand(2, 3))
        self.register_buffer("holes", torch.arange(12.0).view(2, 6)[:, ::2])


class Net(nn.Module):
    def __init__(self, expression):
        super().__init__()
        self.there, self.first, self.expression = There(), nn.Linear(4, 3), expression

    def forward(self, x):
        x = self.first(x)
        if not torch.isfinite(x).all():
            raise ValueError("it can't be traced")
        there = self.there
        found = self.expression(x, there.weight, there.index, there.mask, there.number, there.count)
        return torch.tanh(x.sum() + (found * 0.01).sum() + there.weight.sum() * 0.01)


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight):
        return x * 2 + weight.sum()

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 2, torch.ones(2, 3) * gradient.sum()


@torch.jit.script
def scripted(weight, x):
    return (weight * x).sum()


def set_data(weight):
    made = torch.zeros(2, 3)
    made.data = weight
    return made


EXACT = {
    "torch.tensor": lambda x, w, i, m, c, n: torch.tensor(w.detach()),
    "torch.tensor of a number": lambda x, w, i, m, c, n: torch.tensor([c, c]) * x.sum(),
    "scalar_tensor": lambda x, w, i, m, c, n: torch.scalar_tensor(c) * x,
    "alpha": lambda x, w, i, m, c, n: torch.add(x, x, alpha=c),
    "alpha in place": lambda x, w, i, m, c, n: x.clone().add_(x, alpha=c),
    "beta": lambda x, w, i, m, c, n: torch.addmm(torch.ones(4, 2), x, w.t(), beta=c),
    "leaky_relu": lambda x, w, i, m, c, n: functional.leaky_relu(x, c),
    "elu": lambda x, w, i, m, c, n: functional.elu(x, c),
    "softplus": lambda x, w, i, m, c, n: functional.softplus(x, c),
    "hardtanh": lambda x, w, i, m, c, n: functional.hardtanh(x, 0, c),
    "roll": lambda x, w, i, m, c, n: x.roll(n, 0) * x,
    "topk": lambda x, w, i, m, c, n: x.topk(n).values,
    "select": lambda x, w, i, m, c, n: x.select(0, n),
    "tril": lambda x, w, i, m, c, n: x.tril(n - 1),
    "sum over": lambda x, w, i, m, c, n: x[None].sum(n).exp(),
    "full": lambda x, w, i, m, c, n: torch.full((3,), c) * x,
    "full_like": lambda x, w, i, m, c, n: torch.full_like(x, c) * x,
    "new_full": lambda x, w, i, m, c, n: x.new_full((3,), c) * x,
    "new_zeros": lambda x, w, i, m, c, n: x.new_zeros(n) + n,
    "arange": lambda x, w, i, m, c, n: torch.arange(n) * x[0, 0],
    "eye": lambda x, w, i, m, c, n: torch.eye(n) * x[0, 0],
    "renorm": lambda x, w, i, m, c, n: x.renorm(2, 0, c),
    "norm": lambda x, w, i, m, c, n: x.norm(p=c),
    "index": lambda x, w, i, m, c, n: x[i],
    "mask": lambda x, w, i, m, c, n: x[:2][m],
    "range": lambda x, w, i, m, c, n: sum(x[each].sum() for each in range(n)),
    "format": lambda x, w, i, m, c, n: x * float(f"{c:.2f}"),
    "where": lambda x, w, i, m, c, n: torch.where(x > 0, c, x),
    "matmul": lambda x, w, i, m, c, n: x @ w.T,
    "torch.ops": lambda x, w, i, m, c, n: torch.ops.aten.mul.Tensor(w, w) * x[0, 0],
    "dlpack": lambda x, w, i, m, c, n: torch.from_dlpack(torch.utils.dlpack.to_dlpack(i)) * x[0, 0],
    "dlpack by torch's other name": lambda x, w, i, m, c, n: torch.from_dlpack(torch.to_dlpack(i)) * x[0, 0],
    "csr": lambda x, w, i, m, c, n: torch.sparse_csr_tensor([0, 1, 2], i, torch.ones(2), (2, 2)).to_dense() * x[0, 0],
    "script of a number": lambda x, w, i, m, c, n: scripted(c, x),
    "checkpoint": lambda x, w, i, m, c, n: checkpoint(lambda a, b: a @ b.t(), x, w, use_reentrant=False),
    "function of a copy": lambda x, w, i, m, c, n: Doubled.apply(x, w.clone()),
}
REFUSED = {
    "new_tensor": lambda x, w, i, m, c, n: x.new_tensor(torch.Tensor(w)),
    "script": lambda x, w, i, m, c, n: scripted(w, w.detach()),
    "function": lambda x, w, i, m, c, n: Doubled.apply(x, w),
    "reentrant checkpoint": lambda x, w, i, m, c, n: checkpoint(lambda a, b: a @ b.t(), x, w, use_reentrant=True),
    "vmap": lambda x, w, i, m, c, n: torch.func.vmap(lambda row: row * 2)(w),
    "func.grad": lambda x, w, i, m, c, n: torch.func.grad(lambda a: (a * a).sum())(w),
    "deepcopy": lambda x, w, i, m, c, n: copy.deepcopy(w),
    "set_": lambda x, w, i, m, c, n: torch.zeros(0, dtype=torch.long).set_(i),
    "data": lambda x, w, i, m, c, n: set_data(w),
    "Parameter": lambda x, w, i, m, c, n: nn.Parameter(w),
}


def made(expressions):
    return {name: (lambda each=each: Net(each), PARTS) for name, each in expressions.items()}


leave(exact=table(made(EXACT)), refused=table(made(REFUSED)))
