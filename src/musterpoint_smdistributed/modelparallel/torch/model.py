"""The model in parts: every rank of a pipeline has all modules, and the values of its own parameters only."""

from __future__ import annotations

import functools
import sys
from collections import Counter, OrderedDict
from contextlib import nullcontext
from typing import Any, Callable, Iterator, Mapping, Sequence

import torch
from torch import nn
from torch.utils import _pytree
from torch.utils.hooks import RemovableHandle

from ..backend.exceptions import SMPUnsupportedError
from . import (
    absent,
    agreement,
    clipping,
    communication,
    delayed,
    log,
    model_state,
    part_reads,
    passes,
    precision,
    randomness,
    reducer,
    sharding,
    structure,
    tensor_parallel,
)
from .distributed_parameters import division, reduction
from .errors import SMPStepError
from .model_state import PARTIAL, full_state, load_local, local_state, whole_values, without_mark
from .nn.attention import DistributedAttentionLayer
from .nn.base import DistributedModule
from .nn.huggingface import models as huggingface
from .optimizer_state import settle_others
from .partition import agree, decide
from .patches.checkpoint import set_activation_checkpointing
from .pipeline import connect
from .places import Places
from .replaced import refuse_cache
from .routing import ModuleRouting
from .scheduler import current
from .server import Outcome, Server
from .state import state
from .structure import Structure

Hook = Callable[["DistributedModel", Any], Any]


