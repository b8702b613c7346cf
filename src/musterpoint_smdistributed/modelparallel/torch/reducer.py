"""Averages gradients over the replicas of this rank, while the backward passes still run; those of shards behind them.

A parameter that has a gradient on any replica at a step's end is averaged, whatever it was when the model was divided.
Those that want gradients at a step's begin are put into buckets, alike on all replicas. A bucket is sent as soon as
each of its parameters has got as many gradients as in the last such step; that is a guess, as models may take other
ways in every step. At the end the replicas compare notes: a bucket that was sent too early is sent again, and what is
in none follows. So the guess costs at most time.
"""

from __future__ import annotations

from typing import Any, Callable, Iterable, Mapping, Sequence

import torch
import torch.distributed as dist
from torch import nn
from torch._utils import _flatten_dense_tensors, _take_tensors, _unflatten_dense_tensors

from ..backend.exceptions import SMPUnsupportedError
from .distributed_parameters import reduction
from .errors import SMPStepError
from .passes import follows
from .sharding import Sharding, here
from .state import Group, state
from .topology import Kind

MIB = 1 << 20

CommHook = Callable[[Any, Any], "torch.futures.Future[Any]"]


class Bucket:
    """Gradients that travel together. Communication hooks get it, with the methods of torch's GradBucket."""

    def __init__(self, index: int, parameters: Sequence[nn.Parameter]) -> None:
        self._index, self._parameters = index, list(parameters)
        self._is_last = False
        self._buffer = torch.empty(0)
        self.waiting = 0
        self.handle: Any = None

    def index(self) -> int:
        return self._index

    def is_last(self) -> bool:
        """Whether it is the last one of the step."""
        return self._is_last

    def buffer(self) -> torch.Tensor:
        """All gradients as one axis; zeros for parameters without one."""
        return self._buffer

    def set_buffer(self, buffer: torch.Tensor) -> None:
        self._buffer = buffer

    def parameters(self) -> list[nn.Parameter]:
        return self._parameters

    def gradients(self) -> list[torch.Tensor]:
        """Views of the buffer, one per parameter and in its shape."""
        sizes = [parameter.numel() for parameter in self._parameters]
        parts = torch.split(self._buffer, sizes)
        return [part.view(parameter.shape) for part, parameter in zip(parts, self._parameters)]

    def fill(
        self, scale: Callable[[nn.Parameter], float], kept: Mapping[nn.Parameter, torch.Tensor], replicas: int
    ) -> None:
        """Copies the gradients into a new buffer: each times its scale, plus what was kept, divided by ``replicas``."""
        first = self._parameters[0]
        length = sum(each.numel() for each in self._parameters)
        self._buffer = torch.zeros(length, dtype=first.dtype, device=first.device)
        for part, parameter in zip(self.gradients(), self._parameters):
            if parameter.grad is not None:
                part.copy_(parameter.grad.to_dense()).mul_(scale(parameter))
            if parameter in kept:
                part.add_(kept[parameter])
        if replicas > 1:
            self._buffer.div_(replicas)


class Gradients:
    """The gradients of parameters over several steps; those from before a step are kept aside while it runs."""

    def __init__(self, parameters: Iterable[nn.Parameter], keeps: bool = False) -> None:
        self._parameters = list(parameters)
        self._found: dict[nn.Parameter, torch.Tensor] = {}
        self._before: dict[nn.Parameter, torch.Tensor] = {}
        """Averaged already."""
        self._kept: dict[nn.Parameter, torch.Tensor] = {}
        """To be averaged by this step or a later one."""
        self.keeps = keeps
        """A later step is to average those that the parameters have."""
        self._scale, self._sending = 1.0, False

    def begin(self, scale: float, sending: bool) -> None:
        """A step begins, whose gradients are averaged at its end if ``sending``, else by a later one that does."""
        self._scale, self._sending = scale, sending
        found = {parameter: parameter.grad for parameter in self._parameters if parameter.grad is not None}
        self._found = found
        # a hook of the script behind the sum sees all of it, so that this can't be kept aside
        within = {parameter: found[parameter] / self._scale_of(parameter) for parameter in found if follows(parameter)}
        aside = {parameter: gradient for parameter, gradient in found.items() if parameter not in within}
        if self.keeps:
            self._kept = aside
        else:
            self._before, self._kept = aside, {}
        for parameter in self._parameters:
            parameter.grad = within.get(parameter)

    def cancel(self) -> None:
        """There was no backward pass: the gradients are as they were."""
        for parameter, gradient in self._found.items():
            parameter.grad = gradient
        self._found = {}

    def _scale_of(self, parameter: nn.Parameter) -> float:
        """The factor of its gradient when the step is over."""
        return self._scale


