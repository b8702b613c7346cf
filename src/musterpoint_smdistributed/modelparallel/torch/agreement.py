"""What ranks that work together must have in common: shapes of batches, random numbers, the modules they call.

In a collective of other shapes they would wait for each other for ever, or compute nonsense without a word.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
from typing import Any, Iterator, Sequence

import torch
import torch.distributed as dist
from torch import nn
from torch.utils import _pytree

from . import log, randomness
from .errors import SMPStepError
from .state import state

FIRST_STEPS = 2
"""Of each step function, in which ranks look closely. Behind these it would cost time at each operation."""


@contextlib.contextmanager
def alike(step: str, arguments: Any) -> Iterator[None]:
    """Around a step, on each rank that runs the step function.

    Where ranks compute the same in places they draw the same random numbers inside; afterwards each goes on with its
    own.
    """
    group = state.group("tp")
    if group.size == 1:
        yield
        return
    own = shapes(arguments)
    told = [drawn() if shares_activations() else 0, digest(own)]
    with log.waiting(f"the step function {step}, for the ranks {list(group.ranks)} that share tensors"):
        said = list(told_by_all(told, group.ranks, group.process_group).values())
    others = [rank for rank, (_, theirs) in zip(group.ranks, said) if theirs != told[1]]
    if others:
        feed = (
            "with prescaled_batch all of them get the same batch: use smp.rdp_rank() and smp.rdp_size() in the sampler"
            if state.cfg.prescaled_batch
            else "their batches must have the same shapes: use drop_last=True, and pad sequences to one length"
        )
        raise SMPStepError(
            f"{step}: rank {state.world.rank} was called with tensors of shapes {', '.join(own) or 'none'}, and ranks "
            f"{others}, which share its tensors, with others; {feed}"
        )
    with randomness.stream(said[0][0], randomness.own_device()) if shares_activations() else contextlib.nullcontext():
        yield


# ---- random numbers


def shares_activations() -> bool:
    """Whether ranks of a tensor-parallel group compute the same in places."""
    return state.group("tp").size > 1 and (state.cfg.prescaled_batch or state.cfg.optimize == "speed")


@contextlib.contextmanager
def apart() -> Iterator[None]:
    """Inside, each rank draws random numbers of its own; all of them go on alike afterwards."""
    if not shares_activations():
        yield
        return
    seed = drawn() + state.group("tp").rank
    with randomness.stream(randomness.derive(seed), randomness.own_device()):
        yield


def drawn() -> int:
    """A seed out of the current stream of random numbers."""
    return int(torch.randint(1 << 62, (), device="cpu"))


# ---- calls

# Where each rank has its own batch, and data decide which module a row goes to, one rank's rows would be computed with
# those of another module, without a word, or collectives of two sizes would meet.


def check(module: nn.Module | None, arguments: Any) -> None:
    """A module whose tensors are shared is called on this rank; None: the model's forward pass is over."""
    group = state.group("tp")
    own = shapes(arguments)
    told = [digest(_name(module)), digest(own)]
    said = told_by_all(told, group.ranks, group.process_group)
    others = [rank for rank, each in said.items() if each != told]
    if others:
        what = f"module {_name(module)} is called with {', '.join(own) or 'no tensors'}"
        raise SMPStepError(
            f"{what if module else 'the forward pass is over'} on rank {state.world.rank}, and ranks {others}, which "
            "share its tensors, call another one or with other shapes, as where data decide. Leave it out of tensor "
            "parallelism (smp.set_tensor_parallelism(module, False)), or set prescaled_batch to True and give all of "
            "them the same batch"
        )


def _name(module: nn.Module | None) -> str:
    """In the model; empty for None."""
    if module is None:
        return ""
    return next((name for name, each in state.model.module.named_modules() if each is module), type(module).__name__)


def told_by_all(own: list[int], ranks: Sequence[int], group: Any) -> dict[int, list[int]]:
    """What each of ``ranks``, those of the process group, tells: as many numbers as ``own``. All of them must ask."""
    told = torch.tensor(own)
    said = [torch.empty_like(told) for _ in ranks]
    dist.all_gather(said, told, group=group)
    return {rank: each.tolist() for rank, each in zip(ranks, said)}


def shapes(arguments: Any) -> list[str]:
    """Shapes and types of the tensors in there."""
    return [
        f"{tuple(leaf.shape)} {str(leaf.dtype).removeprefix('torch.')}"
        for leaf in _pytree.tree_leaves(arguments)
        if isinstance(leaf, torch.Tensor) and not isinstance(leaf, nn.Parameter)
    ]


def digest(value: Any) -> int:
    """Of what it looks like; the same on every rank."""
    return int.from_bytes(hashlib.blake2b(repr(value).encode(), digest_size=8).digest(), "little") >> 1


# Collectives are matched by their order alone. Where data decide which layer of a row comes next (experts,
# LayerDrop), one rank's part of a layer would be put together with another one's part of another layer, without a
# word; or the one would wait for the other for ever.
END = "nothing more"


class GatherOrder:
    """Of this rank, in the step that runs."""

    def __init__(self, ranks: Sequence[int]) -> None:
        self._ranks = ranks
        # of its own: what another rank is about to gather must not be matched with what it says
        self._group = dist.new_group(list(ranks), backend="gloo", use_local_synchronization=True)
        self._names: list[str] = []
        self._looks = False

    def begin(self, calls: int) -> None:
        """A step function is called, which has been so often before. In its first steps ranks compare before each
        gathering, which would wait for ever if they differ in number; later behind each forward pass and step.
        """
        self._names.clear()
        self._looks = calls < FIRST_STEPS

    def next(self, name: str) -> None:
        """``name`` is about to be gathered, or :data:`END` of a forward pass has come."""
        self._names.append(name)
        if self._looks or name == END:
            self._compare()

    def end(self) -> None:
        """The step is over."""
        self._compare()

    def _compare(self) -> None:
        told = [digest(self._names)]
        with log.waiting(f"a step, before {self._names[-1] if self._names else END} is gathered"):
            said = told_by_all(told, self._ranks, self._group)
        if all(each == told for each in said.values()):
            return
        orders: list[list[str]] = [[] for _ in self._ranks]
        dist.all_gather_object(orders, self._names, group=self._group)
        places = list(enumerate(itertools.zip_longest(*orders, fillvalue=END), 1))
        number, names = next((place for place in places if len(set(place[1])) > 1), places[-1])  # where they differ
        each = ", ".join(f"rank {rank} {name}" for rank, name in zip(self._ranks, names))
        raise SMPStepError(
            f"ranks call different layers of a row, or in another order: as number {number} of the step {each}. Each "
            "has a part of every one (sharded_data_parallel_degree), so all must call the same. Where data decide "
            "(experts, LayerDrop), call all of them and weigh what they give, or leave the degree at 1"
        )
