"""Which rank has which place in the pipeline, the tensor-parallel group and the replicas; pure arithmetic.

The rules and the examples that the tests repeat are in AWS's documentation of the library ("Ranking Basics" and
"Placement Strategy with Tensor Parallelism").
"""

from __future__ import annotations

import itertools
from typing import Literal, NamedTuple

from ...shared.parameters import permutation

Kind = Literal["world", "mp", "dp", "pp", "tp", "rdp"]
"""A kind of groups: all ranks; one replica of the model; the ranks with the same part of the pipeline; the parts of one
pipeline; the ranks that share the tensors of one part; the replicas of one rank."""

KINDS: tuple[Kind, ...] = ("world", "mp", "dp", "pp", "tp", "rdp")
_FREE = {"world": "DPT", "mp": "PT", "dp": "DT", "pp": "P", "tp": "T", "rdp": "D"}
"""The letters in which the ranks of one group differ; in the others they are equal."""


class Place(NamedTuple):
    """Where one rank stands: which replica, which part of the pipeline, which part of its tensors."""

    rdp: int
    pp: int
    tp: int


class Topology:
    """The places of all ranks, and the groups they make.
    Raises ValueError: ``pp`` times ``tp`` doesn't divide ``world``, or ``strategy`` is unknown."""

    def __init__(self, world: int, pp: int = 1, tp: int = 1, strategy: str = "cluster") -> None:
        if world % (pp * tp):
            raise ValueError(
                f"pipeline_parallel_degree (partitions) {pp} times tensor_parallel_degree {tp} is {pp * tp} ranks for "
                f"one replica of the model, which doesn't divide the job's world size {world}: start a multiple of "
                f"{pp * tp} ranks, or change the degrees"
            )
        self.world, self.pp, self.tp, self.rdp = world, pp, tp, world // (pp * tp)
        self.order = permutation(strategy)
        sizes = {"D": self.rdp, "P": pp, "T": tp}
        counted = (dict(zip(self.order, count)) for count in itertools.product(*(range(sizes[c]) for c in self.order)))
        self.places = tuple(Place(count["D"], count["P"], count["T"]) for count in counted)
        """The place of each rank, by rank."""

    def group(self, kind: Kind, rank: int) -> tuple[int, ...]:
        """The ranks of ``rank``'s group of this kind, ascending: the index of a rank is its rank in the group."""
        return next(ranks for ranks in self.groups(kind) if rank in ranks)

    def groups(self, kind: Kind) -> tuple[tuple[int, ...], ...]:
        """All groups of a kind, by their first rank. Each rank is in exactly one of them."""
        free = _FREE[kind]
        groups: dict[tuple[int, ...], list[int]] = {}
        for rank, place in enumerate(self.places):
            fixed = tuple(value for letter, value in zip("DPT", place) if letter not in free)
            groups.setdefault(fixed, []).append(rank)
        return tuple(tuple(ranks) for ranks in groups.values())