class Buckets:
    """Buckets of parameters, for as long as the same ones want gradients.

    expected: how many gradients each got in the last step; empty: there was none.
    """

    def __init__(self, trained: Sequence[nn.Parameter], bucket_bytes: int) -> None:
        self.buckets = _buckets(trained, bucket_bytes)
        self.of = {parameter: bucket for bucket in self.buckets for parameter in bucket.parameters()}
        self.expected: dict[nn.Parameter, int] = {}


class Reducer(Gradients):
    """The gradients of one rank's own parameters.

    ``group``: the replicas, which have the same parameters in the same order; None: gradients stay as they are here.
    ``overlap``: send buckets while backward passes run. ``factors``: what some gradients are multiplied by as well.
    """

    def __init__(
        self,
        parameters: Iterable[nn.Parameter],
        group: Group | None,
        bucket_bytes: int = 25 * MIB,
        overlap: bool = True,
        factors: Mapping[nn.Parameter, float] | None = None,
        keeps: bool = False,
    ) -> None:
        super().__init__(parameters, keeps and group is not None)
        self._factors = factors or {}
        self._group, self._bucket_bytes, self._overlap = group, bucket_bytes, overlap
        self._by_trained: dict[tuple[int, ...], Buckets] = {}
        self._now = Buckets((), bucket_bytes)
        self._heard: dict[nn.Parameter, Any] = {}
        self._counts: dict[nn.Parameter, int] = {}
        self._late: set[int] = set()
        self._next = 0
        self._hook: tuple[CommHook, Any] | None = None

    def register_comm_hook(self, hook_state: Any, hook: CommHook) -> None:
        """The hook reduces a bucket instead of the sum; as for DistributedDataParallel it divides by the replicas."""
        if hook_state is not None and hook_state is state.group("dp").process_group:  # of all, whichever these are
            hook_state = None if self._group is None else self._group.process_group
        self._hook = (hook, hook_state)

    def begin(self, scale: float, sending: bool) -> None:
        super().begin(scale, sending and self._group is not None)
        self._counts, self._late, self._next = {}, set(), 0
        if not self._sending:
            return
        trained = [parameter for parameter in self._parameters if parameter.requires_grad]
        key = tuple(map(id, trained))
        if key not in self._by_trained:
            self._by_trained[key] = Buckets(trained, self._bucket_bytes)
        self._now = self._by_trained[key]
        for bucket in self._now.buckets:
            bucket.handle = None
            bucket.waiting = sum(self._now.expected.get(parameter, 0) > 0 for parameter in bucket.parameters())
        for parameter in trained if self._overlap else ():
            self._hear(parameter)

    def end(self) -> None:
        """Others have the parameters from now on."""
        for handle in self._heard.values():
            handle.remove()

    def _hear(self, parameter: nn.Parameter) -> None:
        """Hears of a parameter's gradients behind the script's hooks, which may change them."""
        if not self._hears_last(parameter):
            if parameter in self._heard:
                self._heard[parameter].remove()
            self._heard[parameter] = parameter.register_post_accumulate_grad_hook(self._accumulated)  # type: ignore[no-untyped-call]

    def _hears_last(self, parameter: nn.Parameter) -> bool:
        hooks = parameter._post_accumulate_grad_hooks
        return bool(hooks) and parameter in self._heard and next(reversed(hooks)) == self._heard[parameter].id

    def finish(self) -> None:
        """The step is over: its gradients are scaled, averaged over the replicas, and added to those from before."""
        self.keeps = self._group is not None and not self._sending
        if self._sending:
            self._average()
        else:
            for parameter in self._parameters:
                if parameter.grad is not None:
                    parameter.grad.mul_(self._scale_of(parameter))
            _add(self._kept)
        self._found = {}
        if not self.keeps:
            _add(self._before)
            self._before = {}

    def _scale_of(self, parameter: nn.Parameter) -> float:
        return self._scale * self._factors.get(parameter, 1.0)

    def _accumulated(self, parameter: nn.Parameter) -> None:
        """Autograd has added to the gradient of a parameter."""
        bucket = self._now.of.get(parameter)
        if not self._sending or bucket is None:
            return
        count = self._counts[parameter] = self._counts.get(parameter, 0) + 1
        if count == self._now.expected.get(parameter, 0):
            bucket.waiting -= 1
        if bucket.handle is not None:
            self._late.add(bucket.index())
        # in their order, as the replicas must agree on it
        buckets = self._now.buckets
        while self._now.expected and self._next < len(buckets) and buckets[self._next].waiting <= 0:
            self._send(buckets[self._next])
            self._next += 1

    def _average(self) -> None:
        assert self._group is not None
        buckets = self._now.buckets
        for bucket in buckets[: self._next]:
            if not all(map(self._hears_last, bucket.parameters())):  # a hook may have come behind it in this step
                self._late.add(bucket.index())
        for bucket in buckets[self._next :]:
            self._send(bucket)
        device = self._parameters[0].device if self._parameters else torch.device("cpu")
        notes = [float(parameter.grad is not None or parameter in self._kept) for parameter in self._parameters]
        notes += [float(bucket.index() in self._late) for bucket in buckets]
        flags = torch.tensor(notes, device=device)
        if notes:
            dist.all_reduce(flags, dist.ReduceOp.MAX, group=self._group.process_group)
        anywhere = [flag > 0 for flag in flags.tolist()]
        used = {parameter for parameter, flag in zip(self._parameters, anywhere) if flag}
        for bucket, late in zip(buckets, anywhere[len(self._parameters) :]):
            _wait(bucket)
            if late:
                self._send(bucket)
        switched = [parameter for parameter in self._parameters if parameter in used and parameter not in self._now.of]
        for bucket in (more := _buckets(switched, self._bucket_bytes, len(buckets))):
            self._send(bucket)
        for bucket in (*buckets, *more):
            _wait(bucket)
            for parameter, gradient in zip(bucket.parameters(), bucket.gradients()):
                if parameter not in used:
                    parameter.grad = None
                elif parameter.grad is None or parameter.grad.is_sparse:
                    parameter.grad = gradient.clone()
                else:
                    parameter.grad.copy_(gradient)
            bucket.set_buffer(torch.empty(0))
        self._now.expected = self._counts

    def _send(self, bucket: Bucket) -> None:
        assert self._group is not None
        with torch.no_grad():
            bucket._is_last = bucket.index() == len(self._now.buckets) - 1
            if self._hook is not None:
                bucket.fill(self._scale_of, self._kept, 1)
                hook, hook_state = self._hook
                bucket.handle = hook(hook_state, bucket)
            else:
                bucket.fill(self._scale_of, self._kept, self._group.size)
                bucket.handle = dist.all_reduce(bucket.buffer(), group=self._group.process_group, async_op=True)