class DistributedModel(nn.Module):
    """Wraps the script's model; there is one per script.

    With one partition it is whole from the beginning; with several it is divided at the first step. Attributes that it
    doesn't have are those of ``module``, the script's model.

    Args:
        module: the same on every rank, but for its values: those of rank 0 count.
        overlapping_allreduce: average gradients over the replicas while backward passes still run.
        backward_passes_per_step: average them in every so many steps; the others add up.
        average_grads_across_microbatches: divide gradients by the number of microbatches; else they are the sum.
        bucket_cap_mb: how much of the gradients travels at once, in MiB.
        broadcast_buffers: before a step in training each replica gets the buffers of the first one, as in
            DistributedDataParallel.
        trace_device, trace_execution_times, trace_memory_usage, find_unused_parameters, gradient_as_bucket_view: taken,
            and without effect: nothing is traced on a device of its own, unused parameters are found always.

    Raises:
        SMPStepError: there is one already, around another model.
    """

    def __new__(cls, module: nn.Module | None = None, *args: Any, **kwargs: Any) -> DistributedModel:
        """Around the model that has been wrapped already: the same one, as transformers' Trainer needs that has only
        evaluated so far."""
        made: DistributedModel | None = state.model
        again = module is not None and type(made) is cls and made._wrapped is module
        return made if made is not None and again else super().__new__(cls)

    def __init__(
        self,
        module: nn.Module,
        trace_device: str = "gpu",
        trace_execution_times: bool = False,
        overlapping_allreduce: bool = True,
        backward_passes_per_step: int = 1,
        average_grads_across_microbatches: bool = True,
        bucket_cap_mb: float = 25,
        trace_memory_usage: bool = False,
        broadcast_buffers: bool = True,
        find_unused_parameters: bool = False,
        gradient_as_bucket_view: bool = False,
        **unknown: Any,
    ) -> None:
        if self is state.model:
            self._passes = backward_passes_per_step
            return
        super().__init__()
        given = sorted(name for name, value in unknown.items() if value is not None)
        if given:
            raise TypeError(f"smp.DistributedModel: {', '.join(given)}: there is no such argument")
        if state.model is not None or isinstance(module, DistributedModel):
            raise SMPStepError("smp.DistributedModel wraps one model per script, and there is one already")
        with log.waiting("smp.DistributedModel"):
            model_state.agree(module)
        self._waits = bool(delayed.named(module))
        if state.cfg.delayed_parameter_initialization and not delayed.used:
            log.warn(
                f"{state.cfg.shown('delayed_parameter_initialization')}: without effect, since the model was made "
                "outside of smp.model_creation() and smp.delay_param_initialization()"
            )
        if state.cfg.tensor_parallel_degree > 1:
            structure.check(module, divides=False)
            tensor_parallel.mark(module)
            with log.waiting("smp.DistributedModel"):
                model_state.share(
                    _without_delayed(module), model_state.everything
                )  # parts are to be those of one parameter
        self.__dict__["_wrapped"] = module  # which isn't ``module`` where another one takes its place
        self.module = tensor_parallel.distribute(module)
        if state.cfg.tensor_parallel_degree > 1:
            absent.give_back()  # of whole values
        precision.convert(self.module)
        if state.cfg.checkpoint_attentions:
            _checkpoint_attentions(self.module)
        self.partitioned = False
        self._overlap, self._bucket_bytes = overlapping_allreduce, int(bucket_cap_mb * reducer.MIB)
        self._passes = backward_passes_per_step
        self._averages, self._shares_buffers = average_grads_across_microbatches, broadcast_buffers
        self._is_whole = False
        self._steps = 0
        self._begun: Counter[str] = Counter()
        self._called = False
        self._owner: Mapping[str, int] = {}
        self._server: Server | None = None
        self._structure = Structure(self.module, lambda name: False)
        self._reducer: reducer.Reducers | reducer.ShardedGradients | None = None
        self.sharding: sharding.Sharding | None = None
        self._comm_hook: tuple[Any, Any] | None = None
        self._deferred: tuple[Mapping[str, Any], bool] | None = None
        self._partition_hooks: OrderedDict[int, Hook] = OrderedDict()
        self._step_hooks: OrderedDict[int, Hook] = OrderedDict()
        state.model = self
        if state.group("pp").size == 1:
            self._divide()

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            if name == "module":
                raise
            return getattr(super().__getattr__("module"), name)

    def __reduce_ex__(self, protocol: Any) -> Any:
        structure.no_copy("", "it is in parts over the ranks")

    def get_module(self) -> nn.Module:
        """The script's model."""
        return self.module

    # ---- in a step

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The model's forward pass for one microbatch.
        Raises SMPStepError: it isn't called by a step function, and there are several partitions."""
        if (self._server is not None and current() is None) or not self.partitioned:
            raise SMPStepError("forward pass on smp.DistributedModel must be inside an @smp.step function")
        self._called = True
        if self._server is not None:
            passes.check_transforms("the model")
        args, kwargs = precision.enter((args, kwargs))
        if self._is_whole:
            refuse_cache(self.module, "the model is called on several ranks")
            self._choose_routes(args, kwargs)
        result = self.module(*args, **kwargs)
        part_reads.compare(None)
        return precision.leave(result)

    def _choose_routes(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """The leader keeps all values until the first call, to see how modules can be called together."""
        assert self._server is not None
        self._is_whole = False
        state.tracing = True
        try:
            chains = self._routing.decide(args, kwargs)
            if state.group("tp").size > 1:
                chains = self._routing.keep(communication.allgather(chains, communication.TP_GROUP))
            self._server.announce(chains)
        finally:
            state.tracing = False
        with part_reads.allowed():
            absent.release_all(self._foreign())

    def backward(self, tensors: Any, grad_tensors: Any = None) -> None:
        """The backward pass of one microbatch; step functions call it instead of ``loss.backward()``.
        Raises SMPStepError: the configuration says ``pipeline: _only_forward``."""
        if state.cfg.pipeline == "_only_forward":
            raise SMPStepError(f"model.backward: {state.cfg.shown('pipeline')} allows forward passes only")
        if self._server is not None:
            self._server.turn_backward()
        scale = 1.0 if state.optimizer is None else state.optimizer.loss_scale
        if scale != 1.0:
            tensors = _pytree.tree_map_only(torch.Tensor, lambda tensor: tensor * scale, tensors)
        torch.autograd.backward(tensors, grad_tensors)

    def run_step(
        self,
        step: str,
        bodies: Callable[[], Sequence[Callable[[], Any]]],
        merge: Callable[[list[Any]], Any],
        arguments: Any = None,
    ) -> Any:
        """Runs a step on all ranks of the pipeline. ``bodies`` are for the leader alone."""
        for each in self.distributed_modules() if "torch._dynamo" in sys.modules else ():
            if "forward" not in vars(each):
                each.forward = torch.compiler.disable(each.forward)  # type: ignore[no-untyped-call]
        if not self.partitioned:
            self._divide()
        self._called = False
        server = self._server
        before = self._begun[step]
        part_reads.begin(before)
        self._begun[step] += 1

        def merged(results: list[Any]) -> Any:
            if not self._called:
                raise SMPStepError(f"the step function {step} hasn't called the model")
            return merge(results)

        def calls() -> list[Callable[[], Any]]:
            return [functools.partial(_looked_at, body) for body in bodies()]

        outcome: Outcome[Any]
        if server is None:
            self._begin(torch.is_grad_enabled())
            with agreement.alike(step, arguments), self.sharding.step(step, before) if self.sharding else nullcontext():
                outputs = merged([call() for call in calls()])
            outcome = Outcome(outputs, any(parameter.grad is not None for parameter in self._structure.own.values()))
        else:
            outcome = server.step(step, calls, merged, self._begin, agreement.alike(step, arguments))
        self._finish(outcome.backward)
        hooks = list(self._step_hooks.values())
        self._step_hooks.clear()
        for hook in hooks:
            hook(self, state.optimizer)
        return outcome.outputs

    def _begin(self, recorded: bool) -> None:
        """A step begins, with what the script has made of the model meanwhile.
        Raises SMPStepError: it has other modules or parameters, and parts of it are on several ranks."""
        self._recorded = recorded
        if recorded and state.cfg.microbatches > 1:
            refuse_cache(self.module, "it is around a step function, which runs several microbatches")
        if self.sharding is not None:
            self.sharding.reshard()
        changes, replicas = self._structure.changes(self.module), state.group("dp")
        if changes and self._server is not None:
            structure.refuse(changes[0])
        if not recorded or self._reducer is None:
            return
        if state.cfg.ddp and replicas.size > 1:
            structure.agree(changes, self._structure.own, replicas)
        if changes:
            self._take_in()
        trained = self.sharding.parts if self.sharding is not None else self._structure.own
        passes.refuse_hooks({name: each for name, each in trained.items() if _has_part(each)})
        self._reducer.begin(
            1 / state.cfg.microbatches if self._averages else 1.0, (self._steps + 1) % self._passes == 0
        )
        if self._shares_buffers and self.module.training:
            model_state.share_buffers(self._own_buffers().values())

    def _take_in(self) -> None:
        """Gives what is new rank 0's values, whole on every rank."""
        assert self._reducer is not None
        structure.check(self.module, self.sharding is not None)
        added = self._structure.added(self.module)
        if precision.half() is not None and added:
            raise SMPStepError(
                f"{next(iter(added))} was added behind smp.DistributedModel, which has made the others "
                f"{precision.half()}: add it before, or leave fp16 and bf16 out"
            )
        model_state.share(added.items(), model_state.everything)
        self._owner = decide(self.module, state.cfg).owner
        if self.sharding is not None:
            self.sharding.take_in(added)
        self._structure = Structure(self.module, self._is_own)
        self._reducer.end()
        self._reduce(self._reducer.keeps)
        if state.optimizer is not None:
            state.optimizer.settle()

    def _finish(self, backward: bool) -> None:
        if not self._recorded or self._reducer is None:
            return
        if not backward:
            self._reducer.cancel()
            return
        self._steps += 1
        if state.optimizer is not None:
            state.optimizer.gradients_changed()
        try:
            self._reducer.finish()
        except RuntimeError as error:
            if self._server is None:
                raise
            raise self._server.failure_of_another(error) from None

    # ---- dividing

    def _divide(self) -> None:
        """Decides who owns what, gives up the rest, and connects the ranks of the pipeline."""
        pipeline = state.group("pp")
        structure.check(self.module, max(pipeline.size, state.cfg.sharded_data_parallel_degree) > 1)
        device = randomness.own_device()
        with log.waiting("the first step, or smp.DistributedModel, which divides the model"):
            model_state.agree(self.module)
            self._owner = agree(self.module).owner
            delays = bool(delayed.named(self.module))
            if state.cfg.sharded_data_parallel_degree == 1:
                model_state.share(_tensors(self.module), lambda name: self._holder(name) == pipeline.rank, device)
            else:
                model_state.share(_without_delayed(self.module), model_state.everything)
        if pipeline.size > 1:
            places = Places(self.module, self._owner)
            together = 1 if _is_one_by_one() else state.cfg.microbatches
            self._routing = ModuleRouting(self.module, places, pipeline.rank, pipeline.ranks, together)
            self._server = connect(self._routing, device)
            self._routing.install(self._server)
            state.wait = self._server.wait
            self._is_whole = self._server.is_leader and not state.cfg.skip_tracing and not delays
            if delays:
                log.say(
                    "the model runs module by module over the ranks: its initialization was delayed, so that no rank "
                    "has all of it to compare stages with"
                )
            self._routing.guard.install(lambda said: communication.allgather(said, communication.PP_GROUP))
            if self._is_whole:
                for _, tensor in self._foreign():
                    absent.mark(tensor)
            else:
                absent.release_all(self._foreign())
        clipping.install()
        if device is not None:
            self.to(device)
        if state.cfg.sharded_data_parallel_degree > 1:
            self.sharding = _sharding(self.module, device)
            sharding.note(self.module.parameters())
        self._structure = Structure(self.module, self._is_own)
        structure.keep(self.module, functools.partial(_partial, self._holder))
        self._reduce()
        self.partitioned = True
        if self._deferred is not None:
            self.load_state_dict(*self._deferred)
            self._deferred = None
        if self.sharding is not None or state.group("tp").size > 1:
            settle_others()
        if state.optimizer is not None:
            state.optimizer.settle()
        for hook in list(self._partition_hooks.values()):
            hook(self, state.optimizer)

    def _reduce(self, keeps: bool = False) -> None:
        """Has gradients of this rank's parameters averaged; ``keeps``: those that there are by a later step."""
        made: reducer.Reducers | reducer.ShardedGradients
        if self.sharding is None:
            made = reducer.reducers(self._structure.own.values(), self._bucket_bytes, self._overlap, keeps)
        else:
            made = reducer.ShardedGradients(self.sharding, state.group("dp"), state.cfg.sdp_reduce_bucket_size, keeps)
        if self._comm_hook is not None:
            made.register_comm_hook(*self._comm_hook)
        self._reducer = made

    def _apply(self, fn: Any, recurse: bool = True) -> Any:
        """Moves or converts the model; what is on other ranks takes no memory afterwards either."""
        with absent.moving():
            delayed.apply(self.module, lambda: nn.Module._apply(self, fn, recurse), fn)  # type: ignore[no-untyped-call]
        if self.partitioned:
            self._structure = Structure(self.module, self._is_own)  # buffers are others now
            if self._server is not None:
                self._routing.names.find_buffers()
                for _, tensor in self._foreign():
                    absent.mark(tensor) if self._is_whole else absent.release(tensor)
        return self

    def _is_own(self, key: str) -> bool:
        return self._holder(key) == state.group("pp").rank

    def _own_buffers(self) -> dict[str, torch.Tensor]:
        """Those that this rank has now: forward passes may put others in their place."""
        return {name: each for name, each in self.module.named_buffers() if self._is_own(name)}

    def _foreign(self) -> Iterator[tuple[str, torch.Tensor]]:
        """The parameters and buffers of other ranks."""
        return ((name, each) for name, each in _tensors(self.module) if not self._is_own(name))

    def _holder(self, key: str) -> int:
        """The rank of the pipeline that has a module's tensor; of a new module, that of the one around it."""
        name = key.rpartition(".")[0]
        while name not in self._owner:
            name = name.rpartition(".")[0]
        return self._owner[name]

    # ---- this rank's part

    def local_parameters(self, recurse: bool = True) -> Iterator[nn.Parameter]:
        return (parameter for _, parameter in self.local_named_parameters(recurse=recurse))

    def local_named_parameters(self, prefix: str = "", recurse: bool = True) -> Iterator[tuple[str, nn.Parameter]]:
        """The parameters that this rank has."""
        self._must_be_divided()
        return _named(self._structure.own, prefix, recurse)

    def local_buffers(self, recurse: bool = True) -> Iterator[torch.Tensor]:
        return (buffer for _, buffer in self.local_named_buffers(recurse=recurse))

    def local_named_buffers(self, prefix: str = "", recurse: bool = True) -> Iterator[tuple[str, torch.Tensor]]:
        self._must_be_divided()
        return _named(self._own_buffers(), prefix, recurse)

    def local_modules(self) -> Iterator[nn.Module]:
        return (module for _, module in self.local_named_modules())

    def local_named_modules(self, memo: Any = None, prefix: str = "") -> Iterator[tuple[str, nn.Module]]:
        """The modules that this rank owns."""
        self._must_be_divided()
        rank = state.group("pp").rank
        return (
            (f"{prefix}.{name}" if prefix and name else prefix or name, module)
            for name, module in self.module.named_modules()
            if self._holder(f"{name}.") == rank
        )

    def has_elsewhere(self, parameter: torch.Tensor) -> bool:
        """Whether it is a parameter of the model that another rank of the pipeline owns."""
        return id(parameter) in self._structure.elsewhere

    def place_of(self, module: nn.Module) -> int | None:
        """The rank of the pipeline that has all of a module; negative: several have; None: it doesn't matter."""
        return None if self._server is None else self._routing.place_of(module)

    def is_away(self, module: nn.Module) -> bool:
        """Whether all of a module is on another rank of the pipeline."""
        return self._server is not None and self._routing.is_away(module)

    def call_again(
        self, modules: Sequence[nn.Module], args: tuple[Any, ...], kwargs: dict[str, Any], preserve_rng_state: bool
    ) -> Any:
        """Calls modules of another rank there, one after the other, without keeping what is between them."""
        return self._routing.call_again(modules, args, kwargs, preserve_rng_state)

    def _must_be_divided(self) -> None:
        if not self.partitioned:
            raise SMPStepError(
                "the model isn't divided over the ranks before the first step; use register_post_partition_hook for "
                "what comes right after"
            )

    # ---- tensor parallelism

    def distributed_modules(self) -> Iterator[nn.Module]:
        """The modules whose parameters tensor-parallel ranks share out."""
        return (module for module in self.module.modules() if isinstance(module, DistributedModule))

    def is_distributed_parameter(self, parameter: nn.Parameter) -> bool:
        """Whether tensor-parallel ranks share it out."""
        return division(parameter) is not None

    def is_distributed_buffer(self, buffer: torch.Tensor) -> bool:
        """No buffer is."""
        return False

    def is_scaled_batch_parameter(self, parameter: nn.Parameter) -> bool:
        """Whether it gets the gradients of the batches of all ranks of the tensor-parallel group."""
        return state.group("tp").size > 1 and not state.cfg.prescaled_batch and reduction(parameter).factor < 1

    def is_scaled_batch_buffer(self, buffer: torch.Tensor) -> bool:
        """No buffer is."""
        return False

    def default_reducer_named_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        """Of this rank's, those whose gradients are averaged over the dp group."""
        return ((name, each) for name, each in self.local_named_parameters() if reduction(each).kind == "dp")

    def scaled_batch_reducer_named_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        """Of this rank's, those whose gradients are averaged over the rdp group."""
        return ((name, each) for name, each in self.local_named_parameters() if reduction(each).kind == "rdp")

    # ---- state

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """The state of the whole model, with the keys of the script's own, on every rank.

        Once the model is divided every rank of the pipeline must call it, and of the tensor-parallel group always: all
        ranks of one copy of the model, those of an ``smp.rdp_rank()``.
        """
        pipeline = state.group("pp")

        def whole() -> OrderedDict[str, Any]:
            if not self.partitioned or pipeline.size == 1:
                values = self.module.state_dict(*args, **kwargs)
            else:
                values = full_state(self.module, self._holder, pipeline.rank, pipeline.ranks, pipeline.process_group)
            return whole_values(self.module, values)

        with log.waiting("model.state_dict()"):
            if self.sharding is not None:
                values = sharding.with_each(self.module.state_dict(*args, **kwargs), sharding.full)
            else:
                values = model_state.as_hooks_see_it(self.module, whole, *args, **kwargs)
            return huggingface.to_theirs(self.module, values)

    def local_state_dict(self) -> OrderedDict[str, Any]:
        """The state that this rank has, and the key ``_smp_is_partial``."""
        self._must_be_divided()
        if self.sharding is not None:
            part: OrderedDict[str, Any] = sharding.with_each(self.module.state_dict(), sharding.local)
            part[PARTIAL] = True
            return part
        return local_state(self.module, self._holder, state.group("pp").rank)

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False) -> Any:
        """Loads the state of the whole model, or of this rank's part.

        A part waits for the model to be divided, as anything does where its initialization was delayed.

        Raises:
            RuntimeError: keys or shapes don't fit.
            SMPUnsupportedError: ``assign``, which would give the model other parameters than the optimizer's.
        """
        if assign:
            raise SMPUnsupportedError("model.load_state_dict(assign=True): values are copied only; leave it out")
        if not state_dict.get(PARTIAL):
            state_dict = huggingface.to_ours(self.module, without_mark(state_dict))
        if not self.partitioned:
            if PARTIAL in state_dict or self._waits:
                self._deferred = (dict(state_dict), strict)
                return nn.modules.module._IncompatibleKeys([], [])
            return self.module.load_state_dict(state_dict, strict)
        if self.sharding is not None:
            with self.sharding.taking_parts():
                missing, unexpected = self.module.load_state_dict(model_state.without_mark(state_dict), strict)
        elif PARTIAL not in state_dict and model_state.has_hooks(self.module):
            with model_state.with_memory(self.module, {}):
                missing, unexpected = self.module.load_state_dict(state_dict, strict)
        else:
            rank = state.group("pp").rank
            missing, unexpected = load_local(self.module, state_dict, self._holder, rank, strict)
        if state.optimizer is not None:
            state.optimizer.values_changed()
        return nn.modules.module._IncompatibleKeys(missing, unexpected)

    # ---- hooks

    def register_post_partition_hook(self, hook: Hook) -> RemovableHandle:
        """``hook(model, optimizer)`` runs on every rank, once the model is divided: at once where it is already."""
        handle = RemovableHandle(self._partition_hooks)
        self._partition_hooks[handle.id] = hook
        if self.partitioned:
            hook(self, state.optimizer)
        return handle

    def register_post_step_hook(self, hook: Hook) -> RemovableHandle:
        """``hook(model, optimizer)`` runs on every rank at the end of the next step, once.

        That is what transformers' Trainer has it for: what it saved of the optimizer is loaded behind the first step.
        """
        handle = RemovableHandle(self._step_hooks)
        self._step_hooks[handle.id] = hook
        return handle

    def register_comm_hook(self, hook_state: Any, hook: Any) -> None:
        """A communication hook of torch's DistributedDataParallel, which averages each bucket of gradients.

        Hooks whose state is a process group need ``smp.get_dp_process_group()``.
        """
        if not self._overlap:
            raise SMPStepError("register_comm_hook needs overlapping_allreduce=True")
        self._comm_hook = (hook_state, hook)
        if self._reducer is not None:
            self._reducer.register_comm_hook(hook_state, hook)

    def join(self, *args: Any, **kwargs: Any) -> Any:
        """Training with other numbers of batches on each replica, which isn't supported.
        Raises SMPUnsupportedError: always."""
        raise SMPUnsupportedError(
            "model.join: every replica must run the same number of steps. Give each the same number of batches, as "
            "torch's DistributedSampler does, with drop_last=True in the DataLoader"
        )


