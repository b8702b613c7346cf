"""Activation checkpointing by the names of AWS's library, with torch's own: activations are computed again, not kept.

All of it works on whichever rank has a module: what is kept, and what is computed again, stays there.
"""

from __future__ import annotations

import contextlib
import functools
from typing import Any, Callable, Iterator, Sequence

from torch import nn
from torch.utils import checkpoint as torchs

from ....shared import backend
from ....shared.offload import Offload
from ..errors import SMPStepError
from ..state import state

MARK = "_smp_checkpointed"
"""The attribute of a module whose forward computes its activations again; it must be called, not taken apart."""
_TOGETHER = "_smp_together"
"""The argument that says how many modules of a Sequential run together from this one on; 0: by itself, and kept."""


def checkpoint(module: nn.Module, *args: Any, preserve_rng_state: bool = True, **kwargs: Any) -> Any:
    """Calls ``module`` without keeping its activations."""
    return _call((module,), args, kwargs, preserve_rng_state)


def checkpoint_sequential(
    sequential: nn.Sequential,
    input: Any,
    strategy: str = "each",
    preserve_rng_state: bool = True,
    pack_args_as_tuple: bool = False,
) -> Any:
    """Calls the modules of ``sequential`` one after the other, and keeps the activations between groups of them only.

    Args:
        strategy: which modules are a group: ``each`` by itself; ``contiguous``, neighbours on one partition;
            ``group_N``, up to N neighbours on one partition.
        pack_args_as_tuple: a module that gets a tuple gets it as its one argument.

    Raises:
        ValueError: ``strategy`` is none of these.
    """
    for group in _groups(list(sequential), _size(strategy)):
        args = input if isinstance(input, tuple) and not pack_args_as_tuple else (input,)
        input = _call(group, args, {}, preserve_rng_state)
    return input


def set_activation_checkpointing(
    module: nn.Module, preserve_rng_state: bool = True, pack_args_as_tuple: bool = False, strategy: str = "each"
) -> None:
    """Has ``module``, or the modules in it if it is a Sequential, compute activations again in backward passes.

    Modules of a Sequential that somebody calls by themselves do so each; ``strategy`` is for calls of the Sequential,
    as for :func:`checkpoint_sequential`.

    Raises:
        ValueError: ``strategy`` is none of each, contiguous and group_N.
        SMPStepError: the model has been divided over several ranks already.
    """
    size = _size(strategy)
    if getattr(state.model, "partitioned", False) and state.group("pp").size > 1:
        raise SMPStepError("smp.set_activation_checkpointing: call it before the first step, which divides the model")
    children = list(module) if isinstance(module, nn.Sequential) else [module]
    for place, each in enumerate(children):
        if not getattr(each, MARK, False):
            each.forward = _again(each.forward, children[place + 1 :], preserve_rng_state)
            setattr(each, MARK, True)
    if isinstance(module, nn.Sequential) and size != 1:
        vars(module)["forward"] = functools.partial(_in_groups, children, size)


def _in_groups(children: Sequence[nn.Module], size: int | None, input: Any) -> Any:
    """A Sequential's forward: the first module of each group is told how many there are."""
    for group in _groups(children, size):
        input = group[0](input) if len(group) == 1 else group[0](input, **{_TOGETHER: len(group)})
    return input


def _again(forward: Callable[..., Any], following: Sequence[nn.Module], preserve_rng_state: bool) -> Callable[..., Any]:
    @functools.wraps(forward)
    def checkpointed(*args: Any, **kwargs: Any) -> Any:
        together = kwargs.pop(_TOGETHER, 1)
        if together == 0:
            return forward(*args, **kwargs)

        def group(*args: Any, **kwargs: Any) -> Any:
            value = forward(*args, **kwargs)
            for each in following[: together - 1]:
                value = each(value, **{_TOGETHER: 0})
            return value

        return kept_at_its_ends(group, args, kwargs, preserve_rng_state)

    return checkpointed


_offload: Offload | None = None


@contextlib.contextmanager
def saving() -> Iterator[None]:
    """What one checkpoint keeps inside goes to the CPU (``offload_activations``), where there is a GPU."""
    global _offload
    if not state.initialized or not state.cfg.offload_activations or not backend.has_nccl():
        yield
        return
    if _offload is None:
        _offload = Offload(state.cfg.activation_loading_horizon)
    with _offload.layer(), _offload.saving():
        yield


def kept_at_its_ends(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], preserve_rng_state: bool
) -> Any:
    """Calls it with torch's checkpoint; its arguments are kept where the configuration says."""
    with saving():
        return torchs.checkpoint(function, *args, use_reentrant=False, preserve_rng_state=preserve_rng_state, **kwargs)


def _call(group: Sequence[nn.Module], args: tuple[Any, ...], kwargs: dict[str, Any], preserve_rng_state: bool) -> Any:
    """Calls modules that follow on each other, on their rank."""
    if state.model is not None and state.model.is_away(group[0]):
        return state.model.call_again(group, args, kwargs, preserve_rng_state)
    return kept_at_its_ends(functools.partial(one_after_the_other, group), args, kwargs, preserve_rng_state)


def one_after_the_other(group: Sequence[Callable[..., Any]], *args: Any, **kwargs: Any) -> Any:
    """What the last one makes of what the ones before it make of the arguments."""
    value = group[0](*args, **kwargs)
    for each in group[1:]:
        value = each(value)
    return value


def _groups(modules: Sequence[nn.Module], size: int | None) -> Iterator[list[nn.Module]]:
    """Neighbours on one rank, at most ``size`` of them; modules without a place of their own go with the one before."""
    group: list[nn.Module] = []
    place: int | None = None
    for module in modules:
        its = state.model.place_of(module) if state.model is not None else None
        alone = (place is not None and place < 0) or (its is not None and (its < 0 or its != place))
        if group and (alone or len(group) == size):
            yield group
            group = []
        if not group:
            place = its
        group.append(module)
    if group:
        yield group


def _size(strategy: str) -> int | None:
    """How many modules are a group at most; None: any number."""
    if strategy == "each":
        return 1
    if strategy == "contiguous":
        return None
    if strategy[:6] == "group_" and strategy[6:].isdecimal() and int(strategy[6:]):
        return int(strategy[6:])
    raise ValueError(f"strategy={strategy!r}: expected each, contiguous or group_N, such as group_2")
