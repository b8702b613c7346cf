"""Contexts for the time when a model is made."""

from __future__ import annotations

import contextlib
from typing import Any, Iterator

import torch

from . import delayed, tensor_parallel
from .state import state


@contextlib.contextmanager
def model_creation(
    tensor_parallelism: bool = False,
    dtype: torch.dtype | None = None,
    delayed_parameter_initialization: bool | None = None,
    **tp_config: Any,
) -> Iterator[None]:
    """Parameters made inside are of ``dtype``; ``tensor_parallelism`` and ``tp_config`` as in that context.

    ``delayed_parameter_initialization``: as in :func:`delay_param_initialization`; None: as the configuration says.
    """
    delays = delayed_parameter_initialization
    if delays is None:
        delays = state.initialized and state.cfg.delayed_parameter_initialization
    before = torch.get_default_dtype()
    if dtype is not None:
        torch.set_default_dtype(dtype)
    try:
        with delayed.initialization(delays), tensor_parallel.tensor_parallelism(tensor_parallelism, **tp_config):
            yield
    finally:
        torch.set_default_dtype(before)


@contextlib.contextmanager
def delay_param_initialization(enabled: bool = True) -> Iterator[None]:
    """Leaves parameters that are made inside without memory until the model is divided; see :mod:`.delayed`."""
    with delayed.initialization(enabled):
        yield


delayed_parameter_initialization = delay_param_initialization