class Reducers:
    """Several of them as one: parameters whose gradients are averaged over different groups."""

    def __init__(self, parts: Sequence[Reducer]) -> None:
        self.parts = tuple(parts)

    @property
    def keeps(self) -> bool:
        return any(part.keeps for part in self.parts)

    def register_comm_hook(self, hook_state: Any, hook: CommHook) -> None:
        for part in self.parts:
            part.register_comm_hook(hook_state, hook)

    def begin(self, scale: float, sending: bool) -> None:
        for part in self.parts:
            part.begin(scale, sending)

    def cancel(self) -> None:
        for part in self.parts:
            part.cancel()

    def finish(self) -> None:
        for part in self.parts:
            part.finish()

    def end(self) -> None:
        for part in self.parts:
            part.end()


def reducers(parameters: Iterable[nn.Parameter], bucket_bytes: int, overlap: bool, keeps: bool = False) -> Reducers:
    """For this rank's parameters, by how the configuration and tensor parallelism have their gradients averaged."""
    by_kind: dict[Kind, list[nn.Parameter]] = {"dp": []}
    factors: dict[nn.Parameter, float] = {}
    for parameter in parameters:
        found = reduction(parameter)
        by_kind.setdefault(found.kind, []).append(parameter)
        factors[parameter] = found.factor
    parts = []
    for kind, each in by_kind.items():
        replicas = state.group(kind)
        group = replicas if state.cfg.ddp and replicas.size > 1 else None
        parts.append(Reducer(each, group, bucket_bytes, overlap, factors, keeps))
    return Reducers(parts)


def _add(gradients: Mapping[nn.Parameter, torch.Tensor]) -> None:
    """Adds to what the parameters have now."""
    for parameter, gradient in gradients.items():
        parameter.grad = gradient if parameter.grad is None else gradient.add_(parameter.grad)


