"""Blocks that keep something from call to call, as scripts of users do; see ``generated_blocks.py``."""

import random

import torch
from generated_blocks import WIDTH, Block
from torch import nn
from torch.nn import functional


class Assigning(Block):
    """Gives a buffer another tensor, instead of changing it in place."""

    def __init__(self, number, others):
        super().__init__(number, others)
        self.register_buffer("mean", torch.zeros(WIDTH))

    def forward(self, x, ids, others):
        if self.training:
            self.mean = 0.8 * self.mean + 0.2 * x.detach().mean(0)
        return super().forward(x, ids, others) + self.mean


class Transient(Block):
    """A table that isn't in the state, and is made anew when it is too short, as rotary embeddings are."""

    def __init__(self, number, others):
        super().__init__(number, others)
        self.register_buffer("table", torch.zeros(0, WIDTH), persistent=False)

    def forward(self, x, ids, others):
        if len(self.table) < len(x):
            rows = torch.arange(len(x), dtype=x.dtype)
            self.register_buffer("table", torch.outer(rows, torch.ones(WIDTH)).cos(), persistent=False)
        return super().forward(x, ids, others) * self.table[: len(x)]


class Spectral(Block):
    """Buffers that each forward pass in training changes."""

    parts = {"inner": lambda: nn.utils.parametrizations.spectral_norm(nn.Linear(WIDTH, WIDTH))}

    def forward(self, x, ids, others):
        return self.inner(super().forward(x, ids, others))


class Caching(Spectral):
    """A weight that is computed once for two calls."""

    def forward(self, x, ids, others):
        with nn.utils.parametrize.cached():
            return self.inner(super().forward(x, ids, others))


class Frozenstats(Block):
    """A norm that stays in evaluation, whatever the model does."""

    def __init__(self, number, others):
        super().__init__(number, others)
        self.inner = nn.BatchNorm1d(WIDTH)
        self.train()

    def train(self, mode=True):
        super().train(mode)
        if "inner" in self._modules:
            self.inner.eval()
        return self

    def forward(self, x, ids, others):
        return self.inner(super().forward(x, ids, others))


class Drawing(Block):
    """Has random numbers of its own."""

    def __init__(self, number, others):
        super().__init__(number, others)
        self.generator = torch.Generator().manual_seed(number)

    def forward(self, x, ids, others):
        if self.training:
            x = x + 0.1 * torch.randn(x.shape, generator=self.generator)
        return super().forward(x, ids, others)


class Skipping(Block):
    """Takes a way by Python's random numbers of its own."""

    def __init__(self, number, others):
        super().__init__(number, others)
        self.random = random.Random(number)

    def forward(self, x, ids, others):
        return x if self.training and self.random.random() < 0.4 else super().forward(x, ids, others)


class Configuration:
    def __init__(self):
        self.scale, self.calls = 0.5, 0


class Configured(Block):
    """Counts in a configuration that blocks have in common."""

    def __init__(self, number, others):
        super().__init__(number, others)
        self.config = getattr(others[0], "config", None) if others else None
        self.config = self.config or Configuration()

    def forward(self, x, ids, others):
        self.config.calls += 1
        return super().forward(x, ids, others) * self.config.scale


class Momentum(Block):
    """Follows its own weights with a copy, as MoCo's encoder of keys does."""

    parts = {"inner": lambda: nn.Linear(WIDTH, WIDTH).requires_grad_(False)}

    @torch.no_grad()
    def follow(self):
        for key, query in zip(self.inner.parameters(), self.linear.parameters()):
            key.data = key.data * 0.9 + query.data * 0.1

    def forward(self, x, ids, others):
        if self.training:
            self.follow()
        return super().forward(x, ids, others) + self.inner(x).detach()


class Queued(Block):
    """A queue of what it has seen, with a pointer, both buffers."""

    def __init__(self, number, others):
        super().__init__(number, others)
        self.register_buffer("queue", torch.zeros(6, WIDTH))
        self.register_buffer("pointer", torch.zeros((), dtype=torch.long))

    def forward(self, x, ids, others):
        y = super().forward(x, ids, others)
        found = functional.softmax(y @ self.queue.clone().T, 1) @ self.queue.clone()
        if self.training:
            place = int(self.pointer)
            self.queue[place] = y.detach().mean(0)
            self.pointer.fill_((place + 1) % 6)
        return y + found


