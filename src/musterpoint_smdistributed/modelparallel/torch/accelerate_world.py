"""accelerate among the ranks of this job: its processes are the ones that have data of their own.

Transformers' Trainer lets accelerate share out its data, gather what an evaluation gives and count samples. All ranks
of a pipeline have one batch, and with ``prescaled_batch`` those that share tensors as well, so accelerate has to know
the data-parallel ranks for its world. Names: accelerate's ``state.py`` and ``utils/operations.py``.
"""

from __future__ import annotations

import functools
import importlib
import sys
from typing import Any, Mapping

import torch
import torch.distributed as dist

from . import log
from .state import Group, state
from .state import init as initialize


def init(config: Mapping[str, Any] | None = None) -> None:
    """``smp.init``: as :func:`.state.init`; and tells accelerate, where that is loaded.

    The Trainer calls it too, after scripts may have, so that accelerate is there at one of the calls.
    """
    initialize(config)
    _follow()


def _follow() -> None:
    if "accelerate" not in sys.modules or not state.initialized or state.group("world").size == 1:
        return
    try:
        known = importlib.import_module("accelerate.state").PartialState
        operations = importlib.import_module("accelerate.utils.operations")
    except (ImportError, AttributeError) as error:  # of its own
        log.warn(f"accelerate: {error}: it counts every rank as one with data of its own")
        return
    original = known.__init__
    if hasattr(original, "of_the_class"):
        return

    @functools.wraps(original)
    def counting(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        _count(self)

    vars(counting)["of_the_class"] = original
    known.__init__ = counting
    if known._shared_state:
        known()
    vars(operations)["torch"] = _Torch(data_ranks())


def data_ranks() -> Group:
    """The ranks that have data of their own, of which this one is one."""
    return state.group("rdp" if state.cfg.prescaled_batch else "dp")


def _count(known: Any) -> None:
    """Sets what accelerate says of its world."""
    group = data_ranks()
    kinds = type(known.distributed_type)
    known.num_processes, known.process_index = group.size, group.rank
    if group.size == 1:
        known.distributed_type = kinds.NO
    elif known.distributed_type == kinds.NO:
        known.distributed_type = kinds.MULTI_CPU if torch.device(known.device).type == "cpu" else kinds.MULTI_GPU


class _Torch:
    """torch, whose collective operations are those of a group."""

    def __init__(self, group: Group) -> None:
        self.distributed = _Collectives(group)

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)


class _Collectives:
    """torch.distributed for the ranks of a group, which are numbered as in that."""

    def __init__(self, group: Group) -> None:
        self._group = group

    def all_gather_into_tensor(self, output: torch.Tensor, tensor: torch.Tensor) -> None:
        """accelerate's output is flat, which gloo refuses."""
        parts = list(output.view(self._group.size, *tensor.shape).unbind(0))
        dist.all_gather(parts, tensor, group=self._group.process_group)

    def __getattr__(self, name: str) -> Any:
        found = getattr(dist, name)
        if name not in ("all_gather", "all_gather_object", "all_reduce", "broadcast", "broadcast_object_list"):
            return found
        own = self._group

        @functools.wraps(found)
        def in_group(*args: Any, src: int | None = None, **kwargs: Any) -> Any:
            from_rank = {} if src is None else {"src": own.ranks[src]}
            return found(*args, **from_rank, **{"group": own.process_group, **kwargs})

        return in_group
