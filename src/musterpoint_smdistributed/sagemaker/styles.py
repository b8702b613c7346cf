"""How one module computes with the part of its parameters that a tensor-parallel rank has.

The names are those of the plans that transformers' models carry (``base_model_tp_plan``). Parameters are DTensors on
the tensor-parallel mesh; modules compute with this rank's part of them, and DTensor's redistribution is the
communication between, forwards and backwards.
"""

from __future__ import annotations

import contextlib
from typing import Any, Callable, Iterator, NamedTuple

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Placement, Replicate, Shard

from .errors import SMPConfigError, SMPUnsupportedError

Around = Callable[[nn.Module, torch.Tensor, DeviceMesh], torch.Tensor]
Through = Callable[[torch.Tensor], torch.Tensor]


def copied(module: nn.Module, given: torch.Tensor, mesh: DeviceMesh) -> torch.Tensor:
    """The same tensor on all ranks, whose gradients are summed."""
    return DTensor.from_local(given, mesh, [Replicate()], run_check=False).to_local(grad_placements=[Partial()])


def summed(module: nn.Module, given: torch.Tensor, mesh: DeviceMesh) -> torch.Tensor:
    return _redistributed(given, mesh, Partial(), Replicate())


def gathered(module: nn.Module, given: torch.Tensor, mesh: DeviceMesh) -> torch.Tensor:
    parts = _redistributed(given.unsqueeze(0), mesh, Shard(0), Replicate())
    return torch.cat(parts.unbind(0), -1)  # no view, which fully_shard warns of


def sliced(module: nn.Module, given: torch.Tensor, mesh: DeviceMesh) -> torch.Tensor:
    return _redistributed(given, mesh, Replicate(), Shard(given.dim() - 1))


def _redistributed(given: torch.Tensor, mesh: DeviceMesh, before: Placement, after: Placement) -> torch.Tensor:
    return DTensor.from_local(given, mesh, [before], run_check=False).redistribute(placements=[after]).to_local()


class Style(NamedTuple):
    """What becomes of a module.

    cut: the side of its weight that is divided: of its outputs, its inputs, its rows (of an embedding) or none.
    before, after: what happens to its input and output.
    partial: each rank has it whole and a part of what it works on, so that gradients are summed.
    """

    cut: str
    before: Around | None = None
    after: Around | None = None
    partial: bool = False

    def dimension(self, module: nn.Module, parameter: str) -> int | None:
        """Along which ``parameter`` is divided; None where each rank has all of it."""
        if self.cut == "none" or (self.cut == "inputs" and parameter == "bias"):
            return None
        turned = type(module).__name__ == "Conv1D" and parameter == "weight"  # transformers': inputs x outputs
        return int((self.cut == "inputs") != turned)


WHOLE = Style("none")
"""Each rank has the module whole, and computes the same."""
ROWS = Style("rows", after=summed)
EXPERTS = Style("rows", before=copied, after=summed)

STYLES = {
    "colwise": Style("outputs", copied),
    "colwise_gather_output": Style("outputs", copied, gathered),
    "colwise_rep": Style("outputs", copied, gathered),
    "rowwise": Style("inputs", None, summed),
    "rowwise_rep": Style("inputs", sliced, summed),
    "rowwise_split_input": Style("inputs", sliced, summed),
    "embedding_rowwise": ROWS,
    "moe_tp_experts": EXPERTS,
    "replicate": WHOLE,
    "replicated_with_grad_allreduce": Style("none", partial=True),
}
"""By the names of transformers' plans."""


def install(name: str, module: Any, style: Style, mesh: DeviceMesh) -> None:
    """Has ``module`` compute with this rank's part of its parameters."""
    own = tuple(each for each, value in module._parameters.items() if value is not None)
    if style is EXPERTS:
        module.forward = _of_experts(name, module, own, mesh)
    elif style is ROWS:
        module.forward = _of_rows(module, own, mesh)
    else:
        module.forward = _plain(module, own, style, mesh)


