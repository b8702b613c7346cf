"""Which pass of autograd runs in a thread: for all leaves, or for some tensors only, as ``torch.autograd.grad`` asks.

The rank that serves a call has to run its part of the graph in the same way. Torch doesn't tell a node what is asked
for, so what starts a pass is noted here.
"""

from __future__ import annotations

import contextlib
import functools
import secrets
import threading
from typing import Any, Callable, ContextManager, Iterable, Iterator, Mapping

import torch
from torch import nn

from . import absent
from .errors import SMPStepError
from .scheduler import current, sequence

_LARGE = 1e6
"""Times a gradient it reaches any bound."""


class ParameterHooks:
    """Of the parameters that this rank has."""

    def __init__(self, parameters: Mapping[str, nn.Parameter]) -> None:
        self._parameters = parameters
        self._handles: list[Any] = []
        self._parts: dict[str, tuple[int, torch.Tensor]] = {}
        self._tried: dict[str, list[Callable[..., Any]]] = {}

    def begin(self) -> None:
        """A step begins."""
        self.end()
        for name, parameter in self._parameters.items():
            if has_any(parameter) and parameter.requires_grad:
                heard = functools.partial(self._heard, name, _values(parameter._backward_hooks), follows(parameter))
                handle = parameter.register_hook(heard)  # type: ignore[no-untyped-call]
                parameter._backward_hooks.move_to_end(handle.id, last=False)  # type: ignore[union-attr]
                self._handles.append(handle)

    def end(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        self._parts.clear()

    def _heard(self, name: str, hooks: list[Callable[..., Any]], behind: bool, gradient: torch.Tensor) -> None:
        """A part of a gradient has come, perhaps all of it. Hooks are tried once, as they may keep what they get."""
        if self._tried.get(name) == hooks and not behind:
            return
        current_pass = number()
        before = self._parts.get(name)
        if before is None or before[0] != current_pass:
            self._parts[name] = current_pass, gradient.detach().clone()
        elif behind or not all(_is_additive(hooks, before[1] * by, gradient * by) for by in (1.0, _LARGE)):
            raise SMPStepError(
                f"the gradient of parameter {name} comes in parts, since several calls from other ranks of the "
                "pipeline use it, and its hook makes something else of parts than of the whole: change its gradient "
                "behind the step, or put what uses it on one rank (smp.set_partition)"
            )
        else:
            self._tried[name] = hooks


def has_any(parameter: nn.Parameter) -> bool:
    """Tells whether it has a hook of the script's, of either kind."""
    return follows(parameter) or not all(map(_is_ours, _values(parameter._backward_hooks)))


def follows(parameter: nn.Parameter) -> bool:
    """Tells whether a hook of the script's runs behind the sum of its gradient."""
    with torch._C.DisableTorchFunctionSubclass():
        return not all(map(_is_ours, _values(parameter._post_accumulate_grad_hooks)))


def refuse_hooks(parameters: Mapping[str, nn.Parameter]) -> None:
    """Raises SMPStepError where a hook would get a part of a gradient."""
    for name, each in parameters.items():
        if has_any(each):
            raise SMPStepError(
                f"parameter {name} has a hook, which would get this rank's part of the gradient only "
                "(sharded_data_parallel_degree or tensor_parallel_degree). Change gradients behind the step, or leave "
                "the degrees at 1"
            )


def _is_ours(hook: Callable[..., Any]) -> bool:
    return str(getattr(hook, "__module__", "")).startswith(str(__package__))


def _values(hooks: Any) -> list[Callable[..., Any]]:
    return list((hooks or {}).values())


@torch.no_grad()
def _is_additive(hooks: Iterable[Callable[..., Any]], one: torch.Tensor, two: torch.Tensor) -> bool:
    whole, parts = _hooked(hooks, one + two), _hooked(hooks, one) + _hooked(hooks, two)
    scale = max((one.abs() + two.abs()).max().item(), 1e-30) if one.numel() else 1.0
    return torch.allclose(whole, parts, rtol=1e-3, atol=1e-5 * scale)


def _hooked(hooks: Iterable[Callable[..., Any]], gradient: torch.Tensor) -> torch.Tensor:
    gradient = gradient.clone()
    for hook in hooks:
        changed = hook(gradient)
        gradient = gradient if changed is None else changed
    return gradient


_RUN = "_engine_run_backward"
"""What both ``torch.autograd.grad`` and ``torch.autograd.backward`` call, by this name in their module."""
_local = threading.local()
_asking: list[int] = []
"""The microbatches in which gradients of some of this rank's parameters are asked for."""
_around: list[ContextManager[Any]] = []
"""What passes run in; see :func:`within`."""


def is_second(error: RuntimeError) -> bool:
    """Whether torch says that a graph has been freed."""
    return "backward through the graph a second time" in str(error) and not isinstance(error, SMPStepError)


def second_time(what: str) -> str:
    """The error for a graph that goes through calls on other ranks and has been freed."""
    return (
        f"Trying to backward through the graph a second time, in {what}: two losses, or a loss and "
        "torch.autograd.grad(), share the call, and its graph was freed by the first one. Pass retain_graph=True "
        "there, or add the losses"
    )


def install() -> None:
    """Has passes noted from now on, once."""
    original = getattr(torch.autograd, _RUN)
    if hasattr(original, "of_one_rank"):
        return

    @functools.wraps(original)
    def run(t_outputs: Any, *args: Any, **kwargs: Any) -> Any:
        compiles = torch._guards.TracingContext.try_get() is not None  # torch.compile's own pass, of no real tensors
        task = current()
        if task is None or compiles:
            with _around[-1] if _around else contextlib.nullcontext():
                return original(t_outputs, *args, **kwargs)
        # grad_tensors, retain_graph, create_graph, inputs
        inputs = kwargs.get("inputs", args[3] if len(args) > 3 else ()) or ()
        for each in inputs:
            if absent.is_absent(each) and not absent.is_moving():
                absent.no_gradient(each)
        before, within_it = some(), number()
        _local.some = before or bool(inputs)
        _local.number = within_it or secrets.randbits(62)
        asks = any(isinstance(each, nn.Parameter) for each in inputs)
        if asks:
            _asking.append(task.microbatch)
        try:
            return original(t_outputs, *args, **kwargs)
        except RuntimeError as error:
            if not is_second(error) or not task.passed:
                raise
            raise SMPStepError(second_time(", ".join(dict.fromkeys(task.passed)))) from error
        finally:
            if not kwargs.get("retain_graph", args[1] if len(args) > 1 else False):
                task.since = max(task.since, sequence())
            _local.some, _local.number = before, within_it
            if asks:
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


def refuse_transforms(what: str, advice: str, vmap: bool = True) -> None:
    """Raises SMPStepError inside of ``torch.func``'s transforms, which go through ``what`` to other ranks; ``vmap``: of
    that as well."""
    if torch._C._get_tracing_state() is not None:
        raise SMPStepError(f"torch.jit.trace through {what}: a trace has one rank's operations only. {advice}")
    if not torch._C._are_functorch_transforms_active():
        return
    functorch = torch._C._functorch
    if any(vmap or each.key() != functorch.TransformType.Vmap for each in functorch.get_interpreter_stack()):
        raise SMPStepError(
            f"torch.func (grad, vjp, jacrev, vmap, …) through {what}: these don't go from rank to rank. {advice}"
        )


def keeps_graph() -> bool:
    """Whether the pass that runs leaves the graph for another one (``retain_graph``)."""
    return bool(torch._C._autograd._get_current_graph_task_keep_graph())
