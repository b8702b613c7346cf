"""Divides the experts of a model over ranks with different data: words travel to the ranks of the experts they chose.

For experts that are stacked along the first dimension of their parameters, as in transformers 5. Each rank's share of
them is sharded by ``fully_shard`` over the ranks that have the same one.
"""

from __future__ import annotations

from typing import Any, Callable, cast

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.nn.functional import all_to_all_single
from torch.distributed.tensor import Shard

from .errors import SMPConfigError, SMPUnsupportedError
from .layout import Layout
from .styles import local
from .tensor_parallel.dividing import shared_out


def divide_experts(model: nn.Module, layout: Layout) -> nn.Module:
    """Gives each rank its share of the experts."""
    degree = layout.experts
    found = experts_of(model)
    if not found:
        raise SMPUnsupportedError(
            f"tsm.transform: expert_parallel_degree={degree}, but {type(model).__name__} has no experts that are "
            "stacked in parameters (num_experts x …), as Mixtral has in transformers 5; set it to 1: "
            "hybrid_shard_degree shards experts as it does all other parameters"
        )
    for name, module in found.items():
        if module.num_experts % degree:
            raise SMPConfigError(
                f"expert_parallel_degree={degree} doesn't divide the {module.num_experts} experts of {name}: choose a "
                "degree that does"
            )
    if any(each.is_meta for each in model.parameters()):
        raise SMPUnsupportedError(
            f"tsm.transform: {type(model).__name__} is on the meta device, which expert_parallel_degree={degree} "
            "doesn't take: make the model with its values, or set expert_parallel_degree to 1"
        )
    shape = (layout.copies, layout.shards // degree, degree)
    kind = "cuda" if torch.cuda.is_available() and torch.version.cuda else "cpu"
    mesh = init_device_mesh(kind, shape, mesh_dim_names=("replicate", "shard", "ep"))
    for module in found.values():
        _divide(module, mesh)
    return model


def experts_of(model: nn.Module) -> dict[str, Any]:
    """Modules of stacked experts, by name."""
    return {
        name: module
        for name, module in model.named_modules()
        if isinstance(getattr(module, "num_experts", None), int)
        and {"gate_up_proj", "down_proj"} <= module._parameters.keys()
        and all(value is None or value.dim() == 3 for value in module._parameters.values())
    }


def _divide(module: Any, mesh: DeviceMesh) -> None:
    own = tuple(name for name, value in module._parameters.items() if value is not None)
    module.forward = _exchanging(module, own, mesh["ep"])
    for name in own:
        module._parameters[name] = shared_out(module._parameters[name], mesh["ep"], Shard(0))
    fully_shard(module, mesh=mesh["replicate", "shard"])


def _exchanging(module: Any, own: tuple[str, ...], mesh: DeviceMesh) -> Callable[..., torch.Tensor]:
    """``module``'s forward, for words of all ranks: each is sent to its experts, and what they say comes back."""
    original, size, group = module.forward, mesh.size(), mesh.get_group()
    here = module.num_experts // size
    module.num_experts = here

    def averaged(part: torch.Tensor) -> torch.Tensor:
        """Its gradient is of all ranks' losses, and the other parameters' of their mean."""
        if part.requires_grad:
            part.register_hook(lambda gradient: gradient / size)  # type: ignore[no-untyped-call]
        return part

    def forward(hidden: torch.Tensor, chosen: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        experts = chosen.reshape(-1)
        order = torch.argsort(experts, stable=True)
        sent = torch.bincount(experts, minlength=here * size).view(size, here)
        received = torch.empty_like(sent)
        dist.all_to_all_single(received, sent, group=group)
        out, into = torch.stack([sent.sum(1), received.sum(1)]).tolist()
        words = _exchange(hidden[order // chosen.shape[1]], into, out, group)
        wanted = torch.arange(here, device=hidden.device).repeat(size).repeat_interleave(received.flatten())
        with local(module, own, through=averaged):
            said = _computed(original, words, wanted)
        back = _exchange(said, out, into, group)
        result = torch.zeros_like(back).index_copy(0, order, back).view(*chosen.shape, -1)
        return (result * weights.unsqueeze(-1)).sum(1).to(hidden.dtype)

    return forward


def _computed(original: Callable[..., torch.Tensor], words: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
    """Each word by the one expert it is for. A rank without words takes part in the backward pass all the same."""
    if words.shape[0] == 0:
        nothing = words.sum(0, keepdim=True)
        return original(nothing, wanted.new_zeros(1, 1), torch.ones_like(nothing[:, :1]))[:0]
    return original(words, wanted.unsqueeze(1), torch.ones_like(words[:, :1]))


def _exchange(rows: torch.Tensor, into: list[int], out: list[int], group: Any) -> torch.Tensor:
    """Rows to and from all ranks: ``out`` are sent to each, and ``into`` come from each."""
    empty = rows.new_empty(sum(into), *rows.shape[1:])
    return cast(torch.Tensor, cast(Any, all_to_all_single)(empty, rows.contiguous(), into, out, group=group))