def _wait(bucket: Bucket) -> None:
    """Until a bucket has been reduced."""
    handle, bucket.handle = bucket.handle, None
    if isinstance(handle, torch.futures.Future):
        value = handle.wait()
        bucket.set_buffer(value[0] if isinstance(value, list) else value)
    elif handle is not None:
        handle.wait()


def _buckets(parameters: Sequence[nn.Parameter], bucket_bytes: int, first: int = 0) -> list[Bucket]:
    """From the last parameter to the first, about as backward passes come to them; one type in each."""
    taken = _take_tensors(reversed(parameters), bucket_bytes)  # type: ignore[no-untyped-call]
    return [Bucket(index, each) for index, each in enumerate(taken, first)]


# `fully_shard` has reduced each microbatch's gradients within a copy already. What is left travels once per step, and
# only between ranks that have the same part.
class ShardedGradients(Gradients):
    """Does for shards what :class:`Reducer` does for whole parameters, and has one for those that are whole."""

    def __init__(self, shards: Sharding, world: Group, bucket: int, keeps: bool = False) -> None:
        super().__init__(shards.parts.values(), keeps)
        self._sharding, self._world, self._bucket = shards, world, bucket
        self._parts = shards.parts
        self._whole = Reducer(shards.whole.values(), world, overlap=False, keeps=keeps)
        self._copies = shards.mesh["replicate"]

    def register_comm_hook(self, hook_state: Any, hook: Any) -> None:
        raise SMPUnsupportedError(
            "model.register_comm_hook: with sharded_data_parallel_degree over 1 gradients are reduced by torch's "
            "fully_shard, which has no such hooks; leave it out"
        )

    def begin(self, scale: float, sending: bool) -> None:
        super().begin(scale, sending)
        self._whole.begin(scale, sending)
        self._sharding.used.clear()

    def cancel(self) -> None:
        super().cancel()
        self._whole.cancel()

    def end(self) -> None:
        self._whole.end()

    def finish(self) -> None:
        """As :meth:`Reducer.finish`; gradients of shards are without the loss scale then."""
        self._whole.finish()
        used = self._used()
        loss_scale = 1.0 if state.optimizer is None else state.optimizer.loss_scale
        for name, part in self._parts.items():
            if name not in used:
                part.grad = None
                continue
            if part.grad is None:  # on this rank
                part.grad = torch.zeros_like(part)
            if here(part.grad) is part.grad:
                raise SMPStepError(
                    f"parameter {name} got a gradient while it wasn't gathered, as an argument of "
                    "autograd.Function.apply or of a checkpoint (sharded_data_parallel_degree): call the module "
                    "that has it"
                )
            here(part.grad).mul_(self._scale / loss_scale)
        _add(self._kept)
        self.keeps = not self._sending
        if self._sending:
            self._average([here(part.grad) for part in self._parts.values() if part.grad is not None])
            _add(self._before)
            self._before = {}
        self._found = {}

    def _used(self) -> set[str]:
        """The parameters that any rank has a gradient for; the same on all."""
        names = list(self._parts)
        flagged = [
            float(name in self._sharding.used or part in self._kept or _nonzero(part))
            for name, part in self._parts.items()
        ]
        device = next((here(part).device for part in self._parts.values()), torch.device("cpu"))
        flags = torch.tensor(flagged, device=device)
        if names:
            dist.all_reduce(flags, dist.ReduceOp.MAX, group=self._world.process_group)
        return {name for name, flag in zip(names, flags.tolist()) if flag > 0}

    def _average(self, gradients: Sequence[torch.Tensor]) -> None:
        """Over the copies, in place."""
        copies = self._copies.size()
        if copies == 1:
            return
        size = self._bucket * max((each.element_size() for each in gradients), default=1)
        for bucket in _take_tensors(gradients, size):  # type: ignore[no-untyped-call]
            flat = _flatten_dense_tensors(bucket)  # type: ignore[no-untyped-call]
            dist.all_reduce(flat, group=self._copies.get_group())
            flat.div_(copies)
            for each, values in zip(bucket, _unflatten_dense_tensors(flat, bucket)):  # type: ignore[no-untyped-call]
                each.copy_(values)


def _nonzero(part: nn.Parameter) -> bool:
    """Whether a gradient came past autograd's notes: of a parameter that was used outside of its module."""
    return part.grad is not None and bool(here(part.grad).any())
