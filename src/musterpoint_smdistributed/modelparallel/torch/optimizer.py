"""The optimizer of a divided model: each rank updates its own parameters, and the state is put together for saving.

With sharded state or a model in half precision the wrapped optimizer steps over :mod:`.leaves` in place of parameters.
"""

from __future__ import annotations

import functools
import inspect
from typing import Any, Callable, Iterable, Mapping

import torch
import torch.distributed as dist

from ..backend.exceptions import SMPUnsupportedError
from . import clipping, log, optimizer_trial, sharding
from .distributed_parameters import division, take_replaced
from .errors import SMPStepError
from .leaves import Leaves
from .optimizer_state import LossScale, OptimizerState, adopt, is_divided
from .state import state


class DistributedOptimizer(torch.optim.Optimizer):
    """Wraps an optimizer of any kind, made before or after the model was wrapped; ``optimizer`` is that one.

    All ranks hold all parameters, those of other ranks without values and gradients. So the wrapped optimizer steps
    over them, and its indices of parameters mean the same everywhere.

    Args:
        static_loss_scale: with ``fp16``, what losses are multiplied by.
        dynamic_loss_scale: with ``fp16``, the factor falls at overflows, which skip a step, and rises again.
        dynamic_loss_args: for that; see :class:`.LossScale`. May be given as keywords as well.

    Raises:
        TypeError: it is wrapped already, or is no optimizer.
        ValueError: a loss scale that can't be.
        SMPUnsupportedError: ranks have parts of the parameters, with which it does something else; see
            :mod:`.optimizer_trial`.
    """

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        static_loss_scale: float | None = 1.0,
        dynamic_loss_scale: bool = False,
        dynamic_loss_args: Mapping[str, Any] | None = None,
        **more: Any,
    ) -> None:
        if isinstance(optimizer, DistributedOptimizer):
            raise TypeError("the optimizer is a DistributedOptimizer already")
        if not all(hasattr(optimizer, name) for name in ("param_groups", "state", "step")):
            raise TypeError(
                f"smp.DistributedOptimizer: {type(optimizer).__qualname__} has no param_groups, state or step: derive "
                "it from torch.optim.Optimizer"
            )
        self.optimizer = optimizer
        take_replaced(optimizer)
        cfg = state.cfg
        half = cfg.fp16 or cfg.bf16
        scale = LossScale(static_loss_scale, dynamic_loss_scale, {**(dynamic_loss_args or {}), **more})
        self._scale = scale if cfg.fp16 else None
        if not cfg.fp16 and (dynamic_loss_scale or static_loss_scale not in (None, 1.0)):
            log.warn("DistributedOptimizer: loss scaling is for fp16, which isn't on; the loss isn't scaled")
        replicas = state.group("rdp")
        shared = replicas if cfg.shard_optimizer_state and replicas.size > 1 else None
        self._leaves = Leaves(optimizer, shared, half) if shared is not None or half else None
        if self._leaves is not None and optimizer_trial.inside(optimizer):
            raise SMPUnsupportedError(
                f"smp.DistributedOptimizer: {type(optimizer).__qualname__} has other optimizers inside, which would "
                "step over the model's own parameters: leave fp16, bf16 and shard_optimizer_state out, or use one "
                "optimizer with several groups"
            )
        self._trials = optimizer_trial.Trials(optimizer)
        self.overflow = False
        """Whether the last step was skipped, since a gradient was infinite or no number; with ``fp16`` only."""
        self._global_grad_norm: float | None = None  # AWS's scripts for sharded data parallelism log it
        self._ready = False
        self._kept = OptimizerState(optimizer, self._leaves, self._scale)
        state.optimizer = self
        self.settle()

    _is_accelerate_prepared = True
    """accelerate's mark of optimizers that it leaves as they are: its wrapper hides what scripts call here."""

    @property
    def step_was_skipped(self) -> bool:
        """What accelerate calls ``overflow``."""
        return self.overflow

    def __getattr__(self, name: str) -> Any:
        if name == "optimizer":
            raise AttributeError(name)
        if name == "_step_supports_amp_scaling" and self._leaves is not None:
            return False  # it would step over the model's parameters
        found = getattr(self.optimizer, name)
        if self._leaves is None or not inspect.ismethod(found) or hasattr(torch.optim.Optimizer, name):
            return found
        return functools.wraps(found)(functools.partial(self._leaves.call, found)) if is_divided() else found

    @property
    def fp32_partitioned_groups_flat(self) -> list[sharding.FlatGroup]:
        """What this rank has of each group, by AWS's name; with sharded data parallelism only."""
        self._in_shards("fp32_partitioned_groups_flat")
        return [sharding.FlatGroup(group["params"]) for group in self.param_groups]

    @property
    def ds_param_shard_group(self) -> Any:
        """The ranks of one copy of the model, by AWS's name; with sharded data parallelism only."""
        return self._in_shards("ds_param_shard_group").mesh["shard"].get_group()

    def _in_shards(self, name: str) -> sharding.Sharding:
        found: sharding.Sharding | None = state.model.sharding if state.model is not None else None
        if found is None:
            raise SMPStepError(f"optimizer.{name}: there are no shards; it needs sharded_data_parallel_degree over 1")
        return found

    @property
    def sharded(self) -> bool:
        """Whether the replicas share out the state (``shard_optimizer_state``)."""
        return self._leaves is not None and self._leaves.sharded

    @property
    def loss_scale(self) -> float:
        """What ``model.backward`` multiplies losses by; 1 unless ``fp16`` is on."""
        return 1.0 if self._scale is None else self._scale.value

    @property
    def master_params(self) -> list[torch.nn.Parameter]:
        """The copies in float32 on this rank; with sharded state of its share."""
        return [leaf.tensor for leaf in self._leaves or () if leaf.is_copy]

    @clipping.meanwhile(watches=False)
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Updates this rank's parameters; with sharded state all replicas must call it.

        With sharded data parallelism the gradients are clipped first, as ``sdp_gradient_clipping`` says.
        With ``fp16`` a step is skipped where a gradient on any rank is infinite or no number: ``overflow`` says so.
        """
        leaves, loss = self._leaves, None
        if leaves is not None and closure is not None:  # which may divide the model
            with torch.enable_grad():
                loss, closure = closure(), None
        self._trials.again(self.sharded)
        in_shards = state.model.sharding if state.model is not None else None
        if in_shards is not None:
            in_shards.reshard()
            in_shards.adopt(self.optimizer)  # a group that was added may have what the parts were made of
        limit = state.cfg.sdp_gradient_clipping if in_shards is not None else 0
        if leaves is None or not is_divided():
            if limit:
                self._global_grad_norm = clipping.clip_more(self._parameters(), limit)
            self._kept.take_deferred()
            result = self.optimizer.step() if closure is None else self.optimizer.step(closure)
            return result if loss is None else loss
        self._prepare(leaves)
        if not self.overflow:
            if limit:
                self._global_grad_norm = self.clip_master_grads(limit)
            with leaves.in_place_of_parameters(), clipping.meanwhile(shares=leaves.sharded):
                self.optimizer.step()
            leaves.give_values()
        leaves.drop_gradients()
        self._ready = False
        if self._scale is not None:
            self._scale.update(self.overflow)
            if self.overflow:
                log.say(f"a gradient overflowed: this step is skipped; the loss scale is {self._scale.value:g} now")
        return loss

    def clip_master_grads(self, max_norm: float, norm_type: float = 2.0) -> float:
        """Clips the gradients by the norm of the whole model's, and returns that; -1 where they overflowed.

        Every rank calls it, between the step function and :meth:`step`. With ``fp16`` it is for the gradients without
        the loss scale, in float32.
        """
        leaves = self._leaves
        if leaves is None or not is_divided() or not leaves.copies:
            return float(torch.nn.utils.clip_grad_norm_(list(self._parameters()), max_norm, norm_type))
        self._prepare(leaves)
        if self.overflow:
            return -1.0
        first = state.group("tp").rank == 0  # what all ranks of a tensor-parallel group have counts there
        trained = [leaf for leaf in leaves if leaf.tensor.grad is not None]
        counted = [leaf for leaf in trained if first or division(leaf.parameter) is not None]
        gradients = [leaf.tensor.grad for leaf in counted if leaf.tensor.grad is not None]
        parts = clipping.total_norm(gradients, norm_type) if gradients else torch.zeros(())
        total = clipping.of_all_parts(parts, float(norm_type), "rdp") if leaves.sharded else parts
        total = clipping.of_all_parts(total, float(norm_type), "mp")
        factor = torch.clamp(max_norm / (total.double() + 1e-6), max=1.0)
        for each in (*(leaf.tensor for leaf in trained), *self._loose()):
            if each.grad is not None:
                gradient = sharding.here(each.grad)
                gradient.mul_(factor.to(gradient))
        return float(total)

    def _prepare(self, leaves: Leaves) -> None:
        """The leaves get the gradients of this step, once; all ranks agree whether these overflowed."""
        if self._ready:
            return
        self._kept.settle()
        leaves.take_values()
        leaves.take_gradients(1 / self.loss_scale)
        self._ready = True
        if self._scale is None:
            return
        loose = [each.grad for each in self._loose() if each.grad is not None]
        for gradient in loose:
            gradient.mul_(1 / self.loss_scale)
        gradients = [*loose, *(leaf.tensor.grad for leaf in leaves if leaf.tensor.grad is not None)]
        finite = all(bool(torch.isfinite(sharding.here(gradient)).all()) for gradient in gradients)
        found = torch.tensor(float(not finite))
        for kind in ("mp", "rdp") if state.cfg.ddp else ("mp",):
            group = state.group(kind)
            if group.size > 1:
                with log.waiting("optimizer.step()"):
                    dist.all_reduce(found, dist.ReduceOp.MAX, group=group.process_group)
        self.overflow = bool(found)

    def gradients_changed(self) -> None:
        """The model has other gradients than those that were clipped, if any were."""
        self._ready = False

    def values_changed(self) -> None:
        """The model was loaded: copies take over what is new."""
        if self._leaves is not None:
            self._leaves.take_values()

    def zero_grad(self, set_to_none: bool = True) -> None:
        self.optimizer.zero_grad(set_to_none=set_to_none)
        self._ready = False

    # ---- state

    def local_state_dict(self, gather_if_shard: bool = True) -> dict[str, Any]:
        """The state of this rank's parameters, and the key that says so.

        Args:
            gather_if_shard: with sharded state, that of all replicas, each of which must call this then; else only what
                this replica has, for files of its own (``smp.save(…, v3=True)``).
        """
        return self._kept.own(gather_if_shard)

    def state_dict(self) -> dict[str, Any]:
        """The state of all parameters, as the wrapped optimizer has it in one process.

        Every rank of one copy of the model must call it, with sharded state every rank; each gets all.
        """
        return self._kept.whole()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Takes a full or a partial state, or shards; what belongs to other ranks is left out.

        Before the model is divided the state is kept until then; the options of the groups count at once. Raises
        SMPOptimizerStateError: shards of other replicas are missing.
        """
        self._kept.load(state_dict)
        self._ready = False

    def fp16_states(self, gather_if_shard: bool = True) -> dict[str, Any] | None:
        """What training in half precision has besides: float32 copies and the loss scale; None where it isn't on.

        ``gather_if_shard``: as for :meth:`local_state_dict`.
        """
        return self._kept.half(gather_if_shard)

    def load_fp16_states(self, states: Mapping[str, Any]) -> None:
        """Takes what :meth:`fp16_states` gave, or the same of all ranks."""
        self._kept.load_half(states)

    def settle(self) -> None:
        """The model is divided, or has more to train: the state of others' is dropped, and what is new shared out."""
        if adopt(self.optimizer) and self._leaves is not None:
            raise ValueError(
                "smp.DistributedOptimizer: under smp.tensor_parallelism other parameters take the place of those that "
                "it has: make it behind smp.DistributedModel"
            )
        self._trials.again(self.sharded)  # before ranks have the state of other parameters
        self._kept.settle()

    def __repr__(self) -> str:
        return f"DistributedOptimizer({self.optimizer!r})"

    def _parameters(self) -> Iterable[torch.Tensor]:
        return (parameter for group in self.optimizer.param_groups for parameter in group["params"])

    def _loose(self) -> Iterable[torch.Tensor]:
        """Parameters that the optimizer steps over themselves, in half precision."""
        assert self._leaves is not None
        whole = self._leaves.whole()
        return (each for index, each in enumerate(self._parameters()) if index not in whole)


def _passed_on(name: str) -> property:
    """An attribute of torch's optimizers, which is the wrapped one's."""
    return property(
        lambda self: getattr(self.optimizer, name), lambda self, value: setattr(self.optimizer, name, value)
    )


for _name in (
    "param_groups", "state", "defaults", "add_param_group", "register_step_pre_hook", "register_step_post_hook",
    "register_state_dict_pre_hook", "register_state_dict_post_hook", "register_load_state_dict_pre_hook",
    "register_load_state_dict_post_hook",
):  # fmt: skip
    setattr(DistributedOptimizer, _name, _passed_on(_name))
