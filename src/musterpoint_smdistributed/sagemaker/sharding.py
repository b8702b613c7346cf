"""Has torch's FSDP shard over as many ranks as ``hybrid_shard_degree`` says, however the script has imported it."""

from __future__ import annotations

import functools
import importlib
import inspect
import logging
from typing import Any, Callable, Mapping

import torch
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel, ShardingStrategy, StateDictType
from torch.distributed.tensor import DTensor, Replicate, distribute_tensor

from . import logger, own_folders
from .delayed_param import on_meta
from .errors import SMPConfigError, SMPUnsupportedError
from .expert_parallel import experts_of
from .state import state
from .tensor_parallel.dividing import divided_as, placements_of, without_wrappers


# Torch's would have flat parameters in the place of DTensors, and lose how they are divided. So it wraps the model
# here, leaves its parameters as they are, and optimizer states are put under the parameters' names without it.
def leave_out_all(given: dict[str, Any], afterwards: Callable[[nn.Module], Any] | None) -> None:
    """Changes the arguments of FullyShardedDataParallel."""
    module = given["module"]
    if on_meta(module):
        materialize(module, given.pop("param_init_fn", None), afterwards or (lambda _: None))
    if given.get("mixed_precision") is not None:
        logger.say(
            f"{state.cfg.shown('tensor_parallel_degree')}: no ranks are left to shard over, so "
            "FullyShardedDataParallel's mixed_precision has no effect: use torch.autocast, or more ranks",
            logging.WARNING,
        )
    given.pop("ignored_modules", None)
    given["ignored_states"] = set(module.parameters())


def materialize(
    module: nn.Module, initialize: Callable[[nn.Module], Any] | None, afterwards: Callable[[nn.Module], Any]
) -> None:
    """Gives the whole model its memory before it is cut, because weights that modules share are tied again after it."""
    for inner in module.modules():
        if initialize is not None and any(each.is_meta for each in inner.parameters(recurse=False)):
            initialize(inner)
    afterwards(module)


def to_save(model: nn.Module, optimizer: Any) -> dict[str, Any]:
    """The optimizer's state by the parameters' names, as ``FullyShardedDataParallel.optim_state_dict`` gives it."""
    names = _names(model)
    found = optimizer.state_dict()
    order = [each for group in optimizer.param_groups for each in group["params"]]
    numbers = [number for group in found["param_groups"] for number in group["params"]]
    by_number = {number: names[each] for number, each in zip(numbers, order)}
    groups = [{**each, "params": [by_number[number] for number in each["params"]]} for each in found["param_groups"]]
    return {"state": {by_number[number]: values for number, values in found["state"].items()}, "param_groups": groups}


def to_load(model: nn.Module, optimizer: Any, saved: dict[str, Any]) -> dict[str, Any]:
    """The other way, for ``optimizer.load_state_dict``."""
    names, number = _names(model), 0
    states, groups = {}, []
    for group, old in zip(optimizer.param_groups, saved["param_groups"]):
        numbers = []
        for parameter in group["params"]:
            values = saved["state"].get(names[parameter])
            if values is not None:
                states[number] = {key: _like(parameter, value) for key, value in values.items()}
            numbers.append(number)
            number += 1
        groups.append({**old, "params": numbers})
    return {"state": states, "param_groups": groups}


def _names(model: nn.Module) -> dict[Any, str]:
    return {each: without_wrappers(name) for name, each in model.named_parameters()}


def _like(parameter: Any, value: Any) -> Any:
    """A tensor of this rank's part as the parameter is divided."""
    if not isinstance(parameter, DTensor) or not isinstance(value, torch.Tensor) or isinstance(value, DTensor):
        return value
    local = parameter.to_local()
    return divided_as(parameter, value.to(local.device)) if value.shape == local.shape else value


_DONE = "of_torch_alone"
_FULLY_SHARD = "torch.distributed.fsdp._fully_shard._fully_shard"
_DEFAULT_MESH = ("_init_default_mesh", "_init_default_fully_shard_mesh")
"""What ``fully_shard`` asks where the script gives no mesh, in torch 2.13 and before."""


