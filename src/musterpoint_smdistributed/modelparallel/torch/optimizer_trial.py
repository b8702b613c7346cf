"""Asks optimizers whether they do with parts what they do with the whole: a table of those that are known, and a trial.

Where ranks have parts of a parameter, it has to compute each element by itself; where they have other parameters than
their neighbours, each parameter by itself.
"""

from __future__ import annotations

import copy
import gc
import inspect
import math
import types
from collections import OrderedDict, defaultdict
from typing import Any, Iterable, Iterator, Mapping, NamedTuple, Sequence

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Shard

from ..backend.exceptions import SMPUnsupportedError
from . import sharding
from .distributed_parameters import division
from .state import state

_TORCH = ("SGD", "Adam", "AdamW", "NAdam", "RAdam", "Adamax", "Adagrad", "Adadelta", "RMSprop", "Rprop", "ASGD")
_APEX = ("FusedAdam", "FusedSGD", "FusedAdagrad")
_BITSANDBYTES = ("Adam", "AdamW", "SGD", "RMSprop", "Adagrad", "Lion", "AdEMAMix")
_WIDE = {"optim_bits": 32, "percentile_clipping": 100, "max_unorm": 0.0}
"""Settings of bitsandbytes' with which there are no blocks of elements that share a scale, and no norms."""
ELEMENTWISE: Mapping[tuple[str, str], Mapping[str, Any]] = {
    **{("torch", name): {} for name in _TORCH},
    **{("apex", name): {} for name in _APEX},
    **{("bitsandbytes", f"{name}{bits}"): _WIDE for name in _BITSANDBYTES for bits in ("", "32bit")},
}
"""Optimizers that compute each element by itself, by package and name, with the settings that they need for it."""
_LEAST, _MOST = 8192, 1 << 20
"""Elements of a trial's parameters: small ones have no blocks and no factors, and large ones take long."""
_SCALES = (1.0, 1e-3, 1e3, 1.0, 30.0, 1e-2, 1.0, 0.1, 1.0)
"""Of the gradients of each step: some optimizers have a limit that few reach, or begin to look at norms later."""
_RATE, _DEPTH = 0.01, 5
_OPAQUE = (torch.Tensor, nn.Module, type, types.ModuleType, types.FunctionType)
_OTHERS = "Use one that computes each element by itself (SGD, Adam, AdamW, …)"


class Sample(NamedTuple):
    """A parameter of a trial. ``dim``: where ranks have parts of it, the axis that is cut."""

    parameter: torch.Tensor
    dim: int | None
    values: torch.Tensor
    gradients: tuple[torch.Tensor, ...]

    def part(self, index: int | None) -> tuple[torch.Tensor, ...]:
        """Values and gradients of a half, or of the whole: what every rank has all of is whole in each."""
        every = (self.values, *self.gradients)
        return every if index is None or self.dim is None else tuple(each.chunk(2, self.dim)[index] for each in every)


def is_elementwise(optimizer: Any) -> bool:
    """Tells whether it is known to compute each element by itself."""
    kind = type(optimizer)
    settings = ELEMENTWISE.get((kind.__module__.partition(".")[0], kind.__name__))
    given = getattr(optimizer, "args", None)
    return settings is not None and all(getattr(given, name, value) == value for name, value in settings.items())


def inside(optimizer: Any) -> list[torch.optim.Optimizer]:
    """The optimizers that another one has in its attributes."""
    found: dict[int, Any] = {}
    reached = [
        value for name, value in getattr(optimizer, "__dict__", {}).items() if name not in ("param_groups", "state")
    ]
    for _ in range(_DEPTH):
        new = {id(each): each for each in reached if not issubclass(type(each), _OPAQUE) and id(each) not in found}
        found |= new
        reached = gc.get_referents(*new.values())
    others = (each for each in found.values() if issubclass(type(each), torch.optim.Optimizer))
    return [each for each in others if each is not optimizer]


class Trials:
    """Of one optimizer, whenever it has other parameters or settings."""

    def __init__(self, optimizer: Any) -> None:
        self._optimizer = optimizer
        self._tried: list[Any] = []

    def again(self, shared: bool) -> None:
        """Tries it, if it is another one than before; as :func:`refuse`."""
        given = [
            [len(group["params"]), *((key, each) for key, each in group.items() if isinstance(each, (bool, str)))]
            for group in self._optimizer.param_groups
        ]
        if state.model is not None and given != self._tried:
            self._tried = given
            refuse(self._optimizer, shared)


