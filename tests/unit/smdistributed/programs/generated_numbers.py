"""Blocks with buffers without axes, where torch wants numbers; see ``generated_blocks.py``."""

import torch
from generated_blocks import WIDTH, Block
from torch.nn import functional


class Numbers(Block):
    """``alpha`` is a real number, ``shift`` one of 1 to 3; steps may be between changes of both."""

    def __init__(self, number, others):
        super().__init__(number, others)
        self.register_buffer("alpha", torch.tensor(0.6))
        self.register_buffer("shift", torch.tensor(1 + number % 3))


def scaled(x, y, alpha):
    return functional.leaky_relu(torch.add(y, x, alpha=alpha), alpha)


def placed(y, alpha, shift):
    y = y.roll(shift, 1)
    found = y.select(1, shift) + y.topk(shift, 1).values.sum(1) + y.narrow(1, 0, shift).sum(1)
    return y + 0.1 * found[:, None] + 0.1 * torch.full((WIDTH,), alpha) + 0.01 * torch.arange(shift).sum()


class Scalars(Numbers):
    def forward(self, x, ids, others):
        return scaled(x, super().forward(x, ids, others), self.alpha) * self.alpha


class Indices(Numbers):
    def forward(self, x, ids, others):
        return placed(super().forward(x, ids, others), self.alpha, self.shift)


class Numbering(Numbers):
    """Computes with the numbers of another block, if that has some."""

    def forward(self, x, ids, others):
        its = others[0] if others and isinstance(others[0], Numbers) else self
        y = scaled(x, super().forward(x, ids, others), its.alpha) * its.alpha.clone()
        return placed(y, its.alpha, its.shift)


class Tallying(Numbers):
    """Counts and follows a mean in training, and computes with both."""

    def forward(self, x, ids, others):
        y = super().forward(x, ids, others)
        if self.training:
            self.shift.copy_(self.shift % 3 + 1)
            self.alpha.mul_(0.9).add_(y.detach().mean(), alpha=0.1)
        return placed(scaled(x, y, self.alpha), self.alpha, self.shift)


class Late(Block):
    """Uses a parameter and a module that come later, once they are there."""

    def forward(self, x, ids, others):
        y = super().forward(x, ids, others)
        gain, added = getattr(self, "gain", None), getattr(self, "added", None)
        y = y if gain is None else y * gain
        return y if added is None else y + added(y)