def install() -> None:
    """Changes FullyShardedDataParallel and ``fully_shard``, once, for calls that name neither groups nor a mesh."""
    original = FullyShardedDataParallel.__init__
    if hasattr(original, _DONE):
        return
    signature = inspect.signature(original)

    @functools.wraps(original)
    def init(
        self: Any, *args: Any, post_param_init_fn: Callable[[nn.Module], Any] | None = None, **kwargs: Any
    ) -> None:
        given = signature.bind_partial(self, *args, **kwargs).arguments
        if state._world is not None and given.get("process_group") is None and given.get("device_mesh") is None:
            given.update(_sharded(given))
            if state.world.layout.experts > 1:
                _leave_out_experts(given)
            if state.world.tensor is not None and state.world.layout.shards == 1:
                leave_out_all(given, post_param_init_fn)
        if post_param_init_fn is not None and on_meta(given["module"]):
            materialize(given["module"], given.pop("param_init_fn", None), post_param_init_fn)
        frozen = {without_wrappers(name) for name, each in given["module"].named_parameters() if not each.requires_grad}
        original(**given)
        for name, each in self.named_parameters():  # torch has those that tensor parallelism divides trained again
            if without_wrappers(name) in frozen:
                each.requires_grad_(False)
        if state._world is not None and state.world.tensor is not None:
            self._register_state_dict_hook(_whole)
            self.register_load_state_dict_pre_hook(_divided)

    vars(init)[_DONE] = original
    FullyShardedDataParallel.__init__ = init  # type: ignore[method-assign]
    _install_optimizer_states()
    _install_mesh()
    own_folders.install()


def _install_optimizer_states() -> None:
    """Changes how FullyShardedDataParallel reads optimizer states beside tensor parallelism.

    Torch (2.13) gathers a state over all ranks of the mesh, and then cuts it as if it were this tensor rank's part.
    """
    original = FullyShardedDataParallel.optim_state_dict_to_load

    @functools.wraps(original)
    def loaded_state(
        model: nn.Module, optim: Any, optim_state_dict: dict[str, Any], *args: Any, **kwargs: Any
    ) -> dict[str, Any]:
        mesh = state.world.tensor if state._world is not None else None
        if mesh is not None and state.world.layout.shards == 1:
            return to_load(model, optim, optim_state_dict)
        if mesh is not None:
            placements = placements_of(model)

            def part(name: Any, value: Any) -> Any:
                where = placements.get(without_wrappers(str(name)))
                if isinstance(value, DTensor):
                    *shards, last = value.placements
                    value = value.redistribute(placements=[*(Replicate() for _ in shards), last])
                elif isinstance(value, torch.Tensor) and value.ndim and where is not None:
                    value = distribute_tensor(value, mesh, [where], src_data_rank=None)
                return value.to_local() if isinstance(value, DTensor) else value

            given = optim_state_dict["state"].items()
            states = {name: {key: part(name, value) for key, value in each.items()} for name, each in given}
            optim_state_dict = {**optim_state_dict, "state": states}
        return original(model, optim, optim_state_dict, *args, **kwargs)

    FullyShardedDataParallel.optim_state_dict_to_load = staticmethod(loaded_state)  # type: ignore[method-assign]
    saved = FullyShardedDataParallel.optim_state_dict

    @functools.wraps(saved)
    def saved_state(model: nn.Module, optim: Any, *args: Any, **kwargs: Any) -> dict[str, Any]:
        if state._world is not None and state.world.tensor is not None and state.world.layout.shards == 1:
            return to_save(model, optim)
        return saved(model, optim, *args, **kwargs)

    FullyShardedDataParallel.optim_state_dict = staticmethod(saved_state)  # type: ignore[method-assign]


