"""Where activations are while the ranks of a tensor-parallel group compute one layer together; DTensor moves them.

Outside of distributed modules a rank has what the script gave it: a batch of its own, or with ``prescaled_batch`` the
same one as the others. Between the layers of a transformer it has, by ``optimize`` and ``prescaled_batch``:

========  ====================================  =============================================
          own batches                           the same batch
========  ====================================  =============================================
memory    ``own``: its own batch                ``sequence``: its part of each sequence
speed     ``whole``: the batches of all ranks   ``whole``
========  ====================================  =============================================

Weights are divided as in Megatron-LM: what a layer computes with them needs all of the batch, and gives a sum over the
ranks. :func:`gathered` and :func:`summed` go there and back.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, cast

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Placement, Replicate, Shard

from .. import passes
from ..distributed_parameters import together
from ..errors import SMPStepError
from ..state import Group, state

_SHARED = "a module whose tensors several ranks share"
_LEAVE_OUT = "Leave it out of tensor parallelism (smp.set_tensor_parallelism(module, False))"
Layout = Literal["own", "whole", "sequence"]

_meshes: dict[tuple[int, str], tuple[Any, DeviceMesh]] = {}


class Entered(NamedTuple):
    """What a transformer layer takes and gives inside of a transformer.

    hidden: the activations, in ``layout``.
    mask, cross_mask: what is added to the scores of attention, for the whole batch.
    cross: the states that cross-attention looks at, in ``layout``; whole where that is ``sequence``.
    """

    hidden: torch.Tensor
    mask: Any
    cross: Any
    cross_mask: Any
    layout: Layout


def degree() -> int:
    """How many ranks share a layer."""
    return state.group("tp").size


def chosen(hidden: torch.Tensor) -> Layout:
    """The layout between layers, by the configuration; a sequence that the ranks don't divide stays whole."""
    if state.cfg.optimize == "speed":
        return "whole"
    if not state.cfg.prescaled_batch:
        return "own"
    return "sequence" if hidden.dim() > 1 and hidden.shape[1] % degree() == 0 else "whole"


def enter(tensor: torch.Tensor, layout: Layout) -> torch.Tensor:
    """From what the script has to a layout. Gradients of whole activations are whole on every rank."""
    return moved(tensor, _of_script(), _placement(layout), _placement(layout))


def leave(tensor: torch.Tensor, layout: Layout) -> torch.Tensor:
    """The opposite of :func:`enter`."""
    return moved(tensor, _placement(layout), _of_script(), _of_script())


def gathered(tensor: torch.Tensor, layout: Layout) -> torch.Tensor:
    """Activations of the whole batch, for weights that are divided; each rank's gradients are a part of the sum."""
    return moved(tensor, _placement(layout), Replicate(), Partial())


def summed(tensor: torch.Tensor, layout: Layout) -> torch.Tensor:
    """The sum over the ranks of what each computed with its weights, in the layout."""
    after = _placement(layout)
    return moved(tensor, Partial(), after, after)


def shared(parameter: torch.Tensor, layout: Layout) -> torch.Tensor:
    """A whole parameter that is used with activations in a layout.

    Where sequences are divided its gradients are added up over the ranks after the step; one that couldn't be divided
    gives each rank all of it.
    """
    if layout == "whole" and state.cfg.optimize == "memory" and state.cfg.prescaled_batch and degree() > 1:
        return cast(torch.Tensor, _ScaledGradient.apply(parameter, 1 / degree()))  # type: ignore[no-untyped-call]
    return parameter


def gathered_mask(mask: Any, batch: int) -> Any:
    """A mask of the ranks' own batches (of ``batch`` each) for all of them; one for any batch stays.

    Each rank's attention heads give a part of its gradient.
    """
    if degree() == 1 or not isinstance(mask, torch.Tensor):
        return mask
    if mask.dtype is torch.bool:  # which gloo doesn't send
        mask = mask.to(torch.uint8)
    if state.cfg.prescaled_batch:
        return moved(mask, Replicate(), Replicate(), Partial()) if mask.requires_grad else mask
    if mask.dim() != 4 or mask.shape[0] != batch:
        return mask
    return moved(mask, Shard(0), Replicate(), Partial())


def to_parts(tensor: torch.Tensor) -> torch.Tensor:
    """The rank's part of the last axis, for the batch of all ranks."""
    if degree() == 1 or state.cfg.prescaled_batch:
        return moved(tensor, Replicate(), Shard(-1), Shard(-1), tensor.dim())
    return _swapped(tensor, True)


def from_parts(tensor: torch.Tensor) -> torch.Tensor:
    """The opposite of :func:`to_parts`."""
    return from_rows(tensor) if degree() == 1 or state.cfg.prescaled_batch else _swapped(tensor, False)