def _plain(module: nn.Module, own: tuple[str, ...], style: Style, mesh: DeviceMesh) -> Callable[..., Any]:
    original, after_sum = module.forward, style.cut == "inputs" and "bias" in own
    through = (lambda value: copied(module, value, mesh)) if style.partial else None

    def forward(*args: Any, **kwargs: Any) -> Any:
        if style.before is not None:
            args = (style.before(module, args[0], mesh), *args[1:])
        with local(module, own, "bias" if after_sum else None, through) as hidden:
            result = original(*args, **kwargs)
            if style.after is not None:
                result = style.after(module, result, mesh)
            return result if hidden is None else result + hidden  # once, not by every rank

    return forward


def _of_rows(module: Any, own: tuple[str, ...], mesh: DeviceMesh) -> Callable[..., Any]:
    """An embedding each of whose ranks knows some words; words of others are zeros until the sum."""
    original, of_all = module.forward, module.padding_idx
    rank, known = mesh.get_local_rank(), module.weight.shape[0] // mesh.size()
    here = None if of_all is None else of_all - rank * known
    padding = here if here is not None and 0 <= here < known else None

    def forward(words: torch.Tensor, *more: Any, **named: Any) -> Any:
        mine = words - rank * known
        others = (mine < 0) | (mine >= known)
        module.padding_idx = padding
        try:
            with local(module, own):
                found = original(mine.masked_fill(others, 0), *more, **named)
        finally:
            module.padding_idx = of_all
        return summed(module, found.masked_fill(others.unsqueeze(-1), 0), mesh)

    return forward


def _of_experts(name: str, module: Any, own: tuple[str, ...], mesh: DeviceMesh) -> Callable[..., Any]:
    """Experts in stacked parameters, as transformers 5 has them: each rank computes some of them for all tokens."""
    count = getattr(module, "num_experts", None)
    if not isinstance(count, int) or any(module._parameters[each].shape[0] != count for each in own):
        raise SMPUnsupportedError(
            f"{name} ({type(module).__name__}): musterpoint's torch.sagemaker divides experts that are stacked along "
            "the first dimension of their parameters, as in transformers 5"
        )
    original, rank, here = module.forward, mesh.get_local_rank(), count // mesh.size()
    module.num_experts = here
    module._is_expert_parallel = True  # transformers then skips what is chosen of others

    def forward(hidden: torch.Tensor, chosen: torch.Tensor, weights: torch.Tensor) -> Any:
        others = chosen // here != rank
        hidden, weights = copied(module, hidden, mesh), copied(module, weights, mesh)
        with local(module, own):
            found = original(hidden, torch.where(others, here, chosen % here), weights.masked_fill(others, 0))
        return summed(module, found, mesh)

    return forward


@contextlib.contextmanager
def local(
    module: Any, own: tuple[str, ...], without: str | None = None, through: Through | None = None
) -> Iterator[torch.Tensor | None]:
    """This rank's part in the place of each of ``module``'s parameters; yields that of ``without``, which is away.

    FullyShardedDataParallel keeps what it has gathered among the module's attributes as well. ``through``: what each
    part goes through first.
    """
    before: list[tuple[dict[str, Any], str, Any]] = []
    hidden = None
    for name in own:
        value = getattr(module, name)
        mine = value.to_local() if isinstance(value, DTensor) else value
        mine = mine if through is None else through(mine)
        if name == without:
            hidden, mine = mine, None
        for place in (vars(module), module._parameters):
            if name in place:
                before.append((place, name, place[name]))
                place[name] = mine
    try:
        yield hidden
    finally:
        for place, name, value in before:
            place[name] = value


def check(name: str, module: nn.Module, style: Style, mesh: DeviceMesh) -> None:
    """"""
    for parameter, value in module._parameters.items():
        dimension = None if value is None else style.dimension(module, parameter)
        if value is not None and dimension is not None and value.shape[dimension] % mesh.size():
            raise SMPConfigError(
                f"{name}.{parameter} of {tuple(value.shape)} can't be divided evenly along dimension {dimension} over "
                f"tensor_parallel_degree={mesh.size()} ranks: choose a degree that divides {value.shape[dimension]}"
            )
