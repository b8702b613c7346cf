"""Dropout of activations that the ranks of a tensor-parallel group share.

What all ranks have must be dropped alike on all of them, what each has a part of must not. A step begins with the same
random numbers on all ranks where they share activations (:mod:`..agreement`); :func:`apart` gives each rank others for
a while.
"""

from __future__ import annotations

import contextlib
from typing import Iterator

import torch
from torch import nn

from .. import randomness
from ..randomness import Stream
from ..state import state
from . import layouts
from .layouts import Layout

_MOST = 1 << 62


class Dropout(nn.Dropout):
    """Dropout of activations in a layout."""

    def forward(self, input: torch.Tensor, layout: Layout = "own") -> torch.Tensor:
        if not self.training or self.p == 0:
            return input
        if layout == "sequence":
            with apart():
                return super().forward(input)
        return super().forward(input)


def shares_activations() -> bool:
    """Whether ranks of a tensor-parallel group compute the same in places."""
    return layouts.degree() > 1 and (state.cfg.prescaled_batch or state.cfg.optimize == "speed")


@contextlib.contextmanager
def apart() -> Iterator[None]:
    """Inside, each rank draws random numbers of its own; all of them go on alike afterwards."""
    if not shares_activations():
        yield
        return
    device = own_device()
    seed = drawn() + state.group("tp").rank
    before = Stream.current(device)
    randomness.begin(randomness.derive(seed), device)
    try:
        yield
    finally:
        before.resume(device)


def drawn() -> int:
    """A seed out of the current stream of random numbers."""
    return int(torch.randint(_MOST, (), device="cpu"))


def own_device() -> torch.device | None:
    """This rank's GPU, where there is one."""
    return torch.device("cuda", torch.cuda.current_device()) if torch.cuda.is_available() else None
