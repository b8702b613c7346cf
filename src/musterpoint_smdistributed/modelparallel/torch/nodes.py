"""The autograd nodes between ranks: a call of a module elsewhere, and tensors that enter from elsewhere."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol, Sequence

import torch
from torch.autograd.graph import GradientEdge

from . import passes
from .context import Context
from .errors import SMPStepError
from .messages import Backward, Call, CallId, Forward, Result
from .scheduler import current


class Asker(Protocol):
    """What a node needs of the server. ``backward``: whether there was a backward pass in this step."""

    backward: bool

    def ask(self, rank: int, call: CallId, request: Any, tensors: Sequence[torch.Tensor]) -> Any:
        """Sends a request and waits for the answer: its body and tensors."""


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
    """A tensor that arrived, and after the backward pass its gradient."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor: torch.Tensor | None = tensor
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
        known = ctx.received.gradient
        ctx.received.gradient = gradient if known is None else known + gradient
        return None, None


class Exchange:
    """One call from the caller's side, as it goes through autograd."""

    def __init__(self, server: Asker, call: Call, seed: int, context: Context, arguments: bytes, what: str) -> None:
        self.server, self.call, self.seed, self.context, self.arguments = server, call, seed, context, arguments
        self.what = what
        self.result: Result


class RemoteCall(torch.autograd.Function):
    """The autograd node of a call to another rank. ``anchor`` has it recorded also where no argument needs a gradient,
    since the parameters there do."""

    @staticmethod
    def forward(ctx: Any, anchor: torch.Tensor, exchange: Exchange, *tensors: torch.Tensor) -> Any:
        ctx.set_materialize_grads(False)
        ctx.exchange = exchange
        need = tuple(exchange.context.grad and tensor.requires_grad for tensor in tensors)
        first = exchange.call.links[0].rank
        request = Forward(exchange.call, 0, exchange.seed, exchange.context, exchange.arguments, need)
        exchange.result, results = exchange.server.ask(first, exchange.call.id, request, tensors)
        fixed = [each for each, needed in zip(results, exchange.result.need_gradient) if not needed]
        ctx.mark_non_differentiable(*fixed)
        return tuple(results)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor | None) -> Any:
        exchange: Exchange = ctx.exchange
        server, call = exchange.server, exchange.call
        if torch.is_grad_enabled():
            raise SMPStepError(
                f"create_graph=True through {exchange.what}, which is on another rank of the pipeline: gradients of "
                "gradients don't go from rank to rank. Put what they go through on one rank, with the step function "
                "(smp.set_partition(…, 0)), or set partitions to 1"
            )
        server.backward = True
        task = current()
        if task is not None:
            task.backward = True
        needed = exchange.result.need_gradient
        present = tuple(gradient is not None and need for gradient, need in zip(gradients, needed))
        keeps, some = passes.keeps_graph(), passes.some()
        request = Backward(call, len(call.links) - 1, present, keeps, some, passes.number())
        sent = [_dense(gradient) for gradient, is_sent in zip(gradients, present) if is_sent and gradient is not None]
        answer, received = server.ask(call.links[-1].rank, call.id, request, sent)
        return (None, None, *_spread(answer.present, received))


def _dense(gradient: torch.Tensor) -> torch.Tensor:
    """As it can be sent; that of an embedding with ``sparse=True`` may be another kind."""
    return gradient if gradient.layout is torch.strided else gradient.to_dense()


def _spread(present: Sequence[bool], tensors: Sequence[torch.Tensor]) -> list[torch.Tensor | None]:
    """The tensors in the places that are marked."""
    following = iter(tensors)
    return [next(following) if here else None for here in present]