def _looked_at(body: Callable[[], Any]) -> Any:
    with part_reads.refused():
        return body()


def _is_one_by_one() -> bool:
    """Whether the script has asked for one microbatch after the other."""
    return bool(state.cfg.pipeline == "interleaved" and state.cfg.active_microbatches == 1)


def _named(tensors: Mapping[str, Any], prefix: str, recurse: bool) -> Iterator[tuple[str, Any]]:
    """As torch names tensors; without ``recurse`` those of the model itself."""
    chosen = ((name, each) for name, each in tensors.items() if recurse or "." not in name)
    return ((f"{prefix}.{name}" if prefix else name, each) for name, each in chosen)


def _checkpoint_attentions(module: nn.Module) -> None:
    found = [each for each in module.modules() if isinstance(each, DistributedAttentionLayer)]
    for each in found:
        set_activation_checkpointing(each)
    if not found:
        log.warn(
            f"{state.cfg.shown('checkpoint_attentions')}: without effect, since no module of smp.nn is in the model"
        )


def _tensors(module: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    yield from module.named_parameters()
    yield from module.named_buffers()


def _without_delayed(module: nn.Module) -> list[tuple[str, torch.Tensor]]:
    return [(name, each) for name, each in _tensors(module) if not delayed.is_delayed(each)]


def _partial(holder: Callable[[str], int], key: str, tensor: torch.Tensor) -> str:
    """Why a tensor isn't whole here; empty: it is."""
    pipeline = state.group("pp")
    if holder(key) != pipeline.rank:
        return f"{key} is on rank {pipeline.ranks[holder(key)]} of the pipeline"
    return f"this rank has a part of {key}" if _has_part(tensor) else ""


def _has_part(parameter: torch.Tensor) -> bool:
    """Tells whether this rank has a part of it, and others have the rest."""
    return sharding.here(parameter) is not parameter or division(parameter) is not None


def _sharding(module: nn.Module, device: torch.device | None) -> sharding.Sharding:
    cfg, replicas = state.cfg, state.group("dp")
    for name, each in module.named_modules():
        if cfg.sdp_gradient_clipping and getattr(each, "sparse", False) and isinstance(each, sharding.EMBEDDINGS):
            raise SMPStepError(
                f"module {name} has sparse gradients (sparse=True), which torch doesn't clip, and "
                f"{cfg.shown('sdp_gradient_clipping')} says to: set it to 0, or leave sparse out"
            )
    mesh = sharding.mesh_of(device, replicas.size, cfg.sharded_data_parallel_degree)
    limits = sharding.Limits(cfg.sdp_param_persistence_threshold, cfg.sdp_max_live_parameters)

    def settle(given: Sequence[tuple[str, nn.Parameter]]) -> None:
        model_state.share(given, model_state.everything, device)

    return sharding.Sharding(module, mesh, limits, precision.half(), settle)
