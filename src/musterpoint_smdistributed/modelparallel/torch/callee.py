"""The called side of calls between ranks: runs modules that this rank has, and later their backward passes."""

from __future__ import annotations

from typing import Any, Callable, Sequence

import torch
from torch.autograd.graph import GradientEdge, get_gradient_edge

from . import aliases, part_reads, passes, randomness
from .messages import Backward, CallId, Forward, Gradients, Result
from .nodes import Entry, Received, Saved
from .packing import Names, pack, unpack


class Callee:
    """Runs links of calls, each under its own autograd graph, and sends on what comes out.

    Args:
        names: the model's, by which its parameters and modules travel.
        function: what a link runs, by its target.
        send: sends a message and tensors to a rank of the pipeline.
        device: this rank's GPU.
    """

    def __init__(
        self,
        names: Names,
        function: Callable[[tuple[Any, ...]], Callable[..., Any]],
        send: Callable[[int, Any, Sequence[torch.Tensor]], None],
        device: torch.device | None,
    ) -> None:
        self._names, self._function, self._send, self._device = names, function, send, device
        self._anchor = torch.zeros((), requires_grad=True)
        self._saved: dict[tuple[CallId, int], Saved] = {}

    def forward(self, request: Forward, tensors: Sequence[torch.Tensor]) -> None:
        """Runs a link; its result goes to the next one's rank, or to the caller."""
        call, position = request.call, request.position
        recorded = request.context.grad
        randomness.begin(request.seed + position, self._device)
        with request.context.entered():
            arguments = [Received(tensor) if need else None for tensor, need in zip(tensors, request.need_gradient)]
            entered = [
                tensor if received is None else Entry.apply(self._anchor, received)  # type: ignore[no-untyped-call]
                for tensor, received in zip(tensors, arguments)
            ]
            entries = [get_gradient_edge(each) if received else None for each, received in zip(entered, arguments)]
            versions = [_version(tensor) for tensor in entered]
            args, kwargs = unpack(request.arguments, entered, self._names)
            with part_reads.refused():
                value = self._function(call.links[position].target)(*args, **kwargs)
        last = position + 1 == len(call.links)
        value = value if last else ((value,), {})
        packed = pack(value, self._names, f"the result of {call.links[position].target}", results=last)
        views = aliases.found(packed.tensors, [] if position else entered) if last else ()
        changed: tuple[int, ...] = ()
        if position == 0 and last:
            changed = tuple(i for i, tensor in enumerate(entered) if _version(tensor) != versions[i])
            packed.tensors.extend(entered[i] for i in changed)
        need = tuple(recorded and tensor.requires_grad for tensor in packed.tensors)
        if recorded:
            edges = [get_gradient_edge(each) if needed else None for each, needed in zip(packed.tensors, need)]
            self._saved[call.id, position] = Saved(edges, arguments, entries)
        if last:
            self._send(call.id.rank, Result(call.id, packed.data, need, changed, views), packed.tensors)
        else:
            following = Forward(call, position + 1, request.seed, request.context, packed.data, need)
            self._send(call.links[position + 1].rank, following, packed.tensors)

    def backward(self, request: Backward, tensors: Sequence[torch.Tensor]) -> None:
        """Runs a link backwards; the gradients go to the rank of the one before, or to the caller."""
        call, position = request.call, request.position
        saved = self._saved.get((call.id, position))
        roots = [] if saved is None else [saved.results[index] for index, here in enumerate(request.present) if here]
        if saved is None or any(edge is None for edge in roots):
            raise RuntimeError(
                f"Trying to backward through {call.links[position].target} a second time: its graph was freed by the "
                "first backward pass or torch.autograd.grad(). Pass retain_graph=True there"
            )
        if not request.keeps:
            saved.results[:] = [None if here else edge for here, edge in zip(request.present, saved.results)]
            if all(edge is None for edge in saved.results):
                del self._saved[call.id, position]  # else another loss may still come back through the other results
        with passes.part_of(request.number):
            gradients = _run(saved, [edge for edge in roots if edge is not None], list(tensors), request)
        present = tuple(gradient is not None for gradient in gradients)
        sent = [gradient for gradient in gradients if gradient is not None]
        if position:
            back = Backward(call, position - 1, present, request.keeps, request.some, request.number)
            self._send(call.links[position - 1].rank, back, sent)
        else:
            self._send(call.id.rank, Gradients(call.id, present), sent)

    def clear(self) -> None:
        """Drops what never got a backward pass."""
        self._saved.clear()


def _run(
    saved: Saved, roots: list[GradientEdge], tensors: list[torch.Tensor], request: Backward
) -> list[torch.Tensor | None]:
    """The gradients of a call's arguments; parameters get theirs unless only some gradients are asked for."""
    if request.some:
        passes.check_served()
        entries = [edge for edge in saved.entries if edge is not None]
        found: Sequence[torch.Tensor | None] = [None] * len(entries)
        if roots and entries:
            found = torch.autograd.grad(roots, entries, tensors, retain_graph=request.keeps, allow_unused=True)
        following = iter(found)
        return [None if edge is None else next(following) for edge in saved.entries]
    for received in saved.arguments:
        if received is not None:
            received.gradient = None
    if roots:
        torch.autograd.backward(roots, tensors, retain_graph=request.keeps)
    return [None if received is None else received.gradient for received in saved.arguments]


def _version(tensor: torch.Tensor) -> int:
    return -1 if tensor.is_inference() else tensor._version
