"""The names by which AWS's published scripts reach shards: ``parameter.ds_tensor``, and the optimizer's flat groups.

They log norms of parameters with these. Here a shard is a DTensor, and nothing is copied into flat buffers; the names
lead to the same values.
"""

from __future__ import annotations

from typing import Any, Iterable, Sequence

import torch

from .errors import SMPStepError
from .sharding import here


def note(parameters: Iterable[torch.Tensor]) -> None:
    """Gives each parameter ``ds_tensor``, what this rank has of it, which knows its ``ds_numel``."""
    for each in parameters:
        own: Any = here(each.detach())
        own.ds_numel = own.numel()
        each.ds_tensor = own  # type: ignore[attr-defined]


class FlatGroup:
    """A group of an optimizer as one row of elements: what this rank has of its parameters, one after the other."""

    def __init__(self, parameters: Sequence[Any]) -> None:
        self._places: dict[tuple[int, int], Any] = {}
        start = 0
        for each in parameters:
            size = each.ds_tensor.numel()
            self._places[start, size] = each.ds_tensor
            start += size
        self._size = start

    def numel(self) -> int:
        return self._size

    def narrow(self, dim: int, start: int, length: int) -> torch.Tensor:
        """The elements of one parameter, as they are now and later."""
        found = self._places.get((start, length))
        if dim or found is None:
            raise SMPStepError(
                f"optimizer.fp32_partitioned_groups_flat: narrow({dim}, {start}, {length}) isn't one parameter's "
                "place, and shards aren't in one row here: use parameter.ds_tensor"
            )
        return torch.Tensor.flatten(found)