def from_rows(tensor: torch.Tensor) -> torch.Tensor:
    """All of the last axis, for a batch that is the same on all ranks."""
    return moved(tensor, Shard(-1), Replicate(), Replicate(), tensor.dim())


def batches_of_all(tensor: torch.Tensor) -> torch.Tensor:
    """Without gradients (indices): the batches of all ranks, one after the other."""
    return tensor if degree() == 1 or state.cfg.prescaled_batch else together(tensor, 0)


def summed_to_script(tensor: torch.Tensor) -> torch.Tensor:
    """The sum over the ranks, as the script has activations."""
    return moved(tensor, Partial(), _of_script(), _of_script())


def moved(
    tensor: torch.Tensor, before: Placement, after: Placement, gradient: Placement, dims: int = 0
) -> torch.Tensor:
    """From one placement to another; ``gradient`` says how the gradient of the result comes back.
    ``dims``: of the tensor, where a placement counts from the last one."""
    if degree() == 1 or before == after == gradient:
        return tensor
    passes.refuse_transforms(_SHARED, _LEAVE_OUT)
    mesh = _mesh(state.group("tp"), tensor.device.type)
    before, after, gradient = (
        Shard(each.dim + dims) if isinstance(each, Shard) and each.dim < 0 else each
        for each in (before, after, gradient)
    )
    there = DTensor.from_local(tensor.contiguous(), mesh, (before,), run_check=False)
    result: torch.Tensor = there.redistribute(mesh, (after,)).to_local(grad_placements=(gradient,))
    return once(result.contiguous())


def once(tensor: torch.Tensor) -> torch.Tensor:
    """Its gradient goes over the ranks, and the gradient of that one wouldn't."""
    if tensor.requires_grad:
        tensor.register_hook(_refuse_graph)  # type: ignore[no-untyped-call]
    return tensor


def _refuse_graph(gradient: torch.Tensor) -> None:
    if torch.is_grad_enabled():
        raise SMPStepError(
            f"create_graph=True through {_SHARED}: gradients of gradients don't go from rank to rank. {_LEAVE_OUT}"
        )


def _of_script() -> Placement:
    """Where the script has activations: each rank its own batch, or all the same."""
    return Replicate() if state.cfg.prescaled_batch else Shard(0)


def _placement(layout: Layout) -> Placement:
    return {"own": Shard(0), "whole": Replicate(), "sequence": Shard(1)}[layout]


def _mesh(group: Group, device: str) -> DeviceMesh:
    key = (id(group.process_group), device)
    if key not in _meshes:
        mesh = DeviceMesh.from_group(group.process_group, device)
        _meshes[key] = (group.process_group, mesh)  # with the group, whose id would be another's else
    return _meshes[key][1]


def _swapped(tensor: torch.Tensor, forth: bool) -> torch.Tensor:
    passes.refuse_transforms(_SHARED, _LEAVE_OUT)
    return once(_Swap.apply(tensor, forth))  # type: ignore[no-untyped-call]


class _Swap(torch.autograd.Function):
    """Own batches with all of the last axis, to all batches with a part of it; or back. One all-to-all."""

    @staticmethod
    def forward(context: Any, tensor: torch.Tensor, forth: bool) -> torch.Tensor:
        context.forth = forth
        return _swap(tensor, forth)

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        return _swap(gradient, not context.forth), None


def _swap(tensor: torch.Tensor, forth: bool) -> torch.Tensor:
    group = state.group("tp")
    if forth:  # (batch, …, width) as (parts, batch, …, width / parts)
        sent = torch.stack(tensor.chunk(group.size, dim=-1))
    else:
        sent = tensor.contiguous().view(group.size, -1, *tensor.shape[1:])
    received = torch.empty_like(sent)
    dist.all_to_all_single(received, sent, group=group.process_group)
    if forth:
        return received.flatten(0, 1)
    return torch.cat(received.unbind(0), dim=-1)


class _ScaledGradient(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, tensor: torch.Tensor, factor: float) -> torch.Tensor:
        context.factor = factor
        return tensor.view_as(tensor)

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        return gradient * context.factor, None


class Enter(nn.Module):
    """The arguments of a transformer as its layers take them. A module, so that a pipeline may run it anywhere."""

    def forward(self, hidden: torch.Tensor, mask: Any, cross: Any = None, cross_mask: Any = None) -> Entered:
        layout = chosen(hidden)
        batch = hidden.shape[0]
        return Entered(
            enter(hidden, layout),
            gathered_mask(mask, batch),
            cross if cross is None or layout == "sequence" else enter(cross, layout),
            gathered_mask(cross_mask, batch),
            layout,
        )


class Leave(nn.Module):
    """The result of a transformer's last layer as the script has activations."""

    def forward(self, inside: Entered) -> torch.Tensor:
        return leave(inside.hidden, inside.layout)
