"""``torch.nn.utils.clip_grad_norm_`` for a divided model: by the norm of all gradients, not of this rank's own.

Each rank has the gradients of its part only. Clipped by their own norms, the parts would be scaled differently.
"""

from __future__ import annotations

import contextlib
import functools
import math
import zlib
from typing import Any, Callable, Iterable, Iterator, NamedTuple, Sequence

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
"""What ``clip_grad_norm_`` asks; by its public name a script's own."""
_SCALE = "_clip_grads_with_norm_"
"""What scales gradients."""
_GROUPS = "_group_tensors_by_device_and_dtype"
"""What ``clip_grad_value_`` sorts gradients by, of which a rank's part of the model may have none."""
_originals: dict[str, Callable[..., torch.Tensor]] = {}


class _Now(NamedTuple):
    """The time that goes on.

    watches: a script's own norm of a gradient is warned of. shares: the optimizer steps over this replica's share.
    given: the parameters by whose gradients somebody clips.
    """

    watches: bool = True
    shares: bool = False
    given: Sequence[torch.Tensor] | None = None


_now, _has_warned = _Now(), False


@contextlib.contextmanager
def meanwhile(**changes: Any) -> Iterator[None]:
    """Something else than usual goes on; ``changes``: of :class:`_Now`."""
    global _now
    before, _now = _now, _now._replace(**changes)
    try:
        yield
    finally:
        _now = before


def install() -> None:
    """Has torch ask all ranks from now on, however a script imported its functions."""
    if _originals:
        return
    original, scale, clip = _within(_NAME), _within(_SCALE), _within("clip_grad_norm_")
    clip.cell_contents = functools.partial(_clip, clip.cell_contents)
    _originals[_NAME] = original.cell_contents
    original.cell_contents = _total_norm
    scale.cell_contents = functools.partial(_scaled, scale.cell_contents)
    setattr(clip_grad, _GROUPS, functools.partial(_grouped, getattr(clip_grad, _GROUPS)))
    _watch()


def _within(name: str) -> Any:
    """The cell of what a function of torch's calls without gradients."""
    return getattr(clip_grad, name).__closure__[0]


def _total_norm(
    tensors: Any, norm_type: float = 2.0, error_if_nonfinite: bool = False, foreach: bool | None = None
) -> torch.Tensor:
    gradients = [tensors] if isinstance(tensors, torch.Tensor) else list(tensors)
    what = "torch.nn.utils.clip_grad_norm_, get_total_norm"
    if _now.shares:
        raise SMPStepError(
            f"{what} in a hook of optimizer.step(): gradients are this replica's share there (shard_optimizer_state): "
            "clip before optimizer.step()"
        )
    if float(norm_type) <= 0 and (_in_shards(gradients) or _of_the_model(gradients)):
        raise SMPStepError(f"{what}: norm_type {norm_type} of a model in parts: expected one above 0, as 2.0 or inf")
    if _in_shards(gradients):
        return _checked(_of_shards(gradients, float(norm_type)), norm_type, error_if_nonfinite)
    with meanwhile(watches=False):
        if not _of_the_model(gradients):
            _warn_of(gradients)
            return _originals[_NAME](gradients, norm_type, error_if_nonfinite, foreach)
        if current() is not None:
            raise SMPStepError(
                f"{what}: call it behind the step function, not in it: gradients are there when all microbatches are "
                "through, and all ranks have to take part"
            )
        _compare_given()
        here = _originals[_NAME](_counted(gradients), norm_type, False, foreach)
    return _checked(of_all_parts(here, float(norm_type), "mp"), norm_type, error_if_nonfinite)


def _clip(original: Any, parameters: Any, *args: Any, **kwargs: Any) -> Any:
    """Torch's own, with a note of what it is for."""
    given = [parameters] if isinstance(parameters, torch.Tensor) else list(parameters)
    with meanwhile(given=given):
        return original(given, *args, **kwargs)


