"""The called side of calls between ranks: runs modules that this rank has, and later their backward passes."""

from __future__ import annotations

from typing import Any, Callable, Mapping, NamedTuple, Sequence

import torch
from torch.autograd.graph import GradientEdge, get_gradient_edge

from . import aliases, part_reads, passes, randomness
from .effects import Attribute, Changed, Known
from .errors import SMPStepError
from .messages import Backward, CallId, Forward, Gradients, Result
from .packing import Names, Packed, pack, unpack
from .routing import ModuleRouting
from .scheduler import current


class Saved(NamedTuple):
    """What a served call keeps for its backward pass.

    results: where autograd continues, for each result; None where there is nothing or it has been.
    arguments: for each argument, where its gradient is put; None where none is needed.
    entries: for each argument that needs one, where it entered the graph.
    """

    results: list[GradientEdge | None]
    arguments: list[Received | None]
    entries: list[GradientEdge | None]


class Received:
    """A tensor that arrived with a call of ``what``, and after the backward pass its gradient.

    expected: a backward pass of that call runs.
    """

    def __init__(self, tensor: torch.Tensor, what: str) -> None:
        self.tensor: torch.Tensor | None = tensor
        self.what, self.expected = what, False
        self.gradient: torch.Tensor | None = None


class Entry(torch.autograd.Function):
    """Where a received tensor enters the local graph.

    The result is neither a leaf nor a view, so that a module may change it in place, as the first thing it does.
    """

    @staticmethod
    def forward(ctx: Any, anchor: torch.Tensor, received: Received) -> torch.Tensor:
        ctx.received = received
        tensor, received.tensor = received.tensor, None
        assert tensor is not None
        return tensor

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[None, None]:
        if not ctx.received.expected:
            raise SMPStepError(
                f"a backward pass has come to a call of {ctx.received.what} by another way than its results: what it "
                "left on its rank of the pipeline, as in an attribute, was used there by another module, and gradients "
                "would be lost. Return it, and hand it on as an argument"
            )
        known = ctx.received.gradient
        ctx.received.gradient = gradient if known is None else known + gradient
        return None, None


class Callee:
    """Runs links of calls, each under its own autograd graph, and sends on what comes out."""

    def __init__(
        self,
        routing: ModuleRouting,
        send: Callable[[int, Any, Sequence[torch.Tensor]], None],
        device: torch.device | None,
    ) -> None:
        self._routing, self._names, self._send, self._device = routing, routing.names, send, device
        self._left: dict[tuple[int, int], dict[int, tuple[torch.Tensor, Known]]] = {}
        self._anchor = torch.zeros((), requires_grad=True)
        self._saved: dict[tuple[CallId, int], Saved] = {}

    def forward(self, request: Forward, tensors: Sequence[torch.Tensor]) -> None:
        """Runs a link; its result goes to the next one's rank, or to the caller."""
        call, position = request.call, request.position
        recorded = request.context.grad
        randomness.begin(request.seed + position, self._device)
        with request.context.entered():
            link, guard = call.links[position], self._routing.guard
            what = str(link)
            arguments = [Received(each, what) if need else None for each, need in zip(tensors, request.need_gradient)]
            entered = [
                tensor if received is None else Entry.apply(self._anchor, received)  # type: ignore[no-untyped-call]
                for tensor, received in zip(tensors, arguments)
            ]
            entries = [get_gradient_edge(each) if received else None for each, received in zip(entered, arguments)]
            versions = [_version(tensor) for tensor in entered]
            args, kwargs, given, effects, brought = unpack(request.arguments, entered, self._names)
            task = current()
            if task is not None:
                task.caller = call.id.rank
            guard.bring(brought)
            function = self._routing.function(link.target)
            look = guard.look(link.modules, given)
            with part_reads.refused():
                value = function(*args, **kwargs)
            effects = [*effects, *guard.effects(look)]
        last = position + 1 == len(call.links)
        left = self._left.setdefault((call.id.rank, call.microbatch), {})
        known = look.known | {key: each for key, (_, each) in left.items()}
        first = len(entered) - request.brought
        known |= {id(each): Known("sent", index) for index, each in enumerate(entered[first:], first)}
        packed = _packed(value, effects, last, self._names, what, known)
        if effects and last:  # tensors in attributes may be effects of a later call as well: the caller has them then
            for index, each in enumerate(packed.tensors):
                if each.requires_grad:
                    left[id(each)] = each, Known("left", (call.id.number, index))
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
            unused = _unused(packed.tensors, entries, request.brought) if request.brought else ()
            self._send(call.id.rank, Result(call.id, packed.data, need, changed, views, unused), packed.tensors)
        else:
            following = Forward(call, position + 1, request.seed, request.context, packed.data, need)
            self._send(call.links[position + 1].rank, following, packed.tensors)

    def backward(self, request: Backward, tensors: Sequence[torch.Tensor]) -> None:
        """Runs a link backwards; the gradients go to the rank of the one before, or to the caller."""
        call, position = request.call, request.position
        saved = self._saved.get((call.id, position))
        roots = [] if saved is None else [saved.results[index] for index, here in enumerate(request.present) if here]
        if saved is None or any(edge is None for edge in roots):
            raise SMPStepError(passes.second_time(str(call.links[position])))
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
        self._left.clear()


def _unused(results: Sequence[torch.Tensor], entries: Sequence[GradientEdge | None], brought: int) -> tuple[int, ...]:
    """Which of the last tensors of a call no gradient of a result comes to."""
    waiting = [each.grad_fn for each in results if each.grad_fn is not None]
    reached = set(waiting)
    while waiting:
        new = {node for node, _ in waiting.pop().next_functions if node is not None} - reached
        reached |= new
        waiting += new
    last = list(enumerate(entries))[-brought:]
    return tuple(index for index, edge in last if edge is not None and edge.node not in reached)


def _packed(
    value: Any, effects: list[Changed | Attribute], last: bool, names: Names, what: str, known: Mapping[int, Known]
) -> Packed:
    """The result of a link and its effects, for the next link or the caller.
    Raises SMPStepError: something can't be sent. Attributes needn't be: nobody can read them elsewhere then."""

    def packed() -> Packed:
        given: tuple[Any, ...] = (value, effects) if last else ((value,), {}, (), effects, ())
        return pack(given, names, f"the result of {what}", results=last, known=known)

    try:
        return packed()
    except SMPStepError:
        for index, each in enumerate(effects):
            try:
                pack(each, names, f"what {what} has put into {each.place}", known=known)
            except SMPStepError:
                if isinstance(each, Changed):
                    raise
                effects[index] = each._replace(value=None, is_there=None)
        return packed()


def spread(present: Sequence[bool], tensors: Sequence[torch.Tensor | None]) -> list[torch.Tensor | None]:
    """The tensors in the places that are marked."""
    following = iter(tensors)
    return [next(following) if here else None for here in present]


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
        return spread([edge is not None for edge in saved.entries], found)
    received = [each for each in saved.arguments if each is not None]
    for each in received:
        each.gradient, each.expected = None, True
    if roots:
        try:
            torch.autograd.backward(roots, tensors, retain_graph=request.keeps)
        except RuntimeError as error:
            if not passes.is_second(error):
                raise
            raise SMPStepError(passes.second_time(str(request.call.links[request.position]))) from error
    for each in received:
        each.expected = False
    return [None if received is None else received.gradient for received in saved.arguments]


def _version(tensor: torch.Tensor) -> int:
    return -1 if tensor.is_inference() else tensor._version
