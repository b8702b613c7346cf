"""Memory that tensors of one call have in common: a change in place of one of them is one of the other.

What comes back from another rank is a copy. Where a module returns what it was given, or two views of one tensor, the
caller makes the view again, of its own tensor.
"""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple, Sequence

import torch

from .connection import is_one_piece
from .errors import SMPStepError

_VIEWS = frozenset(
    f"{name}Backward0"
    for name in (
        "Alias", "AsStrided", "Diagonal", "Expand", "Permute", "ReshapeAlias", "Select", "Slice", "Split",
        "SplitWithSizes", "Squeeze", "T", "Transpose", "Unbind", "Unfold", "UnsafeView", "Unsqueeze", "View",
    )
) | {"SqueezeBackward1", "SqueezeBackward2", "SqueezeBackward3"}  # fmt: skip
"""Autograd's nodes that give gradients back in another shape, and do nothing else with them."""


class Unlike(Exception):
    """A tensor lies in memory in such a way that a view of it can't be made again."""


class View(NamedTuple):
    """A result that is a view of another tensor of its call.

    argument: of which argument; -1: of a result.
    result: of which result.
    shape, base: of that tensor where the module ran, its sizes and strides.
    size, stride, offset: of the view; the offset counts from the beginning of that tensor.
    recorded: whether gradients go through the view.
    """

    argument: int
    result: int
    shape: tuple[int, ...]
    base: tuple[int, ...]
    size: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int
    recorded: bool

    def of(self, tensor: torch.Tensor) -> torch.Tensor | None:
        """The same view of ``tensor``; None where torch itself would have made a copy, as by ``reshape``.
        Raises Unlike: the elements of ``tensor`` lie in another way."""
        tensor = tensor if self.recorded else tensor.detach()
        if self.size == tensor.shape and self.stride == self.base and not self.offset:
            return tensor
        offset, stride = self.offset, self.stride
        if tensor.stride() != self.base:
            moved = self._moved(tensor.stride())
            if moved is None:
                if torch.empty_strided(self.size, self.stride, device="meta").is_contiguous():
                    return None
                raise Unlike
            offset, stride = moved
        return tensor.as_strided(self.size, stride, tensor.storage_offset() + offset)

    def _moved(self, strides: Sequence[int]) -> tuple[int, tuple[int, ...]] | None:
        """The view's offset and strides in a tensor with other strides; None: a dimension of it is of several."""
        dims = sorted((dim for dim, size in enumerate(self.shape) if size > 1), key=lambda dim: -self.base[dim])
        left, offset, last = self.offset, 0, dict.fromkeys(dims, 0)
        for dim in dims:
            last[dim], left = divmod(left, self.base[dim])
            offset += last[dim] * strides[dim]
        found = []
        for size, step in zip(self.size, self.stride):
            of = [dim for dim in dims if step and size > 1 and step % self.base[dim] == 0]
            for dim in of[:1]:
                last[dim] += (size - 1) * (step // self.base[dim])
            found.append(step // self.base[of[0]] * strides[of[0]] if of else 0)
        return None if any(last[dim] >= self.shape[dim] for dim in dims) else (offset, tuple(found))


def found(results: Sequence[torch.Tensor], arguments: Sequence[torch.Tensor]) -> tuple[View | None, ...]:
    """Which results are views of arguments, or of results without holes; empty: none is."""
    given, own = _by_storage(arguments), _by_storage(results)
    if given.keys().isdisjoint(own) and all(len(places) == 1 for places in own.values()):
        return ()
    views: list[View | None] = [None] * len(results)
    for memory, places in own.items():
        for index in places:
            for place in given.get(memory, ()):
                views[index] = views[index] or _view(results[index], arguments[place], place, -1)
        rest = [index for index in places if views[index] is None]
        for index in rest:
            for place in rest:
                larger = results[place].numel() > results[index].numel() or place < index
                if views[index] is None and views[place] is None and place != index and larger:
                    views[index] = _view(results[index], results[place], -1, place)
    return tuple(views) if any(views) else ()


def overlap(one: torch.Tensor, two: torch.Tensor) -> bool:
    """Whether they have an element in common."""
    if storage(one) is None or storage(one) != storage(two) or not one.numel() or not two.numel():
        return False
    low = min(one.storage_offset(), two.storage_offset())
    touched = torch.zeros(max(_end(one), _end(two)) - low, dtype=torch.bool)
    touched.as_strided(one.shape, one.stride(), one.storage_offset() - low).fill_(True)
    return bool(touched.as_strided(two.shape, two.stride(), two.storage_offset() - low).any())


def write_back(
    given: Sequence[torch.Tensor], changed: Sequence[int], values: Sequence[torch.Tensor], what: str
) -> None:
    """Arguments that ``what`` has changed in place on another rank are so here."""
    for index, value in zip(changed, values):
        if any(overlap(given[index], each) for each in given if each is not given[index]):
            raise SMPStepError(
                f"{what}, which is on another rank of the pipeline, changes an argument in place, and that has memory "
                "in common with another one: there they are two tensors. Give it a clone() of one"
            )
        if not is_one_piece(given[index]):  # there it is: what is a view of it there may be a copy in one process
            raise SMPStepError(
                f"{what}, which is on another rank of the pipeline, changes an argument in place that isn't "
                "contiguous, and there it is. Give it a contiguous() one, or have it change a clone()"
            )
        given[index].copy_(value)


def made_again(
    views: Sequence[View | None], results: Sequence[torch.Tensor], given: Sequence[torch.Tensor], what: str
) -> list[torch.Tensor]:
    """The results of ``what``, which came from another rank; those that are views there are so here."""
    made = list(results)
    for index, view in enumerate(views):
        if view is None:
            continue
        try:
            found = view.of(results[view.result] if view.argument < 0 else given[view.argument])
        except Unlike as error:
            raise SMPStepError(
                f"{what}, which is on another rank of the pipeline, returns a view of an argument that isn't "
                "contiguous, and it can't be made here. Give it a contiguous() one, or have it return a clone()"
            ) from error
        if found is not None:
            made[index] = found
    return made


def _view(tensor: torch.Tensor, base: torch.Tensor, argument: int, result: int) -> View | None:
    if tensor.dtype != base.dtype or tensor.is_conj() != base.is_conj() or tensor.is_neg() != base.is_neg():
        return None
    start, end = base.storage_offset(), _end(base)
    same = tensor.shape == base.shape and tensor.stride() == base.stride() and tensor.storage_offset() == start
    inside = start <= tensor.storage_offset() and _end(tensor) <= end and end - start == base.numel()
    if not tensor.numel() or not (same or inside):
        return None
    recorded = tensor.requires_grad or not base.requires_grad
    if recorded and not _is_direct(tensor, base):
        return None
    offset = int(tensor.storage_offset()) - int(start)
    return View(
        argument, result, tuple(base.shape), base.stride(), tuple(tensor.shape), tensor.stride(), offset, recorded
    )


def _is_direct(tensor: torch.Tensor, base: torch.Tensor) -> bool:
    """Whether gradients go to the base as they are: there is no function or hook of the script on the way."""
    if tensor._backward_hooks:
        return False
    node, end = tensor.grad_fn, base.grad_fn
    while node is not end:
        if node is None or type(node).__name__ not in _VIEWS:
            return False
        node = node.next_functions[0][0]
    return True


def _by_storage(tensors: Sequence[torch.Tensor]) -> dict[int, list[int]]:
    """The places of tensors that have one piece of memory."""
    found: defaultdict[int, list[int]] = defaultdict(list)
    for place, tensor in enumerate(tensors):
        memory = storage(tensor)
        if memory is not None:
            found[memory].append(place)
    return found


def storage(tensor: torch.Tensor) -> int | None:
    """Tells a tensor's memory from others'; None: it is of a kind without."""
    try:
        return int(tensor.untyped_storage()._cdata)
    except (NotImplementedError, RuntimeError):
        return None


def _end(tensor: torch.Tensor) -> int:
    """The place behind its last element in its storage."""
    return (
        int(tensor.storage_offset()) + 1 + sum((size - 1) * step for size, step in zip(tensor.shape, tensor.stride()))
    )