def _sharded(given: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of FullyShardedDataParallel that the configuration says."""
    world, strategy = state.world, given.get("sharding_strategy")
    mesh = world.mesh
    if mesh is None:
        return {}
    if world.tensor is not None:
        _check_tensor_parallel(given)
    if world.layout.shards == 1:
        alone = {} if world.tensor is None else {"process_group": world.groups["replicate"]}
        return {"sharding_strategy": ShardingStrategy.NO_SHARD, **alone}
    after_forward = strategy not in (ShardingStrategy._HYBRID_SHARD_ZERO2, ShardingStrategy.SHARD_GRAD_OP)
    if world.layout.copies == 1:
        whole = ShardingStrategy.FULL_SHARD if after_forward else ShardingStrategy.SHARD_GRAD_OP
        return {"sharding_strategy": whole} | ({} if world.tensor is None else {"device_mesh": mesh})
    hybrid = ShardingStrategy.HYBRID_SHARD if after_forward else ShardingStrategy._HYBRID_SHARD_ZERO2
    return {"process_group": (mesh.get_group("shard"), mesh.get_group("replicate")), "sharding_strategy": hybrid}


def _leave_out_experts(given: dict[str, Any]) -> None:
    """Experts that are divided over ranks are sharded already, over those with the same ones."""
    own = {each for module in experts_of(given["module"]).values() for each in module.parameters()}
    modules = given.pop("ignored_modules", None) or ()
    own.update(each for module in modules for each in module.parameters())
    for each in given.get("ignored_states") or ():
        own.update(each.parameters() if isinstance(each, nn.Module) else (each,))
    given["ignored_states"] = own


def _check_tensor_parallel(given: Mapping[str, Any]) -> None:
    layout = state.world.layout
    if not given.get("use_orig_params"):
        raise SMPConfigError(
            f"FullyShardedDataParallel with {state.cfg.shown('tensor_parallel_degree')}: pass use_orig_params=True"
        )
    shared = _shared_with_others(given["module"])
    if shared:
        raise SMPUnsupportedError(
            f"FullyShardedDataParallel with {state.cfg.shown('tensor_parallel_degree')}: torch loses that "
            f"{' and '.join(shared)} are one; use torch.distributed.fsdp.fully_shard, which keeps them tied, or a "
            "model without tied weights"
        )
    if layout.copies > 1:
        raise SMPUnsupportedError(
            f"FullyShardedDataParallel with {state.cfg.shown('tensor_parallel_degree')} and "
            f"{state.cfg.shown('hybrid_shard_degree')} on {layout.size} ranks: torch has it with one copy of the model "
            f"only (hybrid_shard_degree={layout.size // layout.tensor}); use torch.distributed.fsdp.fully_shard, which "
            "takes copies as well"
        )


def _whole(module: Any, found: dict[str, Any], prefix: str, metadata: Any) -> None:
    """Parts that tensor-parallel ranks have are put together as well where the script asks for a full state dict."""
    if module._state_dict_type != StateDictType.FULL_STATE_DICT:
        return
    config = module._state_dict_config
    for name, each in list(found.items()):
        if name.startswith(prefix) and isinstance(each, DTensor):
            tensor = each.full_tensor()
            found[name] = tensor.cpu() if config.offload_to_cpu else tensor
            if config.rank0_only and state.tp_rank:
                del found[name]


def _divided(module: Any, given: dict[str, Any], *more: Any) -> None:
    """The other way: each rank's part of what is loaded, where that is whole."""
    mesh = state.world.tensor
    if module._state_dict_type != StateDictType.FULL_STATE_DICT or mesh is None:
        return
    placements = placements_of(module)
    for name, each in list(given.items()):
        placement = placements.get(without_wrappers(name))
        if placement is not None and not isinstance(each, DTensor):
            given[name] = distribute_tensor(each, mesh, [placement], src_data_rank=None)


def _shared_with_others(module: nn.Module) -> list[str]:
    """Two names of one parameter, if there is one with two."""
    names: dict[int, str] = {}
    for name, each in module.named_parameters(remove_duplicate=False):
        if id(each) in names:
            return [names[id(each)], name]
        names[id(each)] = name
    return []


def _install_mesh() -> None:
    room = importlib.import_module(_FULLY_SHARD)
    name = next((each for each in _DEFAULT_MESH if hasattr(room, each)), None)
    if name is None:
        logger.say(
            "hybrid_shard_degree has no effect on fully_shard in this torch: give it mesh=tsm.state.world.mesh",
            logging.WARNING,
        )
        return

    original = getattr(room, name)

    @functools.wraps(original)
    def mesh(*args: Any, **kwargs: Any) -> Any:
        return original(*args, **kwargs) if state._world is None or state.world.mesh is None else state.world.mesh

    setattr(room, name, mesh)
