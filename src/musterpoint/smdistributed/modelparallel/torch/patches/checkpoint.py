"""Activation checkpointing by the names of AWS's library, with torch's own: activations are computed again, not kept.

:func:`set_activation_checkpointing` is ``smp.set_activation_checkpointing``: it works on whichever rank has the module.
The two functions that a model's forward calls keep nothing where the module is on the calling rank; one on another rank
keeps its own activations.
"""

from __future__ import annotations

import functools
from typing import Any, Callable

from torch import nn
from torch.utils import checkpoint as torchs

from .. import log
from ..errors import SMPStepError
from ..state import state

MARK = "_smp_checkpointed"
"""The attribute of a module whose forward computes its activations again; it must be called, not taken apart."""


def checkpoint(module: nn.Module, *args: Any, preserve_rng_state: bool = True, **kwargs: Any) -> Any:
    """Calls ``module`` without keeping its activations."""
    return torchs.checkpoint(module, *args, use_reentrant=False, preserve_rng_state=preserve_rng_state, **kwargs)


def checkpoint_sequential(
    sequential: nn.Sequential, input: Any, strategy: str = "each", preserve_rng_state: bool = True,
    pack_args_as_tuple: bool = False,
) -> Any:  # fmt: skip
    """Calls the modules of ``sequential`` one after the other, each without keeping its activations.

    ``pack_args_as_tuple``: whether a module that gets a tuple gets it as its one argument.

    Raises:
        ValueError: ``strategy`` is none of each, contiguous and group_N.
    """
    _check(strategy)
    for module in sequential:
        args = input if isinstance(input, tuple) and not pack_args_as_tuple else (input,)
        input = checkpoint(module, *args, preserve_rng_state=preserve_rng_state)
    return input


def set_activation_checkpointing(
    module: nn.Module, preserve_rng_state: bool = True, pack_args_as_tuple: bool = False, strategy: str = "each"
) -> None:
    """Has ``module``, or each module in it if it is a Sequential, compute its activations again in backward passes.

    Raises:
        ValueError: ``strategy`` is none of each, contiguous and group_N.
        SMPStepError: the model has been divided over several ranks already.
    """
    _check(strategy)
    if getattr(state.model, "partitioned", False) and state.group("pp").size > 1:
        raise SMPStepError("smp.set_activation_checkpointing: call it before the first step, which divides the model")
    for each in module if isinstance(module, nn.Sequential) else (module,):
        if not getattr(each, MARK, False):
            each.forward = _again(each.forward, preserve_rng_state)
            setattr(each, MARK, True)


def _again(forward: Callable[..., Any], preserve_rng_state: bool) -> Callable[..., Any]:
    @functools.wraps(forward)
    def checkpointed(*args: Any, **kwargs: Any) -> Any:
        return torchs.checkpoint(forward, *args, use_reentrant=False, preserve_rng_state=preserve_rng_state, **kwargs)

    return checkpointed


def _check(strategy: str) -> None:
    known = strategy in ("each", "contiguous") or (strategy[:6] == "group_" and strategy[6:].isdecimal())
    if not known:
        raise ValueError(f"strategy={strategy!r}: expected each, contiguous or group_N, such as group_2")
    if strategy != "each":
        log.say(f"activation checkpointing: strategy {strategy} is done as each: less memory, the same result")
