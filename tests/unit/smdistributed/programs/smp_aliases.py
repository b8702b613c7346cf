"""Modules elsewhere whose arguments and results have memory in common, which somebody changes in place then."""

import torch
from ending import leave
from parts_and_whole import PARTS, WIDTH, table
from torch import nn


class Reversed(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient):
        return -gradient


class There(nn.Module):
    def __init__(self, run):
        super().__init__()
        self.weight, self.run = nn.Parameter(torch.full((WIDTH,), 0.8)), run

    def forward(self, *given):
        return self.run(self.weight, *given)


class Net(nn.Module):
    """``here``: what the caller does with the module elsewhere; ``there``: what that one does."""

    def __init__(self, here, there):
        super().__init__()
        self.first, self.last = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 2)
        self.there, self.here = There(there), here

    def forward(self, x):
        return self.last(self.here(self.there, torch.tanh(self.first(x)) * 1.5) + 0.1)


def changing(there, x):
    there(x).mul_(0.5)
    return x


def changing_a_part(there, x):
    there(x[:, 1:]).mul_(0.5)
    return x


def changing_without_gradients(there, x):
    with torch.no_grad():
        there(x).mul_(0.5)
    return x


def changing_one_of_two(there, x):
    whole, half = there(x)
    whole.mul_(2)
    return torch.cat((half, whole[:, 2:]), 1)


def adding(there, x):
    return there(x) + 2 * x


def giving_two(there, x):
    return there(x, x[:, 1:3]) + x


def giving_two_apart(there, x):
    return there(x[:2], x[2:]).repeat(2, 1) + x


def written(weight, x):
    x.mul_(weight)
    return x


def second_written(weight, x, part):
    part.mul_(3)
    return x * weight[: x.shape[1]]


def copy_written(weight, x):
    row = x.reshape(-1)  # a copy where x has holes
    row.mul_(2)
    return row.reshape(x.shape) * weight[: x.shape[1]]


def using_a_part(there, x):
    return torch.cat((there(x[:, 1:]), x[:, 1:2]), 1)


def halves(weight, x):
    x = x * weight
    return x, x[:, :2]


def hooked(weight, x):
    view = x.view_as(x)
    if view.requires_grad:
        view.register_hook(lambda gradient: gradient * 0.5)
    return view


def made(here, there, **world):
    return (lambda: Net(here, there)), {**PARTS, **world}


leave(
    exact=table({
        "an argument": made(changing, lambda weight, x: x),
        "a part of an argument": made(changing, lambda weight, x: x[:, :2]),
        "an argument in another shape": made(changing, lambda weight, x: x.reshape(-1, 2)),
        "an argument, transposed": made(changing, lambda weight, x: x.T),
        "an argument with holes": made(changing_a_part, lambda weight, x: x),
        "a part of an argument with holes": made(changing_a_part, lambda weight, x: x[1:, :2].T),
        "an argument with holes in another shape, a copy":
            made(changing_a_part, lambda weight, x: x.reshape(-1), skip_tracing=True),
        "an argument without its gradient": made(changing, lambda weight, x: x.detach()),
        "an argument without gradients": made(changing_without_gradients, lambda weight, x: x),
        "an argument that was changed there": made(changing, written),
        "something new": made(changing, lambda weight, x: x * weight),
        "two results": made(changing_one_of_two, halves),
        "two arguments apart": made(giving_two_apart, second_written),
        "an argument behind a function of the script": made(adding, lambda weight, x: Reversed.apply(x)),
        "an argument behind a hook": made(adding, hooked),
    }),
    refused=table({
        "two arguments with memory in common, one changed there": made(giving_two, second_written),
        "a copy of an argument with holes, changed there": made(using_a_part, copy_written, skip_tracing=True),
        "the diagonal of an argument with holes": made(changing_a_part, lambda weight, x: x.diagonal()),
    }),
)  # fmt: skip
