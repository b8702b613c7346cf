"""The optimizer of a divided model: each rank updates its own parameters, and the state is put together for saving."""

from __future__ import annotations

from typing import Any, Callable, Iterable

import torch
import torch.distributed as dist

from . import absent, clipping, log, sharding
from .model_state import PARTIAL
from .state import state


class DistributedOptimizer(torch.optim.Optimizer):
    """Wraps an optimizer of any kind, made before or after the model was wrapped; ``optimizer`` is that one.

    All ranks hold all parameters, those of other ranks without values and gradients. So the wrapped optimizer steps
    over them, and its indices of parameters mean the same everywhere.
    """

    def __init__(
        self, optimizer: torch.optim.Optimizer, static_loss_scale: float = 1.0, dynamic_loss_scale: bool = False,
        dynamic_loss_args: dict[str, Any] | None = None, **more: Any,
    ) -> None:  # fmt: skip
        if isinstance(optimizer, DistributedOptimizer):
            raise TypeError("the optimizer is a DistributedOptimizer already")
        if static_loss_scale != 1.0 or dynamic_loss_scale:
            log.warn("DistributedOptimizer: loss scaling is for fp16, which isn't on; the loss isn't scaled")
        self.optimizer = optimizer
        state.optimizer = self
        self.forget_absent()
        self.adopt_parts()

    def __getattr__(self, name: str) -> Any:
        if name == "optimizer":
            raise AttributeError(name)
        return getattr(self.optimizer, name)

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        return self.optimizer.param_groups

    @param_groups.setter
    def param_groups(self, groups: list[dict[str, Any]]) -> None:
        self.optimizer.param_groups = groups

    @property
    def state(self) -> Any:
        return self.optimizer.state

    @state.setter
    def state(self, value: Any) -> None:
        self.optimizer.state = value

    @property
    def defaults(self) -> dict[str, Any]:
        return self.optimizer.defaults

    @defaults.setter
    def defaults(self, value: dict[str, Any]) -> None:
        self.optimizer.defaults = value

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Updates this rank's parameters.

        With sharded data parallelism the gradients are clipped first, as ``sdp_gradient_clipping`` says.
        """
        if self._sharding is not None:
            self._sharding.reshard()
            if state.cfg.sdp_gradient_clipping:
                clipping.clip(self._parameters(), state.cfg.sdp_gradient_clipping)
        return self.optimizer.step() if closure is None else self.optimizer.step(closure)

    def zero_grad(self, set_to_none: bool = True) -> None:
        self.optimizer.zero_grad(set_to_none=set_to_none)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        self.optimizer.add_param_group(param_group)

    def local_state_dict(self, gather_if_shard: bool = True) -> dict[str, Any]:
        """The state of this rank's parameters, and the key that says so."""
        own = self._state_with(sharding.local)
        own[PARTIAL] = True
        return own

    def state_dict(self) -> dict[str, Any]:
        """The state of all parameters, as the wrapped optimizer has it in one process.

        Every rank of the pipeline must call it; each gets all.
        """
        whole = self._state_with(sharding.full)
        group = state.group("mp")
        if group.size > 1 and state.model is not None and state.model.partitioned:
            parts: list[Any] = [None] * group.size
            with log.waiting("optimizer.state_dict()"):
                dist.all_gather_object(parts, whole["state"], group=group.process_group)
            merged = {index: values for part in parts for index, values in part.items()}
            whole["state"] = {index: merged[index] for index in sorted(merged)}
        return whole

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Takes a full or a partial state; what belongs to parameters of other ranks is left out."""
        known = {key: value for key, value in state_dict.items() if key != PARTIAL}
        if self._sharding is not None:
            cut = sharding.from_local if PARTIAL in state_dict else sharding.part_of
            parameters = list(self._parameters())
            known["state"] = {
                index: {name: cut(value, parameters[index]) for name, value in values.items()}
                for index, values in known["state"].items()
            }
        away = {index for index, each in enumerate(self._parameters()) if isinstance(each, absent.AbsentParameter)}
        known["state"] = {index: values for index, values in known["state"].items() if index not in away}
        self.optimizer.load_state_dict(known)

    @property
    def _sharding(self) -> sharding.Sharding | None:
        return state.model.sharding if state.model is not None else None

    def adopt_parts(self) -> None:
        """Where the model is in shards, these are what is updated."""
        if self._sharding is not None:
            self._sharding.adopt(self.optimizer)

    def _state_with(self, change: Callable[[Any], Any]) -> dict[str, Any]:
        """The wrapped optimizer's state, and what belongs to shards changed."""
        own = self.optimizer.state_dict()
        if self._sharding is not None:
            with log.waiting("optimizer.state_dict()"):
                own["state"] = {
                    index: {name: change(value) for name, value in values.items()}
                    for index, values in own["state"].items()
                }
        return own

    def forget_absent(self) -> None:
        """Drops the state of parameters that are on other ranks now."""
        for parameter in [each for each in self.optimizer.state if isinstance(each, absent.AbsentParameter)]:
            del self.optimizer.state[parameter]

    def register_step_pre_hook(self, hook: Any) -> Any:
        return self.optimizer.register_step_pre_hook(hook)

    def register_step_post_hook(self, hook: Any) -> Any:
        return self.optimizer.register_step_post_hook(hook)

    def register_state_dict_pre_hook(self, hook: Any, prepend: bool = False) -> Any:
        return self.optimizer.register_state_dict_pre_hook(hook, prepend=prepend)

    def register_state_dict_post_hook(self, hook: Any, prepend: bool = False) -> Any:
        return self.optimizer.register_state_dict_post_hook(hook, prepend=prepend)

    def register_load_state_dict_pre_hook(self, hook: Any, prepend: bool = False) -> Any:
        return self.optimizer.register_load_state_dict_pre_hook(hook, prepend=prepend)

    def register_load_state_dict_post_hook(self, hook: Any, prepend: bool = False) -> Any:
        return self.optimizer.register_load_state_dict_post_hook(hook, prepend=prepend)

    def __repr__(self) -> str:
        return f"DistributedOptimizer({self.optimizer!r})"

    def _parameters(self) -> Iterable[torch.Tensor]:
        return (parameter for group in self.optimizer.param_groups for parameter in group["params"])
