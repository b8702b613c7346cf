"""Divides a model's layers over the tensor-parallel ranks, by the plan that transformers' models carry."""

from __future__ import annotations

import re
from typing import Any, Mapping

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Placement, Replicate, Shard, distribute_tensor

from ..errors import SMPConfigError, SMPUnsupportedError
from ..styles import ROWS, STYLES, WHOLE, Style, check, install

_PLACEMENTS = "_tsm_placements"
"""The attribute of a transformed model with the placements of its parameters, by name."""


def parallelize(model: nn.Module, mesh: DeviceMesh, from_rank0: bool = False) -> nn.Module:
    """Makes all parameters DTensors on ``mesh``, and has modules compute with their part of them.

    The first rank's weights count. ``from_rank0``: rank 0 of the job has weights, while others may have none (on the
    meta device).
    """
    styles = _styles(model, mesh.size())
    _check_heads(model, mesh.size())
    modules = dict(model.named_modules())
    for name, module in modules.items():
        check(name, module, styles.get(name, WHOLE), mesh)
    if from_rank0 and 0 in dist.get_process_group_ranks(mesh.get_group()):
        _materialize(model, mesh)
    _agree_on_randomness(mesh)
    divided: dict[nn.Parameter, nn.Parameter] = {}
    placements: dict[str, Placement] = {}
    for name, module in modules.items():
        style = styles.get(name, WHOLE)
        own = {each: value for each, value in module._parameters.items() if value is not None}
        if not own:
            continue
        install(name, module, style, mesh)
        for each, value in own.items():
            if value not in divided:
                dimension = style.dimension(module, each)
                placement: Placement = Replicate() if dimension is None else Shard(dimension)
                divided[value] = shared_out(value, mesh, placement)
            module._parameters[each] = divided[value]
            placements[f"{name}.{each}" if name else each] = divided[value].placements[0]  # type: ignore[attr-defined]
    vars(model)[_PLACEMENTS] = placements
    _expect_one_batch(model, mesh)
    return model


def shared_out(value: nn.Parameter, mesh: DeviceMesh, placement: Placement) -> nn.Parameter:
    """The parameter as a DTensor, with the first rank's values; on the meta device without communication."""
    tensor = distribute_tensor(value.detach(), mesh, [placement], src_data_rank=0)
    return nn.Parameter(tensor, requires_grad=value.requires_grad)


def on_tensor_ranks(value: torch.Tensor) -> bool:
    """Whether it is on the meta device, and ``parallelize`` has decided where its parts go; not ``fully_shard``."""
    return isinstance(value, DTensor) and value.is_meta and value.device_mesh.ndim == 1


def shared_out_as(before: Any, value: nn.Parameter) -> nn.Parameter:
    """``value``, of all ranks, in the place of ``before``, which had no memory."""
    return shared_out(value, before.device_mesh, before.placements[0])


def divided_as(parameter: DTensor, local: torch.Tensor) -> DTensor:
    """This rank's part of something that is divided as the parameter is."""
    mesh, placements = parameter.device_mesh, parameter.placements
    shape, stride = parameter.shape, parameter.stride()
    return DTensor.from_local(local, mesh, placements, run_check=False, shape=shape, stride=stride)


def placements_of(model: nn.Module) -> dict[str, Placement]:
    """Of the parameters on tensor-parallel ranks, by their names in ``model`` without what wraps its modules."""
    found: dict[str, Placement] = {}
    for name, module in model.named_modules():
        prefix = without_wrappers(f"{name}.") if name else ""
        found.update({prefix + each: where for each, where in vars(module).get(_PLACEMENTS, {}).items()})
    return found


def without_wrappers(name: str) -> str:
    """A parameter's name without those that torch's wrappers of modules put between."""
    for wrapper in ("_fsdp_wrapped_module.", "_checkpoint_wrapped_module."):
        name = name.replace(wrapper, "")
    return name


def _styles(model: nn.Module, degree: int) -> dict[str, Style]:
    """By the names of modules."""
    plan: Mapping[str, str] = getattr(model, "_tp_plan", None) or {}
    if not plan:
        raise SMPUnsupportedError(
            f"tsm.transform: tensor_parallel_degree={degree}, but {type(model).__name__} has no plan of its layers: "
            "models of transformers with a base_model_tp_plan in their configuration have one (Llama, Mistral, "
            "Mixtral, GPT-NeoX, …); set tensor_parallel_degree to 1 and raise hybrid_shard_degree for others"
        )
    patterns = {re.compile(re.escape(each).replace(r"\*", r"\d+")): style for each, style in plan.items()}
    found: dict[str, Style] = {}
    for name, _ in model.named_modules():
        style = next((style for pattern, style in patterns.items() if pattern.fullmatch(name)), None)
        if style is None:
            continue
        if style not in STYLES:
            raise SMPUnsupportedError(
                f"tsm.transform: {name} of {type(model).__name__} is to be divided as {style!r}, which musterpoint's "
                f"torch.sagemaker doesn't know (it knows {', '.join(STYLES)}): set tensor_parallel_degree to 1"
            )
        found[name] = STYLES[style]
    _of_parameters(model, patterns, found)
    _of_words(model, degree, found)
    _agree_on_tied(model, found)
    return found