def _compare_given() -> None:
    """Raises SMPStepError where ranks clip by different parameters.

    Each may clip by all that it has.
    """
    if _now.given is None:
        return
    ids, group = set(map(id, _now.given)), state.group("mp")
    names = sorted(name for name, each in state.model.module.named_parameters() if id(each) in ids)
    code = float(zlib.crc32("\n".join(names).encode()))
    partly = any(id(each) not in ids for each in state.model.local_parameters() if each.grad is not None)
    told = torch.tensor([code, -code, float(partly)], dtype=torch.float64)
    with log.waiting("torch.nn.utils.clip_grad_norm_"):
        dist.all_reduce(told, dist.ReduceOp.MAX, group=group.process_group)
    if told[0] != -told[1] and told[2]:
        raise SMPStepError(
            f"torch.nn.utils.clip_grad_norm_: other ranks clip by other parameters than {names[:1] or 'none'} here: "
            "all of them have to call it with the same ones, also where a parameter has no gradient on a rank"
        )


def _warn_of(gradients: list[torch.Tensor]) -> None:
    """Warns once of norms of tensors that may be copies of gradients."""
    global _has_warned
    if gradients and not _has_warned and current() is None and _gradients():
        _has_warned = True
        log.warn(
            "torch.nn.utils.get_total_norm or clip_grad_norm_ got tensors that are no gradients of the model: of "
            "copies of gradients it is the norm of this rank's part only"
        )


def _watch() -> None:
    """Warns once of a script's own norm of a gradient."""
    original = torch.linalg.vector_norm

    @functools.wraps(original)
    def vector_norm(x: Any, *args: Any, **kwargs: Any) -> Any:
        is_plain = type(x) is torch.Tensor and not x.requires_grad  # costs little, and most others aren't
        if is_plain and _now.watches and not torch.compiler.is_compiling() and current() is None:
            name = _gradients().get(x.data_ptr())
            if name is not None:
                torch.linalg.vector_norm = original
                log.warn(
                    f"a norm of {name}.grad was taken: this rank has the gradients of its part of the model, and sums "
                    "of their norms are of that. torch.nn.utils.clip_grad_norm_ and get_total_norm count all parts"
                )
        return original(x, *args, **kwargs)

    torch.linalg.vector_norm = vector_norm


def _gradients() -> dict[int, str]:
    """Addresses of the gradients of this rank's parameters, with their names; none where it has all of the model."""
    if not _is_in_parts():
        return {}
    return {each.grad.data_ptr(): name for name, each in state.model.local_named_parameters() if each.grad is not None}


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
    with meanwhile(watches=False):
        return _originals[_NAME](gradients, order)


def clip_more(parameters: Iterable[torch.Tensor], limit: float) -> float:
    """Clips at a norm, if there is more; the norm before.

    Torch's own factor would make less of gradients that a script has clipped to it already.
    """
    given = list(parameters)
    total = torch.nn.utils.get_total_norm([each.grad for each in given if each.grad is not None])
    if total > limit:
        torch.nn.utils.clip_grads_with_norm_(given, limit, total)
    return float(total)


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


def _is_in_parts() -> bool:
    """Tells whether this rank has a part of a model, and others the rest."""
    return state.model is not None and bool(state.model.partitioned) and state.group("mp").size > 1


def _of_the_model(gradients: list[torch.Tensor]) -> bool:
    """Whether these are gradients of the divided model; also where none of the parameters has one on this rank."""
    own = _gradients()
    return _is_in_parts() and (not gradients or any(each.data_ptr() in own for each in gradients))


def _counted(gradients: list[torch.Tensor]) -> list[torch.Tensor]:
    """Those that count on this rank: what all ranks of a tensor-parallel group have counts on the first one."""
    if state.group("tp").rank == 0:
        return gradients
    every = (each for each in state.model.local_parameters() if each.grad is not None)
    whole = {each.grad.data_ptr() for each in every if division(each) is None}
    return [each for each in gradients if each.data_ptr() not in whole]


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
