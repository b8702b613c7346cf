"""Contexts and marks for the time when a model is made.

With ``tensor_parallel_degree`` 1, the only one that is supported, there is nothing to share out: marks for tensor
parallelism have no effect, as in AWS's library.
"""

from __future__ import annotations

import contextlib
from typing import Any, Callable, Iterator, TypeVar

import torch
from torch import nn

from . import unsupported

Class = TypeVar("Class", bound=type)


@contextlib.contextmanager
def model_creation(
    tensor_parallelism: bool = False, dtype: torch.dtype | None = None, **tp_config: Any
) -> Iterator[None]:
    """Parameters made inside are of ``dtype``."""
    before = torch.get_default_dtype()
    if dtype is not None:
        torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


@contextlib.contextmanager
def tensor_parallelism(enabled: bool = True, **tp_config: Any) -> Iterator[None]:
    """Modules made inside would be shared out over the ranks of a tensor-parallel group, which is of one rank."""
    yield


def set_tensor_parallelism(module: nn.Module, enabled: bool = True, **tp_config: Any) -> None:
    """As :func:`tensor_parallelism`, for a module that is there already."""


def tp_register(
    dist_module: type, init_hook: Any = None, forward_hook: Any = None, return_hook: Any = None
) -> Callable[[Class], Class]:
    """Says which module would take a class's place under tensor parallelism."""
    return lambda module_cls: module_cls


def tp_register_with_module(
    module_cls: type, dist_module: type, init_hook: Any = None, forward_hook: Any = None, return_hook: Any = None
) -> None:
    """As :func:`tp_register`, for a class that is there already."""


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
