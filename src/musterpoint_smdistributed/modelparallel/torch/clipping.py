"""``torch.nn.utils.clip_grad_norm_`` for a divided model: by the norm of all gradients, not of this rank's own.

Each rank has the gradients of its part only. Clipped by their own norms, the parts would be scaled differently.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor
from torch.nn.utils import clip_grad

from . import log
from .distributed_parameters import division
from .errors import SMPStepError
from .scheduler import current
from .state import state
from .topology import Kind

_NAME = "_get_total_norm"
"""What ``clip_grad_norm_`` asks, however a script imported it; in torch 2.6 and newer."""
_SCALE = "_clip_grads_with_norm_"
"""What it scales gradients with."""
_GROUPS = "_group_tensors_by_device_and_dtype"
"""What ``clip_grad_value_`` sorts gradients by, of which a rank's part of the model may have none."""


def install() -> None:
    """Has torch ask all ranks of the pipeline from now on, once."""
    original = getattr(clip_grad, _NAME, None)
    if original is None or hasattr(original, "of_one_rank"):
        return

    @functools.wraps(original)
    def total_norm(
        tensors: Any, norm_type: float = 2.0, error_if_nonfinite: bool = False, foreach: bool | None = None
    ) -> torch.Tensor:
        gradients = [tensors] if isinstance(tensors, torch.Tensor) else list(tensors)
        if float(norm_type) > 0 and _in_shards(gradients):
            return _checked(_of_shards(gradients, float(norm_type)), norm_type, error_if_nonfinite)
        if float(norm_type) <= 0 or not _of_the_model(gradients):
            return _tensor(original(gradients, norm_type, error_if_nonfinite, foreach))
        gradients = _counted(gradients)
        if current() is not None:
            raise SMPStepError(
                "torch.nn.utils.clip_grad_norm_: call it behind the step function, not in it: gradients are there when "
                "all microbatches are through, and all ranks have to take part"
            )
        total = of_all_parts(_tensor(original(gradients, norm_type, False, foreach)), float(norm_type), "mp")
        return _checked(total, norm_type, error_if_nonfinite)

    vars(total_norm)["of_one_rank"] = original
    setattr(clip_grad, _NAME, total_norm)
    setattr(clip_grad, _SCALE, functools.partial(_scaled, getattr(clip_grad, _SCALE)))
    if hasattr(clip_grad, _GROUPS):
        setattr(clip_grad, _GROUPS, functools.partial(_grouped, getattr(clip_grad, _GROUPS)))


def _grouped(original: Any, tensors: Any, *args: Any) -> Any:
    """Groups shards and whole gradients apart; none where a rank has no gradients of the divided model."""
    kinds = {kind: [each for each in tensors[0] if isinstance(each, DTensor) is kind] for kind in (True, False)}
    if all(kinds.values()):
        both = {kind: original([each, *tensors[1:]], *args) for kind, each in kinds.items()}
        return {(place, (of, kind)): each for kind, found in both.items() for (place, of), each in found.items()}
    return original(tensors, *args) if tensors[0] or not _of_the_model([]) else {}


def total_norm(gradients: list[torch.Tensor], order: float) -> torch.Tensor:
    """The norm of gradients on this rank, and of the other ranks' parts where it has shards of them."""
    if float(order) > 0 and _in_shards(gradients):
        return _of_shards(gradients, float(order))
    return _tensor(torch.nn.utils.get_total_norm(gradients, order))


def _scaled(
    original: Any, parameters: Any, max_norm: float, total_norm: torch.Tensor, foreach: bool | None = None
) -> None:
    """Torch's own, for shards and for whole parameters by themselves: it can't scale both at once."""
    listed = [parameters] if isinstance(parameters, torch.Tensor) else list(parameters)
    shards = [each for each in listed if isinstance(each.grad, DTensor)]
    whole = [each for each in listed if not isinstance(each.grad, DTensor)]
    for each in (shards, whole):
        original(each, max_norm, total_norm, foreach)


def _checked(total: torch.Tensor, norm_type: float, error_if_nonfinite: bool) -> torch.Tensor:
    """Raises torch's own error where it would."""
    if error_if_nonfinite and not math.isfinite(float(total)):
        raise RuntimeError(
            f"The total norm of order {norm_type} for gradients from `parameters` is non-finite, so it cannot be "
            "clipped. To disable this error and scale the gradients by the non-finite norm anyway, set "
            "`error_if_nonfinite=False`"
        )
    return total


def _in_shards(gradients: list[torch.Tensor]) -> bool:
    """Whether these are gradients of a model in shards."""
    sharding = state.model.sharding if state.model is not None else None
    meshes = [each.device_mesh for each in gradients if isinstance(each, DTensor)]
    return sharding is not None and bool(meshes) and all(each == sharding.mesh["shard"] for each in meshes)


def _of_shards(gradients: list[torch.Tensor], order: float) -> torch.Tensor:
    """The norm of gradients of which each rank has a part, and of some the whole."""
    whole = [each for each in gradients if not isinstance(each, DTensor)]
    parts = [each for each in gradients if isinstance(each, DTensor)]
    finite = math.isfinite(order)
    device, kind = parts[0].to_local().device, parts[0].dtype
    here = torch.zeros((), dtype=torch.float64, device=device)
    for part in parts:
        norm = torch.linalg.vector_norm(part.to_local().double(), order) if part.to_local().numel() else here * 0
        here = here + norm.pow(order) if finite else torch.maximum(here, norm)
    group = parts[0].device_mesh.get_group()
    dist.all_reduce(here, dist.ReduceOp.SUM if finite else dist.ReduceOp.MAX, group=group)
    for each in whole:
        norm = torch.linalg.vector_norm(each.double(), order)
        here = here + norm.pow(order) if finite else torch.maximum(here, norm)
    return (here.pow(1 / order) if finite else here).to(kind)


def _of_the_model(gradients: list[torch.Tensor]) -> bool:
    """Whether these are gradients of the divided model; also where none of the parameters has one on this rank."""
    if state.model is None or not state.model.partitioned or state.group("mp").size == 1:
        return False
    own = {id(parameter.grad) for parameter in state.model.local_parameters()}
    return not gradients or any(id(gradient) in own for gradient in gradients)


def _counted(gradients: list[torch.Tensor]) -> list[torch.Tensor]:
    """Those that count on this rank: what all ranks of a tensor-parallel group have counts on the first one."""
    if state.group("tp").rank == 0:
        return gradients
    whole = {id(each.grad) for each in state.model.local_parameters() if division(each) is None}
    return [each for each in gradients if id(each) not in whole]


def of_all_parts(norm: torch.Tensor, order: float, kind: Kind) -> torch.Tensor:
    """The norm of the gradients of all parts together, of which each is on one rank of this rank's group of a kind.

    Every rank of the group calls it.
    """
    group = state.group(kind)
    if group.size == 1:
        return norm
    part = norm.detach().double().cpu()
    finite = math.isfinite(order)
    told, operation = (part.pow(order), dist.ReduceOp.SUM) if finite else (part, dist.ReduceOp.MAX)
    with log.waiting("torch.nn.utils.clip_grad_norm_"):
        dist.all_reduce(told, operation, group=group.process_group)
    return (told.pow(1 / order) if finite else told).to(norm.device, norm.dtype)


def _tensor(value: Any) -> torch.Tensor:
    assert isinstance(value, torch.Tensor)
    return value
