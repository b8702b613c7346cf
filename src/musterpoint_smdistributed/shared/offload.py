"""Activations in the CPU's memory until their backward pass, and on their way back before it asks for them.

A copy goes to pinned memory on a stream of its own, as soon as a layer has kept its inputs. When a backward pass asks
for those of one layer, those of the layers before it, which it will ask for next, begin to come back.
"""

from __future__ import annotations

import contextlib
import threading
import weakref
from typing import Any, Iterator

import torch


class Kept:
    """One tensor, in the CPU's memory; ``back`` where it is on its way back or there, ``taken`` once it was."""

    def __init__(self, tensor: torch.Tensor, stream: Any, layer: Layer) -> None:
        self._device, self._stream = tensor.device, stream
        self.layer, self.taken = layer, False
        self.back: torch.Tensor | None = None
        self._ready: Any = None
        if stream is None:
            self._copy = tensor.detach().clone()
            return
        self._copy = torch.empty_like(tensor, device="cpu", pin_memory=True)
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
        back, self.back, self.taken = self.back, None, True
        assert back is not None
        if self._ready is not None:
            current = torch.cuda.current_stream(self._device)
            current.wait_event(self._ready)
            back.record_stream(current)
        return back


class Layer:
    """What one layer keeps. ``line``: the layers of its thread, so of its microbatch, in the order of their calls."""

    def __init__(self, line: list[Layer]) -> None:
        self.line = line
        self._kept: list[weakref.ref[Kept]] = []

    def add(self, kept: Kept) -> None:
        self._kept.append(weakref.ref(kept))

    @property
    def kept(self) -> list[Kept]:
        """Those that a backward pass will still ask for."""
        return [kept for kept in (each() for each in self._kept) if kept is not None and not kept.taken]


class Offload:
    """Hooks for saved tensors."""

    def __init__(self, ahead: int, kind: str = "cuda") -> None:
        self._ahead, self._kind = ahead, kind
        self._thread = threading.local()
        self._stream: Any = None

    @contextlib.contextmanager
    def saving(self) -> Iterator[None]:
        """What is saved for backward passes inside leaves the device."""
        with torch.autograd.graph.saved_tensors_hooks(self.keep, self.take):
            yield

    @contextlib.contextmanager
    def layer(self) -> Iterator[None]:
        """What is kept inside comes back together; outside of it each tensor comes by itself."""
        before = getattr(self._thread, "layer", None)
        self._thread.layer = self._new_layer()
        try:
            yield
        finally:
            self._thread.layer = before

    def keep(self, tensor: torch.Tensor) -> Any:
        """What stands for the tensor while nobody needs it."""
        if tensor.device.type != self._kind or type(tensor) is not torch.Tensor or tensor.layout != torch.strided:
            return tensor  # a parameter is there anyway
        if self._stream is None and self._kind == "cuda":
            self._stream = torch.cuda.Stream(tensor.device)  # type: ignore[no-untyped-call]
        layer = getattr(self._thread, "layer", None) or self._new_layer()
        if layer not in layer.line:
            layer.line[:] = [*(each for each in layer.line if each.kept), layer]
        kept = Kept(tensor, self._stream, layer)
        layer.add(kept)
        return kept

    def take(self, kept: Any) -> torch.Tensor:
        """The tensor again; the rest of its layer and the layers before it will be asked for next."""
        if not isinstance(kept, Kept):
            assert isinstance(kept, torch.Tensor)
            return kept
        kept.load()
        line = list(kept.layer.line)  # of the thread that kept it: another one may ask
        place = line.index(kept.layer) if kept.layer in line else -1
        for layer in reversed(line[max(place - self._ahead, 0) : place + 1]):
            for each in layer.kept:
                each.load()
        return kept.take()

    def _new_layer(self) -> Layer:
        if not hasattr(self._thread, "line"):
            self._thread.line = []
        return Layer(self._thread.line)
