"""What torch keeps per thread and a forward pass depends on: it goes along to other threads and other ranks."""

from __future__ import annotations

import contextlib
import functools
import pickle
from typing import Any, Callable, Iterator, NamedTuple

import torch


class Autocast(NamedTuple):
    """``torch.autocast`` for one type of device."""

    device: str
    enabled: bool
    dtype: torch.dtype


class Context(NamedTuple):
    """Whether gradients are recorded, and in which types is computed.

    Sources: torch's documentation of "locally disabling gradient computation" and of autocast, both thread-local.
    """

    grad: bool
    inference: bool
    autocast: tuple[Autocast, ...]
    cache: bool

    @classmethod
    def current(cls) -> Context:
        return cls(
            torch.is_grad_enabled(),
            torch.is_inference_mode_enabled(),
            tuple(
                Autocast(device, torch.is_autocast_enabled(device), torch.get_autocast_dtype(device))
                for device in ("cpu", "cuda")
            ),
            torch.is_autocast_cache_enabled(),
        )

    def __reduce__(self) -> tuple[Callable[[bytes], Context], tuple[bytes]]:
        """Written once and not for each message: there are few of them."""
        return _read, (_written(self),)

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        """Computes under this context in the calling thread."""
        casts = any(each.enabled or torch.is_autocast_enabled(each.device) for each in self.autocast)
        if not casts and self.inference == torch.is_inference_mode_enabled():
            with torch.set_grad_enabled(self.grad):
                yield
            return
        with contextlib.ExitStack() as stack:
            if self.inference != torch.is_inference_mode_enabled():
                stack.enter_context(torch.inference_mode(self.inference))
            stack.enter_context(torch.set_grad_enabled(self.grad))
            for each in self.autocast:
                if each.enabled or torch.is_autocast_enabled(each.device):
                    stack.enter_context(
                        torch.autocast(each.device, enabled=each.enabled, dtype=each.dtype, cache_enabled=self.cache)
                    )
            yield


@functools.lru_cache(maxsize=64)
def _written(context: Context) -> bytes:
    parts: tuple[Any, ...] = (context.grad, context.inference, [tuple(each) for each in context.autocast])
    return pickle.dumps((*parts, context.cache), pickle.HIGHEST_PROTOCOL)


@functools.lru_cache(maxsize=64)
def _read(data: bytes) -> Context:
    grad, inference, autocast, cache = pickle.loads(data)
    return Context(grad, inference, tuple(Autocast(*each) for each in autocast), cache)


def default_device() -> contextlib.AbstractContextManager[object]:
    """``torch.set_default_device`` of the calling thread, for another thread to enter."""
    device = torch.get_default_device()
    return contextlib.nullcontext() if device.type == "cpu" else device