def refuse(optimizer: Any, shared: bool) -> None:
    """Raises SMPUnsupportedError for one that does something else on ranks that have parts.

    shared: whether the replicas share out its state.
    """
    listed = list(_parameters([optimizer]))
    dims = {id(each): dim for each in listed for dim in (_dim(each),) if dim is not None}
    in_shards = state.model is not None and state.model.sharding is not None
    names = [
        name
        for name, counts in (
            ("tensor_parallel_degree", dims and not in_shards),
            ("sharded_data_parallel_degree", dims and in_shards),
            ("partitions", state.group("pp").size > 1),
            ("shard_optimizer_state", shared),
        )
        if counts
    ]
    unfit = in_shards and not _is_of_torch(optimizer)
    if not names or (is_elementwise(optimizer) and not unfit):
        return
    why = _closure(optimizer)
    devices = {each.device for each in listed if each.device.type == "cuda"}
    with torch.random.fork_rng(devices=list(devices)):
        for long in (False, True):
            why = why or _try(optimizer, list(_samples(optimizer, dims, long)), in_shards, shared)
    if why:
        degrees = " and ".join(state.cfg.shown(name) for name in names)
        raise SMPUnsupportedError(
            f"smp.DistributedOptimizer: {type(optimizer).__qualname__} can't be used with {degrees}: {why}. {_OTHERS}, "
            f"or leave {' and '.join(names)} out"
        )


def _closure(optimizer: Any) -> str:
    """Why an optimizer whose step needs more can't be tried."""
    given = list(inspect.signature(type(optimizer).step).parameters.values())[1:]
    needed = [each.name for each in given if each.default is each.empty and each.kind is each.POSITIONAL_OR_KEYWORD]
    return f"its step() needs {' and '.join(needed)}, and calls it on its own" if needed else ""


def _is_of_torch(optimizer: Any) -> bool:
    """Tells whether torch has its operations on shards; not so for Rprop and most fused ones."""
    fused = any(group.get("fused") for group in optimizer.param_groups)
    return (
        type(optimizer).__module__.startswith("torch.") and not isinstance(optimizer, torch.optim.Rprop) and not fused
    )


def _dim(parameter: torch.Tensor) -> int | None:
    """The axis on which ranks have parts of a parameter."""
    found = division(parameter)
    if isinstance(parameter, DTensor):
        return next((each.dim for each in parameter.placements if isinstance(each, Shard)), None)
    return None if found is None else found.dim