class Oldnorm(Block):
    """A weight that a hook computes before each call, torch's way before parametrizations."""

    parts = {"inner": lambda: nn.utils.weight_norm(nn.Linear(WIDTH, WIDTH))}

    def forward(self, x, ids, others):
        return self.inner(super().forward(x, ids, others))


class Remembering(Block):
    """Goes on from where the last batch ended, as recurrent models do over a long text."""

    parts = {"hidden": lambda: None}

    def forward(self, x, ids, others):
        y = super().forward(x if self.hidden is None else x + self.hidden, ids, others)
        if self.training:
            self.hidden = y.detach().mean(0)
        return y


class Leaving(nn.Module):
    """Leaves a loss and a record of it on itself."""

    def __init__(self, number):
        super().__init__()
        self.linear, self.number = nn.Linear(WIDTH, WIDTH), number
        self.book = {"means": [], "last": Configuration()}

    def forward(self, x):
        y = torch.tanh(self.linear(x))
        self.aux = y.pow(2).mean()
        self.book["means"] = [*self.book["means"][-1:], y.mean(0)]
        self.book["last"].scale = (y.sum(), [y.detach().mean()])
        return y


class Auxiliary(Block):
    """Adds what another module has left on itself, behind a weight that both have."""

    def __init__(self, number, others):
        super().__init__(number, others)
        self.inner = Leaving(number)
        if number % 2:
            self.inner.linear.weight = self.linear.weight

    def forward(self, x, ids, others):
        y = super().forward(self.inner(x), ids, others)
        last = self.inner.book["last"].scale
        self.aux = y.sum() * self.inner.aux
        return y + self.inner.aux + self.inner.book["means"][-1] + 0.1 * last[0] + last[1][0] + 0.01 * self.aux


class Crossing(Block):
    """Reads what a block before has left, in its graph or without."""

    def forward(self, x, ids, others):
        self.aux = super().forward(x, ids, others)
        found = (getattr(others[0], name, None) for name in ("aux", "kept", "hidden")) if others else ()
        return self.aux + sum(each.mean() for each in found if each is not None)


class Cell(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.state = nn.Linear(WIDTH, WIDTH), None

    def forward(self, x):
        self.state = torch.tanh(x + self.linear(self.state))
        return self.state


class Unrolled(Block):
    """A module that has a state in the graph, from its first to its last call in a pass."""

    parts = {"inner": Cell}

    def forward(self, x, ids, others):
        self.inner.state = torch.zeros_like(x)
        for _ in range(3):
            x = self.inner(super().forward(x, ids, others))
        return x + self.inner.state


class Child(nn.Module):
    def __init__(self, above):
        super().__init__()
        self.linear, self.above = nn.Linear(WIDTH, WIDTH), [above]

    def forward(self, x):
        y = self.linear(x)
        self.above[0].losses.append(y.pow(2).mean())
        self.above[0].total = self.above[0].total + y.mean()
        return y


class Parental(Block):
    """Its modules add to what it has in attributes."""

    def __init__(self, number, others):
        super().__init__(number, others)
        self.inner, self.other = Child(self), Child(self)
        self.losses, self.total = [], 0.0

    def forward(self, x, ids, others):
        self.losses, self.total = [], 0.0
        y = super().forward(self.other(self.inner(x)), ids, others)
        return y + sum(self.losses) * self.total


class Grown(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)
        self.register_buffer("table", torch.zeros(1, WIDTH), persistent=False)
        self.register_buffer("mean", torch.zeros(WIDTH), persistent=False)

    def forward(self, x):
        y = self.linear(x)
        self.table, self.mean = x.detach().clone(), y.mean(0)
        return y


class Growing(Block):
    """Reads buffers that another module has replaced: by one of another shape, and by one in the graph."""

    parts = {"inner": Grown}

    def forward(self, x, ids, others):
        y = super().forward(self.inner(x), ids, others)
        return y + len(self.inner.table) * 0.1 + self.inner.table.mean() + self.inner.mean
