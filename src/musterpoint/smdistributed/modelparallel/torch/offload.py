"""Activations that checkpoints keep for their backward pass, in the CPU's memory meanwhile (``offload_activations``).

A copy goes to pinned memory on a stream of its own, as soon as it is kept. When a backward pass asks for one, those
that it will ask for next, as many as ``activation_loading_horizon`` says, begin to come back. Without a GPU there is
nothing to move, and activations stay where they are.
"""

from __future__ import annotations

import contextlib
import threading
import weakref
from typing import Any

import torch

from ...shared import backend
from .state import state


class Kept:
    """One tensor, in the CPU's memory; ``back`` where it is on its way back or there."""

    def __init__(self, tensor: torch.Tensor, stream: Any) -> None:
        self._device, self._stream = tensor.device, stream
        self.back: torch.Tensor | None = None
        self._ready: Any = None
        if stream is None:
            self._copy = tensor.clone()
            return
        self._copy = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
        stream.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(stream):
            self._copy.copy_(tensor, non_blocking=True)
        tensor.record_stream(stream)  # its memory may be used again only after that

    def load(self) -> None:
        """Begins to bring it back."""
        if self.back is not None:
            return
        if self._stream is None:
            self.back = self._copy
            return
        with torch.cuda.stream(self._stream):
            self.back = self._copy.to(self._device, non_blocking=True)
            self._ready = self._stream.record_event()

    def take(self) -> torch.Tensor:
        """The tensor, for the current stream."""
        self.load()
        back, self.back = self.back, None
        assert back is not None
        if self._ready is not None:
            current = torch.cuda.current_stream(self._device)
            current.wait_event(self._ready)
            back.record_stream(current)
        return back


class Offload:
    """Hooks for saved tensors. Each thread, so each microbatch, has a line of what it keeps.

    Args:
        horizon: how many are loaded ahead of the one that is asked for.
        kind: the type of device that tensors leave.
    """

    def __init__(self, horizon: int, kind: str = "cuda") -> None:
        self._horizon, self._kind = horizon, kind
        self._lines = threading.local()
        self._stream: Any = None

    def keep(self, tensor: torch.Tensor) -> Any:
        """What stands for the tensor while nobody needs it."""
        if tensor.device.type != self._kind or isinstance(tensor, torch.nn.Parameter):
            return tensor
        if self._stream is None and self._kind == "cuda":
            self._stream = torch.cuda.Stream(tensor.device)  # type: ignore[no-untyped-call]
        kept = Kept(tensor, self._stream)
        line = self._line()
        line[:] = [each for each in line if each() is not None]
        line.append(weakref.ref(kept))
        return kept

    def take(self, kept: Any) -> torch.Tensor:
        """The tensor again; those that were kept before it will be asked for next."""
        if not isinstance(kept, Kept):
            assert isinstance(kept, torch.Tensor)
            return kept
        line = [each() for each in self._line()]
        place = line.index(kept) if kept in line else 0
        for earlier in line[max(place - self._horizon, 0) : place]:
            if earlier is not None:
                earlier.load()
        return kept.take()

    def _line(self) -> list[weakref.ref[Kept]]:
        if not hasattr(self._lines, "line"):
            self._lines.line = []
        line: list[weakref.ref[Kept]] = self._lines.line
        return line


_offload: Offload | None = None


def saving() -> contextlib.AbstractContextManager[object]:
    """What is saved for backward passes inside goes to the CPU, where the configuration says so and there is a GPU."""
    global _offload
    if not state.initialized or not state.cfg.offload_activations or not backend.has_nccl():
        return contextlib.nullcontext()
    if _offload is None:
        _offload = Offload(state.cfg.activation_loading_horizon)
    return torch.autograd.graph.saved_tensors_hooks(_offload.keep, _offload.take)
