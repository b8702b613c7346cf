"""``sm_activation_offloading``: torch's ``offload_wrapper`` fetches activations before backward passes ask for them."""

from __future__ import annotations

import functools
import importlib
from typing import Any, Callable

from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import CheckpointWrapper, OffloadWrapper

_DONE = "of_torch_alone"


def install(horizon: int, kind: str = "cuda") -> None:
    """Changes torch's two wrappers, once.

    ``horizon``: of how many checkpointed layers the inputs may be on the device at the same time; of tensors that no
    ``checkpoint_wrapper`` is around, each counts by itself. ``kind``: the type of device that activations leave.
    """
    checkpointed: Callable[..., Any] = CheckpointWrapper.forward
    offloaded: Callable[..., Any] = OffloadWrapper.forward
    if hasattr(offloaded, _DONE):
        return
    offload = importlib.import_module("smdistributed.shared.offload").Offload(horizon - 1, kind)

    @functools.wraps(checkpointed)
    def as_a_layer(self: Any, *args: Any, **kwargs: Any) -> Any:
        with offload.layer():
            return checkpointed(self, *args, **kwargs)

    @functools.wraps(offloaded)
    def fetched_ahead(self: Any, *args: Any, **kwargs: Any) -> Any:
        with offload.saving():
            return self._checkpoint_wrapped_module(*args, **kwargs)

    vars(fetched_ahead)[_DONE] = offloaded
    CheckpointWrapper.forward, OffloadWrapper.forward = as_a_layer, fetched_ahead  # type: ignore[method-assign]
