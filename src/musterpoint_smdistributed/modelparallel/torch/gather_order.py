"""What a rank gathers in a step, in order: the same on all ranks that have the parts, or an error.

Collectives are matched by their order alone. Where data decide which layer of a row comes next (experts, LayerDrop),
one rank's part of a layer would be put together with another one's part of another layer, without a word; or the one
would wait for the other for ever.
"""

from __future__ import annotations

from typing import Sequence

import torch.distributed as dist

from . import log
from .errors import SMPStepError
from .part_reads import FIRST_STEPS
from .same_calls import digest, told_by_all

END = "nothing more"


class GatherOrder:
    """Of this rank, in the step that runs.

    Args:
        ranks: those that have the parts of one copy, this one among them.
    """

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
        """``name`` is about to be gathered, or :data:`END` of a forward pass has come.

        Raises:
            SMPStepError: another rank gathers something else now, or has done so before.
        """
        self._names.append(name)
        if self._looks or name == END:
            self._compare()

    def end(self) -> None:
        """The step is over.

        Raises:
            SMPStepError: another rank has gathered something else in it.
        """
        self._compare()

    def _compare(self) -> None:
        told = [digest(self._names)]
        with log.waiting(f"a step, before {self._names[-1] if self._names else END} is gathered"):
            said = told_by_all(told, self._ranks, self._group)
        if all(each == told for each in said.values()):
            return
        orders: list[list[str]] = [[] for _ in self._ranks]
        dist.all_gather_object(orders, self._names, group=self._group)
        raise SMPStepError(_different(dict(zip(self._ranks, orders))))


def _different(orders: dict[int, list[str]]) -> str:
    """What is said of the first place where ranks differ."""
    longest = max(map(len, orders.values()))
    for place in range(longest):
        names = {rank: order[place] if place < len(order) else END for rank, order in orders.items()}
        if len(set(names.values())) > 1:
            break
    each = ", ".join(f"rank {rank} {name}" for rank, name in names.items())
    return (
        f"ranks call different layers of a row, or in another order: as number {place + 1} of the step {each}. Each "
        "has a part of every one (sharded_data_parallel_degree), so all must call the same. Where data decide "
        "(experts, LayerDrop), call all of them and weigh what they give, or leave the degree at 1"
    )
