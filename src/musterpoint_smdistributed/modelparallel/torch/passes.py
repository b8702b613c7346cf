"""Which pass of autograd runs in a thread: for all leaves, or for some tensors only, as ``torch.autograd.grad`` asks.

The rank that serves a call has to run its part of the graph in the same way. Torch doesn't tell a node what is asked
for, so what starts a pass is noted here.
"""

from __future__ import annotations

import contextlib
import functools
import secrets
import threading
from typing import Any, ContextManager, Iterator

import torch

from . import absent
from .errors import SMPStepError
from .scheduler import current

_RUN = "_engine_run_backward"
"""What both ``torch.autograd.grad`` and ``torch.autograd.backward`` call, by this name in their module."""
_local = threading.local()
_asking: list[int] = []
"""The microbatches in which gradients of some of this rank's parameters are asked for."""
_around: list[ContextManager[Any]] = []
"""What passes run in; see :func:`within`."""


def install() -> None:
    """Has passes noted from now on, once."""
    original = getattr(torch.autograd, _RUN)
    if hasattr(original, "of_one_rank"):
        return

    @functools.wraps(original)
    def run(t_outputs: Any, *args: Any, **kwargs: Any) -> Any:
        if current() is None:
            with _around[-1] if _around else contextlib.nullcontext():
                return original(t_outputs, *args, **kwargs)
        # grad_tensors, retain_graph, create_graph, inputs
        inputs = kwargs.get("inputs", args[3] if len(args) > 3 else ())
        for each in inputs or ():
            if absent.is_absent(each) and not absent.is_moving():
                absent.no_gradient(each)
        before, within_it, task = some(), number(), current()
        _local.some = before or bool(inputs)
        _local.number = within_it or secrets.randbits(62)
        asks = task is not None and any(isinstance(each, torch.nn.Parameter) for each in inputs or ())
        if asks and task is not None:
            _asking.append(task.microbatch)
        try:
            return original(t_outputs, *args, **kwargs)
        finally:
            _local.some, _local.number = before, within_it
            if asks and task is not None:
                _asking.remove(task.microbatch)

    vars(run)["of_one_rank"] = original
    setattr(torch.autograd, _RUN, run)


@contextlib.contextmanager
def within(mode: ContextManager[Any]) -> Iterator[None]:
    """Passes of steps outside of pipelines run in ``mode``: torch leaves its modes before one begins, and what a
    checkpoint computes again has to be computed as before."""
    install()
    _around.append(mode)
    try:
        yield
    finally:
        _around.pop()


def some() -> bool:
    """Whether gradients of some tensors are asked for, and parameters get none."""
    return getattr(_local, "some", False)


def number() -> int:
    """Of the pass that runs in this thread, the same on all ranks that have a part in it; 0: none."""
    return getattr(_local, "number", 0)


@contextlib.contextmanager
def part_of(number_of_pass: int) -> Iterator[None]:
    """What runs inside is a part of another rank's pass."""
    before, _local.number = number(), number_of_pass
    try:
        yield
    finally:
        _local.number = before


def check_served() -> None:
    """Raises SMPStepError where a call back to this rank has a part in the gradients that this rank asks for."""
    task = current()
    if task is not None and task.microbatch in _asking:
        raise SMPStepError(
            "torch.autograd is asked for gradients of parameters that modules on another rank use as well, by calls "
            "back to this one: call model.backward(), which gives them in .grad, or put these modules on one rank "
            "(smp.set_partition)"
        )


def check_transforms(what: str) -> None:
    """Raises SMPStepError inside of ``torch.func``'s transforms, where ``what`` is on other ranks."""
    refuse_transforms(
        f"{what}, which is on another rank of the pipeline",
        "Use torch.autograd.grad or model.backward(), put what is transformed on one rank (smp.set_partition), or set "
        "partitions to 1",
    )


def refuse_transforms(what: str, advice: str) -> None:
    """Raises SMPStepError inside of ``torch.func``'s transforms, which go through ``what`` to other ranks."""
    if torch._C._are_functorch_transforms_active():
        raise SMPStepError(
            f"torch.func (grad, vjp, jacrev, vmap, …) through {what}: these don't go from rank to rank. {advice}"
        )


def keeps_graph() -> bool:
    """Whether the pass that runs leaves the graph for another one (``retain_graph``)."""
    keeps: bool = torch._C._autograd._get_current_graph_task_keep_graph()
    return keeps
