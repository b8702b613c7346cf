"""The place of each module of a divided model: a rank, several, or wherever it is called."""

from __future__ import annotations

import itertools
from typing import Mapping

from torch import nn

ANYWHERE = -1
"""The place of a module without parameters and buffers: it runs where it is called."""
SEVERAL = -2
"""The place of a module whose parts are on several ranks."""


class Places:
    """The ranks that have the modules of a model."""

    def __init__(self, model: nn.Module, owner: Mapping[str, int]) -> None:
        self.owner = owner
        tensors = (model.named_parameters(remove_duplicate=False), model.named_buffers(remove_duplicate=False))
        self.held = {name for name, _ in itertools.chain(*tensors)}
        """The names of all parameters and buffers."""
        self._places: dict[str, int] = {}
        for name, module in model.named_modules(remove_duplicate=False):
            held = {
                owner[prefix]
                for prefix, inner in module.named_modules(prefix=name)
                if any(True for _ in itertools.chain(inner.parameters(False), inner.buffers(False)))
            }
            self._places[name] = ANYWHERE if not held else held.pop() if len(held) == 1 else SEVERAL

    def of(self, name: str) -> int:
        """The rank that has everything of the module, or ANYWHERE or SEVERAL."""
        return self._places[name]

    def is_anywhere(self, name: str) -> bool:
        """Tells whether the module has no tensors, and runs wherever it is called."""
        return self._places[name] == ANYWHERE

    def runs(self, name: str) -> int:
        """The rank that runs the module's forward function, or has it if any may: attributes count there."""
        place = self._places[name]
        return place if place >= 0 else self.owner[name] if name else 0

    def of_parameter(self, name: str) -> int:
        """The rank that has a parameter or a buffer."""
        return self.owner[name.rpartition(".")[0]]
