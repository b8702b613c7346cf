"""How the ranks are divided: by copy of the model, by shard, and by tensor-parallel rank, which differs first.

Context and expert parallelism divide the ranks of one copy once more, neighbours together, as AWS's reference says of
``context_parallel_degree <= hybrid_shard_degree``. The order is that of AWS's public recipes, whose data-parallel rank
is ``rank // (tensor_parallel_degree * context_parallel_degree)``.
"""

from __future__ import annotations

from typing import NamedTuple

from .config import Config
from .errors import SMPConfigError


class Layout(NamedTuple):
    """The sizes.

    size: all ranks.
    shards, experts: over how many ranks each parameter is sharded, and the experts are divided.
    tensor, context: how many ranks share each layer, and a sequence.
    native: torch's own FSDP says what is sharded.
    """

    size: int
    shards: int
    tensor: int = 1
    context: int = 1
    experts: int = 1
    native: bool = False

    @classmethod
    def from_config(cls, cfg: Config, size: int) -> Layout:
        """The layout that the degrees ask for."""
        tensor, context, experts = (cfg.tensor_parallel_degree, cfg.context_parallel_degree, cfg.expert_parallel_degree)
        if size % tensor:
            raise SMPConfigError(_uneven(cfg, "tensor_parallel_degree", f"the job's world size {size}", tensor))
        shards = cfg.hybrid_shard_degree or size // tensor
        if size % (shards * tensor):
            whole = f"the job's world size {size}"
            if tensor > 1:
                whole += f" / {cfg.shown('tensor_parallel_degree')}"
            raise SMPConfigError(_uneven(cfg, "hybrid_shard_degree", whole, shards * tensor))
        for name, degree in (("context_parallel_degree", context), ("expert_parallel_degree", experts)):
            if shards % degree:
                raise SMPConfigError(
                    f"{cfg.shown(name)} doesn't divide the {shards} ranks that shard one copy of the model: choose a "
                    "degree that does, or a larger hybrid_shard_degree"
                )
        if experts > 1 and tensor > 1:
            raise SMPConfigError(
                f"{cfg.shown('expert_parallel_degree')} beside {cfg.shown('tensor_parallel_degree')}: AWS's library "
                "takes one of them only; tensor_parallel_degree divides the experts as well"
            )
        native = not cfg.hybrid_shard_degree and tensor == context == experts == 1
        return cls(size, shards, tensor, context, experts, native)

    @property
    def copies(self) -> int:
        """Of the model."""
        return self.size // (self.shards * self.tensor)

    @property
    def datas(self) -> int:
        """How many ranks have data of their own."""
        return self.size // (self.tensor * self.context)

    def data_of(self, rank: int) -> int:
        """Whose data ``rank`` trains on."""
        return rank // (self.tensor * self.context)

    def __str__(self) -> str:
        if self.native:
            return "sharded as the script's FSDP says (hybrid_shard_degree 0)"
        more = (("tensor", self.tensor), ("context", self.context), ("experts", self.experts))
        parts = [f"{name} {degree}" for name, degree in more if degree > 1]
        return ", ".join([f"shards {self.shards} x copies {self.copies}", *parts])

    # where ranks stand, by AWS's names

    def get_rep_rank(self, rank: int) -> int:
        """Which copy of the model ``rank`` is of."""
        return rank // (self.shards * self.tensor)

    def get_shard_rank(self, rank: int) -> int:
        """Which shard of it ``rank`` has."""
        return rank // self.tensor % self.shards

    def get_tp_rank(self, rank: int) -> int:
        return rank % self.tensor

    def get_cp_rank(self, rank: int) -> int:
        return self.get_shard_rank(rank) % self.context

    def get_ep_rank(self, rank: int) -> int:
        return self.get_shard_rank(rank) % self.experts

    def get_rep_groups(self) -> list[list[int]]:
        """The ranks that have the same part of the model, one of each copy."""
        each = self.shards * self.tensor
        return [list(range(first, self.size, each)) for first in range(each)]

    def get_shard_groups(self) -> list[list[int]]:
        """The ranks that a tensor is sharded over."""
        each = self.shards * self.tensor
        return [
            list(range(copy * each + first, (copy + 1) * each, self.tensor))
            for copy in range(self.copies)
            for first in range(self.tensor)
        ]

    def get_tp_groups(self) -> list[list[int]]:
        """The ranks that share layers."""
        return [list(range(first, first + self.tensor)) for first in range(0, self.size, self.tensor)]


def _uneven(cfg: Config, name: str, whole: str, multiple: int) -> str:
    return f"{cfg.shown(name)} doesn't divide {whole}: start a multiple of {multiple} ranks, or change the degree"