def _samples(optimizer: Any, dims: Mapping[int, int], long: bool) -> Iterator[Sample]:
    """A small and a large parameter of each kind and group.

    long: as large as blocks and factors need; else as they are.
    """
    draw = torch.Generator().manual_seed(1)
    for group in optimizer.param_groups:
        kinds: dict[Any, list[torch.Tensor]] = {}
        for each in group["params"]:
            kinds.setdefault((each.dim(), dims.get(id(each)), each.dtype, each.device), []).append(each)
        for (_, dim, dtype, device), alike in kinds.items():
            alike.sort(key=torch.Tensor.numel)
            small = alike[0] if not long else next((each for each in alike if each.numel() >= _LEAST), alike[-1])
            large = next((each for each in reversed(alike) if each.numel() <= _MOST), alike[0])
            wide = torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype
            for each in {id(each): each for each in (small, large)}.values():
                divided, along = division(each), dim or 0
                shape = list(each.shape if divided is None else divided.shape)
                if shape:
                    shape[along] += shape[along] % 2
                if shape and long and math.prod(shape) < _LEAST:
                    half = math.ceil(_LEAST / max(math.prod(shape), 1)) * shape[along] // 2
                    shape[along] = 2 * (half // 2 * 2 + 1)  # so that halves aren't of whole blocks
                way, draws = torch.randn(shape, generator=draw), (torch.randn(shape, generator=draw) for _ in _SCALES)
                made = [torch.randn(shape, generator=draw)]
                made += [(way + each / 2) * scale for each, scale in zip(draws, _SCALES)]  # as a loss's are
                if shape:  # the halves have other norms, and weights' and gradients' have another ratio in each
                    ramp = torch.linspace(0.5, 2, shape[along])
                    ramp = ramp.view([-1 if axis == along else 1 for axis in range(len(shape))])
                    made = [made[0] / ramp, *(each * ramp for each in made[1:])]
                values, *gradients = (tensor.to(device, wide) for tensor in made)
                yield Sample(each, dim, values, tuple(gradients))


def _try(optimizer: Any, samples: Sequence[Sample], in_shards: bool, shared: bool) -> str:
    """Why an optimizer doesn't do with parts what it does with the whole; empty: it does."""
    try:
        whole = _run(optimizer, samples)
        alone = [_run(optimizer, samples[turn::2], only=shared) for turn in range(2)] if len(samples) > 1 else []
        is_cut = any(each.dim is not None for each in samples)
        halves = [_run(optimizer, samples, half, in_shards) for half in range(2)] if is_cut else []
    except Exception as error:
        first = f"{type(error).__name__}: {error}".splitlines()[0]
        return f"a trial with a copy of it failed ({first:.250})"
    if not any((whole[id(each.parameter)][-1] != each.values).any() for each in samples):
        return f"{len(_SCALES)} steps of a copy of it changed nothing"
    for found, what in ((alone, "each parameter by itself comes out otherwise than all together"), (halves, "")):
        for each in samples:
            results = [some[id(each.parameter)] for some in found if id(each.parameter) in some]
            if found is halves and results and each.dim is not None:
                results = [[torch.cat(parts, each.dim) for parts in zip(*results)]]
            told = what or f"parts of a parameter (shape {tuple(each.values.shape)}) come out otherwise than the whole"
            for result in results:
                apart = _apart(each.values, whole[id(each.parameter)], result)
                if apart:
                    return f"in a trial of {len(_SCALES)} steps {told}, by {apart:.1e} of what changed"
    return ""


def _apart(before: torch.Tensor, whole: Sequence[torch.Tensor], other: Sequence[torch.Tensor]) -> float:
    """The distance of two rows of results, as a part of a step's change; 0 where it is rounding."""
    for one, two in zip(whole, other):
        moved, rounding = float((one - before).abs().max()), torch.finfo(one.dtype).eps
        found, before = float((one - two).abs().max()), one
        if not found <= rounding**0.5 * moved + 8 * rounding * float(one.abs().max()):
            return found / moved if moved else math.inf
    return 0.0


def _run(
    optimizer: Any, samples: Sequence[Sample], half: int | None = None, in_shards: bool = False, only: bool = False
) -> dict[int, list[torch.Tensor]]:
    """The samples' values behind each step of a copy, by the parameters' ids; ``only``: it has no others."""
    stands, gradients = {}, {}
    for each in samples:
        made = [part.clone() for part in each.part(half)]
        if in_shards and each.dim is not None:
            mesh = DeviceMesh.from_group(state.group("pp").process_group, made[0].device.type)  # this rank alone
            made = [DTensor.from_local(part, mesh, [Shard(each.dim)]) for part in made]
        stands[id(each.parameter)], gradients[id(each.parameter)] = made[0], made[1:]
    found: dict[int, list[torch.Tensor]] = {}
    for begins in (False, True):  # with state that it makes when it is made, if it can't begin without
        fresh = {key: nn.Parameter(each.clone()) for key, each in stands.items()}
        found = {key: [] for key in fresh}
        try:
            copied = _copy(optimizer, fresh, begins, only)
            for step in range(len(_SCALES)):
                for key, stand in fresh.items():
                    stand.grad = gradients[key][step].clone()
                type(copied).step(copied)
                for key, stand in fresh.items():
                    found[key].append(sharding.here(stand.detach()).clone())
            break
        except Exception:
            if begins or not optimizer.state:
                raise
    return found


def _copy(optimizer: Any, stands: Mapping[int, nn.Parameter], begins: bool, only: bool) -> Any:
    """The same optimizer, and those inside of it, over other parameters; those that have no stand get no gradient, or
    are left out of the groups. ``begins``: with its state."""
    every = [optimizer, *inside(optimizer)]
    made = {id(each): object.__new__(type(each)) for each in every}
    others = {id(each): nn.Parameter(torch.zeros(1)) for each in _parameters(every)}
    memo: dict[int, Any] = {**others, **stands, **made}
    for old in every:
        new, kept = made[id(old)], vars(old)
        # a scheduler's step is the original's
        left = {"state", "step", *(name for name in kept if name.startswith("_optimizer_"))}
        vars(new).update(copy.deepcopy({name: value for name, value in kept.items() if name not in left}, memo))
        vars(new).update((name, OrderedDict()) for name in left if name.startswith("_optimizer_"))
        if "state" in kept:
            vars(new)["state"] = defaultdict(dict, _begun(kept["state"], stands) if begins else {})
        for group in vars(new).get("param_groups", ()):
            if only:
                group["params"] = [each for each in group["params"] if any(each is stand for stand in stands.values())]
            if "lr" in group:  # that of a warm-up is nearly 0
                rate = max(float(group["lr"]), _RATE)
                group["lr"] = torch.full_like(group["lr"], rate) if torch.is_tensor(group["lr"]) else rate
    return made[id(optimizer)]


def _parameters(optimizers: Iterable[Any]) -> Iterator[torch.Tensor]:
    return (each for optimizer in optimizers for group in optimizer.param_groups for each in group["params"])


def _begun(values: Mapping[Any, Any], stands: Mapping[int, nn.Parameter]) -> dict[Any, Any]:
    """State that optimizers make when they are made: of each parameter's first value, in its stand's shape."""

    def alike(value: Any, old: torch.Tensor) -> Any:
        if not isinstance(value, torch.Tensor) or value.shape != old.shape or not value.dim():
            return copy.deepcopy(value)
        return torch.full_like(stands[id(old)], float(sharding.here(value).flatten()[0]), requires_grad=False)

    return {
        stands[id(old)]: {name: alike(value, old) for name, value in its.items()}
        for old, its in values.items()
        if id(old) in stands
    }
