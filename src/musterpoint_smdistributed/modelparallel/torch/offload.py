"""Activations that checkpoints keep for their backward pass, in the CPU's memory meanwhile (``offload_activations``).

Without a GPU there is nothing to move, and activations stay where they are.
"""

from __future__ import annotations

import contextlib
from typing import Iterator

from ...shared import backend
from ...shared.offload import Offload
from .state import state

_offload: Offload | None = None


@contextlib.contextmanager
def saving() -> Iterator[None]:
    """What one checkpoint keeps inside goes to the CPU, where the configuration says so and there is a GPU."""
    global _offload
    if not state.initialized or not state.cfg.offload_activations or not backend.has_nccl():
        yield
        return
    if _offload is None:
        _offload = Offload(state.cfg.activation_loading_horizon)
    with _offload.layer(), _offload.saving():
        yield