def _of_parameters(model: nn.Module, patterns: Mapping[re.Pattern[str], str], found: Mapping[str, Style]) -> None:
    """Plans name parameters of stacked experts as well; what else they name is unknown."""
    for name, _ in model.named_parameters():
        owner = name.rpartition(".")[0]
        if owner not in found and any(pattern.fullmatch(name) for pattern in patterns):
            raise SMPUnsupportedError(
                f"tsm.transform: the plan of {type(model).__name__} divides the parameter {name} by itself, which "
                "musterpoint's torch.sagemaker doesn't: set tensor_parallel_degree to 1"
            )


def _of_words(model: nn.Module, degree: int, found: dict[str, Style]) -> None:
    """The embedding of words and the head are divided by words, where these are divisible, and whole where not."""
    embedding = getattr(model, "get_input_embeddings", lambda: None)()
    heads = getattr(model, "get_output_embeddings", lambda: None)()
    names = {module: name for name, module in model.named_modules()}
    for module, kind, style in ((embedding, nn.Embedding, ROWS), (heads, nn.Linear, STYLES["colwise_rep"])):
        if isinstance(module, kind) and module in names:
            if module.weight.shape[0] % degree or getattr(module, "max_norm", None) is not None:
                found.pop(names[module], None)
            else:
                found[names[module]] = style


def _agree_on_tied(model: nn.Module, found: dict[str, Style]) -> None:
    """Modules that share a parameter have it whole where they would divide it differently."""
    owners: dict[nn.Parameter, dict[str, int | None]] = {}
    for name, module in model.named_modules():
        for parameter, value in module.named_parameters(recurse=False):
            owners.setdefault(value, {})[name] = found.get(name, WHOLE).dimension(module, parameter)
    for dimensions in owners.values():
        if len(set(dimensions.values())) > 1:
            for name in dimensions:
                found.pop(name, None)


def _check_heads(model: nn.Module, degree: int) -> None:
    config = getattr(model, "config", None)
    for name in ("num_attention_heads", "num_key_value_heads", "num_local_experts"):
        count = getattr(config, name, None)
        if isinstance(count, int) and count % degree:
            raise SMPConfigError(
                f"tensor_parallel_degree={degree} doesn't divide {name}={count} of {type(model).__name__}: each rank "
                "has whole ones; choose a degree that does"
            )


def _materialize(model: nn.Module, mesh: DeviceMesh) -> None:
    """Gives parameters and buffers on the meta device memory, and buffers rank 0's values."""
    for module in model.modules():
        for each, value in module._parameters.items():
            if value is not None and value.is_meta:
                empty = torch.empty_like(value, device=mesh.device_type)
                module._parameters[each] = nn.Parameter(empty, requires_grad=value.requires_grad)
        for each, buffer in module._buffers.items():
            if buffer is not None:
                ready = torch.empty_like(buffer, device=mesh.device_type) if buffer.is_meta else buffer
                dist.broadcast(ready, group=mesh.get_group(), group_src=0)
                module._buffers[each] = ready
    tie = getattr(model, "tie_weights", None)
    if tie is not None:
        tie()


def _agree_on_randomness(mesh: DeviceMesh) -> None:
    """Dropout between layers must be the same on all ranks that share them: they go on with the first one's numbers."""
    cuda = mesh.device_type == "cuda"
    states: list[Any] = [torch.get_rng_state(), torch.cuda.get_rng_state() if cuda else None]
    dist.broadcast_object_list(states, group=mesh.get_group(), group_src=0)
    torch.set_rng_state(states[0])
    if cuda:
        torch.cuda.set_rng_state(states[1])


def _expect_one_batch(model: nn.Module, mesh: DeviceMesh) -> None:
    """Checks at the first batch that the ranks got the same one."""

    def check(module: nn.Module, args: Any, kwargs: Any) -> None:
        handle.remove()
        words = kwargs.get("input_ids", args[0] if args else None)
        if not isinstance(words, torch.Tensor) or words.is_meta:
            return
        order = torch.arange(1, words.numel() + 1, device=words.device)
        own = (tuple(words.shape), int((words.flatten() * order).sum()))
        everyones: list[Any] = [None] * mesh.size()
        dist.all_gather_object(everyones, own, group=mesh.get_group())
        if any(each != everyones[0] for each in everyones):
            raise SMPConfigError(
                f"ranks {dist.get_process_group_ranks(mesh.get_group())} share layers (tensor_parallel_degree "
                f"{mesh.size()}) and were given different batches: shard the data by tsm.state.dp_rank and "
                "tsm.state.dp_size"
            )

    handle = model.register_forward_pre_hook(check, with_kwargs=True)
