"""Hooks of parameters: where gradients come whole, in parts from calls of other ranks, or in shards."""

import torch
from ending import leave
from parts_and_whole import PARTS, SHARDS, TENSORS, WIDTH, table, usual
from torch import nn


class Net(nn.Module):
    """``hook``: has a module's weight hooked; ``calls``: how often it is called."""

    def __init__(self, hook, calls):
        super().__init__()
        self.first, self.there, self.last = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 2)
        self.calls = calls
        hook(self.there.weight)

    def forward(self, x):
        for _ in range(self.calls):
            x = torch.sin(self.there(torch.tanh(self.first(x))))
        return self.last(x)


def masked(weight):
    weight.register_hook(lambda gradient: gradient * torch.eye(WIDTH))


def bounded(weight):
    weight.register_hook(lambda gradient: gradient.clamp(-1e-4, 1e-4))


def in_place(weight):
    weight.register_hook(lambda gradient: gradient.mul_(0.5))


def behind(weight):
    def bound(weight):
        weight.grad.clamp_(-1e-3, 1e-3)

    weight.register_post_accumulate_grad_hook(bound)


def counting(weight):
    """Only looks."""
    weight.register_hook(lambda gradient: None)


def twice(model, net, x, backward):
    """Two passes in a step: each has a whole gradient, in plain torch as well."""
    backward(model(x).mean())
    return usual(model, net, x, backward)


def made(hook, calls, world=PARTS, *runs):
    return (lambda: Net(hook, calls)), world, *runs


leave(
    exact=table({
        "scaled": made(in_place, 1),
        "masked": made(masked, 1),
        "masked, in parts": made(masked, 2),
        "looked at, in parts": made(counting, 2),
        "bounded": made(bounded, 1),
        "bounded, in two passes": made(bounded, 1, PARTS, twice, twice),
        "masked, beside shared tensors": made(masked, 1, TENSORS),
        "bounded on its rank": made(bounded, 2, {**PARTS, "partitions": 1}),
    }),
    refused=table({
        "bounded, in parts": made(bounded, 2),
        "bounded behind the sum, in parts": made(behind, 2),
        "masked, in shards": made(masked, 1, SHARDS),
        "bounded behind the sum, in shards": made(behind, 1, SHARDS),
    }),
)  # fmt: skip
