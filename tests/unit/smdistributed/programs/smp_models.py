"""Models whose forward passes differ in what a pipeline finds hard."""

import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint


class Block(nn.Module):
    """A residual block: BatchNorm, ReLU in place, and an addition in place."""

    def __init__(self, inside, outside, stride=1):
        super().__init__()
        self.conv1 = nn.Conv2d(inside, outside, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outside)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(outside, outside, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outside)
        self.downsample = None
        if stride != 1 or inside != outside:
            self.downsample = nn.Sequential(nn.Conv2d(inside, outside, 1, stride, bias=False), nn.BatchNorm2d(outside))

    def forward(self, x):
        identity = x if self.downsample is None else self.downsample(x)
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y))
        y += identity
        return self.relu(y)


class ResNet(nn.Module):
    def __init__(self, width=4):
        super().__init__()
        self.conv1 = nn.Conv2d(3, width, 3, 1, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(2)
        self.layer1 = nn.Sequential(Block(width, width), Block(width, width))
        self.layer2 = nn.Sequential(Block(width, 2 * width, 2), Block(2 * width, 2 * width))
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(2 * width, 5)

    def forward(self, x):
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.layer2(self.layer1(x))
        return self.fc(torch.flatten(self.avgpool(x), 1))


class Gated(nn.Module):
    """Control flow that depends on the data: the root can't be traced, what is in it can."""

    def __init__(self):
        super().__init__()
        self.net = ResNet()
        self.other = nn.Linear(5, 5)

    def forward(self, x):
        y = self.net(x)
        if y.sum() > 0:
            y = self.other(y)
        return y


def flat(x):
    return x.flatten(1)[:, :16]


class Branchy(nn.Module):
    """Skips, modules that are called several times, an output that isn't used, and one part that is frozen."""

    def __init__(self):
        super().__init__()
        self.a = nn.Linear(16, 24)
        self.b = nn.Sequential(nn.Linear(24, 24), nn.Tanh(), nn.Linear(24, 24))
        self.c = nn.Linear(24, 24)
        self.unused = nn.Linear(24, 3)
        self.frozen = nn.Linear(24, 24)
        self.frozen.requires_grad_(False)
        self.d = nn.Linear(48, 5)

    def forward(self, x):
        h = torch.tanh(self.a(flat(x)))
        y = self.b(h)
        z = self.c(y) + self.c(h * y)
        self.unused(z)
        y2 = self.frozen(self.b(z))
        return self.d(torch.cat([y2 + h, self.c(y2)], 1))


class Tied(nn.Module):
    """A weight that two modules have, and one that is used by another module than the one it belongs to."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(11, 12)
        self.positions = nn.Parameter(torch.randn(4, 12))
        self.layers = nn.ModuleList([nn.TransformerEncoderLayer(12, 2, 16, 0.0, batch_first=True) for _ in range(3)])
        self.norm = nn.LayerNorm(12)
        self.borrowed = nn.Linear(12, 12)
        self.head = nn.Linear(12, 11, bias=False)
        self.head.weight = self.embed.weight
        self.pick = nn.Linear(11, 5)

    def forward(self, x):
        tokens = (flat(x)[:, :4].abs() * 5).long() % 11
        h = self.embed(tokens) + self.positions
        for layer in self.layers:
            h = layer(h)
        h = functional.linear(self.norm(h), self.borrowed.weight) + 0.1 * self.layers[2].linear1.weight.sum()
        return self.pick(self.head(h).mean(1))


class Leaf(nn.Module):
    def __init__(self, again):
        super().__init__()
        self.linear = nn.Linear(16, 16)
        self.again = again

    def body(self, x):
        return torch.tanh(self.linear(x))

    def forward(self, x):
        return checkpoint(self.body, x, use_reentrant=False) if self.again else self.body(x)


class Inner(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(16, 16)
        self.leaf = Leaf(True)

    def forward(self, x, more):
        return {"out": self.leaf(self.a(x).relu_()) + more["m"], "count": 3, "none": None}


class Middle(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Linear(16, 16)
        self.inner = Inner()

    def forward(self, x, scale=1.0, extra=None):
        y = self.w(x) * scale
        for _ in range(2):
            y = self.inner(y, {"m": y * 0.5})["out"] + y
        return {"out": y if extra is None else y + extra[0], "tag": "ok"}


class Nested(nn.Module):
    """Calls back to the rank that called, dicts, keyword arguments, checkpoints."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(16, 16)
        self.middle = Middle()
        self.tail = nn.Linear(16, 5)
        self.last = Leaf(True)

    def forward(self, x):
        h = self.first(flat(x))
        result = self.middle(h, scale=0.7, extra=[h * 2])
        assert result["tag"] == "ok"
        return self.tail(self.last(result["out"]) + h)


class Sign(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return torch.sign(x)

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 2


class Through(nn.Module):
    """A function with a backward pass of its own, no_grad in the middle, and a module that changes its argument."""

    def __init__(self):
        super().__init__()
        self.a = nn.Linear(16, 16)
        self.b = nn.Sequential(nn.ReLU(inplace=True), nn.Linear(16, 16))
        self.c = nn.Linear(16, 16)
        self.d = nn.Linear(16, 5)

    def forward(self, x):
        h = self.a(flat(x))
        h = h + Sign.apply(h)
        with torch.no_grad():
            target = self.c(h)
        y = self.b(h)
        return self.d(self.c(y) * target + h)


class Row(nn.Module):
    """Recurrent layers with tuples as results, and one layer in two places."""

    def __init__(self):
        super().__init__()
        twice = nn.Linear(16, 16)
        self.layers = nn.ModuleList([twice, nn.Linear(16, 16), twice])
        self.recurrent = nn.LSTM(16, 16, batch_first=True)

    def forward(self, x):
        for layer in self.layers:
            x = torch.tanh(layer(x))
        y, (last, _) = self.recurrent(x[:, None])
        return y[:, 0] + last[0]


class Around(nn.Module):
    """A checkpoint and torch.compile around modules of several ranks, and a buffer that the root counts in."""

    def __init__(self):
        super().__init__()
        self.checkpointed = Row()
        self.compiled = torch.compile(Row(), backend="eager")
        self.tail = nn.Linear(16, 5)
        self.register_buffer("calls", torch.zeros((), dtype=torch.float64))

    def forward(self, x):
        if self.training:
            self.calls += 1
        x = checkpoint(self.checkpointed, flat(x), use_reentrant=False)
        return self.tail(self.compiled(x))


def batch(step, rank, size=4):
    """What a rank trains with."""
    generator = torch.Generator().manual_seed(100 * step + rank)
    return torch.randn(size, 3, 8, 8, generator=generator), torch.randint(5, (size,), generator=generator)


MODELS = {model.__name__: model for model in (ResNet, Gated, Branchy, Tied, Nested, Through, Around)}
