"""Contexts for the time when a model is made."""

from __future__ import annotations

import contextlib
from typing import Any, Iterator

import torch

from . import tensor_parallel, unsupported


@contextlib.contextmanager
def model_creation(
    tensor_parallelism: bool = False, dtype: torch.dtype | None = None, **tp_config: Any
) -> Iterator[None]:
    """Parameters made inside are of ``dtype``; ``tensor_parallelism`` and ``tp_config`` as in that context."""
    before = torch.get_default_dtype()
    if dtype is not None:
        torch.set_default_dtype(dtype)
    try:
        with tensor_parallel.tensor_parallelism(tensor_parallelism, **tp_config):
            yield
    finally:
        torch.set_default_dtype(before)


@contextlib.contextmanager
def delay_param_initialization(enabled: bool = True) -> Iterator[None]:
    """Would leave parameters without memory until the model is divided.

    Raises:
        SMPUnsupportedError: ``enabled``.
    """
    if enabled:
        raise unsupported.refuse("smp.delay_param_initialization", "leave it out: each rank makes the model at first")
    yield


delayed_parameter_initialization = delay_param_initialization
