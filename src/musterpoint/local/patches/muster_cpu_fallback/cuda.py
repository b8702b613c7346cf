"""Replaces ``torch.cuda`` where there is no CUDA: as many devices as slots, all of them the CPU."""

from __future__ import annotations

import contextlib
import os
import time
from types import SimpleNamespace
from typing import Any, Callable

NAME = "CPU in place of CUDA (musterpoint --cpu-fallback)"
MEMORY = 16 << 30


def _local_world_size() -> int:
    text = os.environ.get("LOCAL_WORLD_SIZE", "")
    return int(text) if text.isdecimal() and int(text) else 1


def check_index(index: int) -> None:
    """Raises CUDA's error for a device that a host with as many devices as slots hasn't."""
    if index >= _local_world_size():
        raise RuntimeError(f"CUDA error: invalid device ordinal {index}: this host has {_local_world_size()} slots")


class Stream:
    """A CUDA stream on which all work is always done."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.device_index = 0

    def synchronize(self) -> None:
        pass

    wait_stream = wait_event = lambda self, other: None

    def query(self) -> bool:
        return True

    def is_capturing(self) -> bool:
        return False

    def record_event(self, event: Any = None) -> Any:
        event = event or Event()
        event.record()
        return event

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *exception: Any) -> None:
        pass


class Event:
    """A CUDA event; the time between two events is measured by the clock."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.at = 0.0

    def record(self, stream: Any = None) -> None:
        self.at = time.perf_counter()

    def wait(self, stream: Any = None) -> None:
        pass

    def synchronize(self) -> None:
        pass

    def query(self) -> bool:
        return True

    def elapsed_time(self, end: Event) -> float:
        """Milliseconds between the two events."""
        return (end.at - self.at) * 1000


class _Current:
    """The device that ``torch.cuda.set_device`` chose; only ``current_device`` reads it."""

    def __init__(self, torch: Any) -> None:
        self._device = torch.device
        self.index = 0

    def set(self, device: Any) -> None:
        if isinstance(device, str) and not device.isdecimal():
            device = self._device(device)
        index = device.index or 0 if isinstance(device, self._device) else int(device)
        check_index(index)
        if index >= 0:
            self.index = index


class _OnDevice(contextlib.nullcontext):  # type: ignore[type-arg]
    """``with torch.cuda.device(index)``."""

    def __init__(self, device: Any = None) -> None:
        super().__init__()


def patch(torch: Any) -> None:
    before = dict(vars(torch.cuda))
    current = _Current(torch)
    stream = Stream()
    properties = SimpleNamespace(
        name=NAME, total_memory=MEMORY, major=7, minor=0, multi_processor_count=1, is_integrated=False, warp_size=32
    )
    constants: dict[str, Any] = {
        "is_available": True,
        "is_initialized": True,
        "is_bf16_supported": True,
        "is_current_stream_capturing": False,
        "get_device_name": NAME,
        "get_device_capability": (7, 0),
        "get_device_properties": properties,
        "get_arch_list": [],
        "memory_summary": "",
        "mem_get_info": (MEMORY, MEMORY),
        "utilization": 0,
        "memory_usage": 0,
        "can_device_access_peer": False,
        "current_stream": stream,
        "default_stream": stream,
        **dict.fromkeys(
            (
                "memory_allocated",
                "max_memory_allocated",
                "memory_reserved",
                "max_memory_reserved",
                "memory_cached",
                "max_memory_cached",
            ),
            0,
        ),
        **dict.fromkeys(
            (
                "init",
                "set_stream",
                "synchronize",
                "empty_cache",
                "ipc_collect",
                "manual_seed",
                "manual_seed_all",
                "seed",
                "seed_all",
                "reset_peak_memory_stats",
                "reset_max_memory_allocated",
                "reset_max_memory_cached",
                "reset_accumulated_memory_stats",
                "set_per_process_memory_fraction",
                "set_rng_state",
                "set_rng_state_all",
            )
        ),
    }
    for name, value in constants.items():
        setattr(torch.cuda, name, _always(value))
    torch.cuda.device_count = _local_world_size
    torch.cuda.current_device = lambda: current.index
    torch.cuda.set_device = current.set
    torch.cuda.device = torch.cuda.device_of = _OnDevice
    torch.cuda.memory_stats = lambda *args, **kwargs: {}
    torch.cuda.initial_seed = torch.initial_seed
    torch.cuda.get_rng_state = lambda *args, **kwargs: torch.get_rng_state()
    torch.cuda.get_rng_state_all = lambda: [torch.get_rng_state()]
    torch.cuda.Stream, torch.cuda.Event = Stream, Event
    torch.cuda.stream = lambda stream=None: contextlib.nullcontext(stream)
    for name in ("range_push", "range_pop", "range_start", "range_end", "mark"):
        setattr(torch.cuda.nvtx, name, _always(None))
    torch.cuda.nvtx.range = lambda *args, **kwargs: contextlib.nullcontext()
    if hasattr(torch, "accelerator"):
        _patch_accelerator(torch, current, stream)
    for name in dir(torch.cuda):
        if name.endswith("Tensor") and hasattr(torch, name):
            setattr(torch.cuda, name, getattr(torch, name))
    for module in (torch.cuda.random, torch.cuda.memory):  # under whose names some call the same functions
        for name, value in vars(torch.cuda).items():
            if name in before and getattr(module, name, None) is before[name]:
                setattr(module, name, value)


def _patch_accelerator(torch: Any, current: _Current, stream: Stream) -> None:
    """``torch.accelerator``, by which scripts ask for CUDA without naming it; some functions only since torch 2.9."""
    accelerator, cuda = torch.accelerator, torch.cuda
    functions: dict[str, Any] = {
        "is_available": _always(True),
        "device_count": _local_world_size,
        "current_accelerator": lambda *args, **kwargs: torch.device("cuda"),
        "current_device_index": lambda: current.index,
        "current_device_idx": lambda: current.index,
        "set_device_index": current.set,
        "set_device_idx": current.set,
        "device_index": _OnDevice,
        "current_stream": _always(stream),
        "get_memory_info": cuda.mem_get_info,
        "get_device_capability": _always({"supported_dtypes": set()}),
        "memory_stats": lambda *args, **kwargs: {},
        **{
            name: getattr(cuda, name)
            for name in (
                "set_stream",
                "synchronize",
                "empty_cache",
                "memory_allocated",
                "max_memory_allocated",
                "memory_reserved",
                "max_memory_reserved",
                "reset_peak_memory_stats",
                "reset_accumulated_memory_stats",
            )
        },
    }
    for name, function in functions.items():
        for module in (accelerator, getattr(accelerator, "memory", accelerator)):
            if hasattr(module, name):
                setattr(module, name, function)


def _always(value: Any) -> Callable[..., Any]:
    return lambda *args, **kwargs: value
