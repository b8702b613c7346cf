"""The state of one rank's optimizer: gathered to be saved, loaded, and kept until the model is divided."""

from __future__ import annotations

import gc
import itertools
from typing import Any, Callable, Iterable, Mapping, Sequence

import torch
import torch.distributed as dist

from . import absent, log, sharding
from .distributed_parameters import part_of_state, take_replaced, whole_state
from .leaves import COPY, HALF, SHARDS, Leaf, Leaves, Shard, merged, of_piece, taken, whole_as_shards
from .model_state import PARTIAL
from .state import state
from .topology import Kind


# Names and defaults of the arguments: AWS's documentation of `smp.DistributedOptimizer`.
class LossScale:
    """One factor; ``value`` is what it is now. Every rank of a replica makes the same decisions with its own copy.

    Args:
        fixed: the factor, where it isn't ``dynamic``.
        dynamic: it falls at each overflow, and rises after steps without one.
        arguments: of a dynamic one: ``init_scale``; ``scale_factor``, by which it falls and rises; ``scale_window``,
            after how many steps without an overflow it rises; ``min_scale``; ``delayed_shift``, at which overflow it
            falls, counted since it last rose; ``consecutive_hysteresis``, counted since the last step without one.

    Raises:
        ValueError: a factor that can't be.
        TypeError: an argument that there isn't.
    """

    def __init__(self, fixed: float | None, dynamic: bool, arguments: Mapping[str, Any]) -> None:
        self.dynamic = dynamic
        self._arguments = {
            "init_scale": 2.0**32,
            "scale_factor": 2.0,
            "scale_window": 1000,
            "min_scale": 1.0,
            "delayed_shift": 1,
            "consecutive_hysteresis": False,
        }
        unknown = sorted(set(arguments) - set(self._arguments))
        if unknown:
            raise TypeError(
                f"smp.DistributedOptimizer: {unknown[0]!r} is none of dynamic_loss_args: {', '.join(self._arguments)}"
            )
        self._arguments.update(arguments)
        for name, least in (("init_scale", 0.0), ("scale_factor", 1.0), ("scale_window", 0), ("min_scale", 0.0)):
            if not self._arguments[name] > least:
                raise ValueError(f"dynamic_loss_args: {name}={self._arguments[name]!r}: expected more than {least:g}")
        fixed = 1.0 if fixed is None else fixed
        if not fixed > 0:
            raise ValueError(f"static_loss_scale={fixed!r}: expected more than 0")
        self.value = float(self._arguments["init_scale"] if dynamic else fixed)
        self._good = 0
        self._left = int(self._arguments["delayed_shift"])

    def update(self, overflow: bool) -> None:
        """After a step, or one that an overflow made impossible."""
        if not self.dynamic:
            return
        factor, shift = float(self._arguments["scale_factor"]), int(self._arguments["delayed_shift"])
        if overflow:
            self._good = 0
            if self._left > 1:
                self._left -= 1
            else:
                self.value = max(self.value / factor, float(self._arguments["min_scale"]))
            return
        self._good += 1
        if self._arguments["consecutive_hysteresis"]:
            self._left = shift
        if self._good % int(self._arguments["scale_window"]) == 0:
            self._left = shift
            self.value *= factor

    def state_dict(self) -> dict[str, Any]:
        return {"loss_scale": self.value, "good_steps": self._good, "shifts_left": self._left, "dynamic": self.dynamic}

    def load_state_dict(self, values: Mapping[str, Any]) -> None:
        """Goes on where another one was; a fixed scale stays what the script says."""
        if self.dynamic and values["dynamic"]:
            self.value = float(values["loss_scale"])
            self._good, self._left = int(values["good_steps"]), int(values["shifts_left"])


class OptimizerState:
    """What a wrapped optimizer knows of its parameters, by their numbers among all of the model's."""

    def __init__(self, optimizer: torch.optim.Optimizer, leaves: Leaves | None, scale: LossScale | None) -> None:
        self._optimizer, self._leaves, self._scale = optimizer, leaves, scale
        self._deferred: dict[str, Any] | None = None

    # ---- given

    def own(self, gather: bool) -> dict[str, Any]:
        """This rank's part, and the key that says so; with ``gather`` that of all replicas that share it out."""
        leaves = self._leaves
        gather = gather or leaves is None or not leaves.sharded
        found = dict(self._optimizer.state_dict()) if leaves is None or not is_divided() else self._of(leaves, gather)
        found = _with_each(found, sharding.local)
        found[PARTIAL] = True
        half = self.half(gather)
        if half is not None:
            found[HALF] = half
        return found

    def whole(self) -> dict[str, Any]:
        """That of all ranks of the replica."""
        if self._deferred is not None:
            known = {key: value for key, value in self._deferred.items() if key in ("state", HALF)}
            return {**self._optimizer.state_dict(), **known}
        if _sharding() is not None:
            return self._whole_of_shards()
        found = self.own(gather=True)
        del found[PARTIAL]
        if is_divided():
            found["state"] = self._together(found["state"])
            if HALF in found:
                copies = {number: {COPY: each} for number, each in found[HALF]["copies"].items()}
                copies = {number: each[COPY] for number, each in self._together(copies).items()}
                found[HALF] = {**found[HALF], "copies": copies}
        return found

    def _whole_of_shards(self) -> dict[str, Any]:
        leaves = self._leaves
        if leaves is None:
            return _with_each(self._optimizer.state_dict(), sharding.full)
        found = _with_each(self._of(leaves, gather=True), sharding.full)
        copies = {leaf.piece.number: sharding.full(leaf.tensor.detach()) for leaf in leaves}  # the shards are float32
        return {**found, HALF: {**(self.half(gather=True) or {}), "copies": copies}}

    def half(self, gather: bool) -> dict[str, Any] | None:
        """The copies in float32 and the loss scale; None where there are none."""
        leaves = self._leaves
        if leaves is None or not leaves.copies:
            return None
        states: dict[str, Any] = {"loss_scale": self._scale.state_dict() if self._scale is not None else {}}
        shards = [tuple(Shard(*leaf.piece, {COPY: leaf.tensor.detach()})) for leaf in leaves if leaf.is_copy]
        if gather or not leaves.sharded:
            states["copies"] = {number: each[COPY] for number, each in _gathered(leaves, shards).items()}
        else:
            states[SHARDS] = shards
        return states

    def _of(self, leaves: Leaves, gather: bool) -> dict[str, Any]:
        self.settle()
        with leaves.in_place_of_parameters() as stands:
            found = self._optimizer.state_dict()
        shards, others = taken(found["state"], stands)
        found["param_groups"] = _numbered(found["param_groups"], self._sizes())
        if gather:
            every = {**others, **_gathered(leaves, shards)}
            found["state"] = {number: every[number] for number in sorted(every)}
        else:
            found["state"], found[SHARDS] = others, [tuple(each) for each in shards]
        return found

    def _together(self, own: Mapping[Any, Any]) -> dict[Any, Any]:
        """What all ranks of the replica have, by parameter: of whole ones where tensor-parallel ranks have parts."""
        parameters = self._parameters()
        own = {number: whole_state(own[number], parameters[number]) for number in sorted(own)}
        parts = _from_all("mp", own, "optimizer.state_dict()")
        every = {number: values for part in parts for number, values in part.items()}
        return {number: every[number] for number in sorted(every)}

    # ---- taken

    def load(self, given: Mapping[str, Any]) -> None:
        """Takes what this rank needs of it; the state waits for the model to be divided."""
        known = {key: value for key, value in given.items() if key != PARTIAL}
        if is_divided():
            self._load(known)
            return
        self._deferred = known
        options = [{**group, "params": list(group["params"])} for group in known["param_groups"]]
        self._optimizer.load_state_dict({"state": {}, "param_groups": options})

    def load_half(self, given: Mapping[str, Any]) -> None:
        """Takes copies and the loss scale; the copies wait as well."""
        leaves = self._leaves
        if leaves is None or not leaves.copies:
            return
        if self._scale is not None and given.get("loss_scale"):
            self._scale.load_state_dict(given["loss_scale"])
        if not is_divided():
            self._deferred = {**(self._deferred or {**self._optimizer.state_dict(), "state": {}}), HALF: given}
            return
        copies = {number: {COPY: each} for number, each in given.get("copies", {}).items()}
        shards = self._as_shards(leaves, copies, given)
        for leaf in leaves:
            values = of_piece(shards, leaf.piece, leaf.parameter.shape)
            if values and (leaf.is_copy or _sharding() is not None):
                own = sharding.part_of(values[COPY], leaf.tensor)
                sharding.here(leaf.tensor.data).copy_(sharding.here(own))
        leaves.give_values()

    def take_deferred(self) -> None:
        """Loads what has waited."""
        if self._deferred is not None:
            self._load(self._deferred)

    def _load(self, known: Mapping[str, Any]) -> None:
        self._deferred = None
        leaves, parameters = self._leaves, self._parameters()
        if leaves is None:
            shards = [Shard(*each) for each in known.get(SHARDS, ())]
            values = {**known["state"], **merged(shards, dict(enumerate(parameters)))}
            kept = {
                number: part_of_state(each, parameters[number]) if isinstance(number, int) else each
                for number, each in values.items()
                if not isinstance(number, int) or (number < len(parameters) and not _is_away(parameters[number]))
            }
            if _sharding() is not None:
                kept = {
                    number: {name: sharding.part_of(value, parameters[number]) for name, value in each.items()}
                    for number, each in kept.items()
                }
            self._optimizer.load_state_dict({"state": kept, "param_groups": known["param_groups"]})
            return
        self.settle()
        sizes, saved = self._sizes(), [len(group["params"]) for group in known["param_groups"]]
        if sizes != saved:
            raise ValueError(f"the state is of groups of {saved} parameters, and the optimizer has {sizes}")
        shards = self._as_shards(leaves, known["state"], known)
        with leaves.in_place_of_parameters() as stands:
            values = {}
            for place, stood in enumerate(stands):
                if isinstance(stood, int):
                    found: Any = known["state"].get(stood, {})
                else:
                    found = of_piece(shards, stood.piece, stood.parameter.shape)
                    found = {name: sharding.part_of(value, stood.parameter) for name, value in found.items()}
                if found:
                    values[place] = found
            groups = _numbered(known["param_groups"], self._sizes())
            self._optimizer.load_state_dict({"state": values, "param_groups": groups})
        if HALF in known:
            self.load_half(known[HALF])

    def _as_shards(self, leaves: Leaves, whole: Mapping[Any, Any], given: Mapping[str, Any]) -> list[Shard]:
        """State of whole parameters, and whatever shards are given."""
        parameters = leaves.whole()
        own = {
            number: part_of_state(each, parameters[number]) for number, each in whole.items() if number in parameters
        }
        return [*whole_as_shards(own, parameters), *(Shard(*each) for each in given.get(SHARDS, ()))]

    # ---- dividing

    def settle(self) -> None:
        """The model is divided, or has more to train: the state of others' is dropped, and what is new shared out."""
        if not is_divided():
            return
        in_shards = _sharding()
        if in_shards is not None:
            in_shards.adopt(self._optimizer)
        for parameter in [each for each in self._optimizer.state if _is_away(each)]:
            del self._optimizer.state[parameter]
        if self._leaves is not None:
            before = dict(self._optimizer.state)
            if self._leaves.extend(state.model.local_parameters()):
                self._hand_over(self._leaves, before)
        self.take_deferred()

    def _hand_over(self, leaves: Leaves, before: Mapping[Any, Any]) -> None:
        """Leaves get the state that their parameters have: some optimizers make it when they are made."""
        numbers = {id(parameter): number for number, parameter in leaves.whole().items()}
        for parameter, values in before.items():
            number = numbers.get(id(parameter))
            stands = [leaf for leaf in leaves if leaf.piece.number == number]
            if number is None or any(leaf.tensor is parameter for leaf in stands):
                continue
            del self._optimizer.state[parameter]
            shard = Shard(number, 0, parameter.numel(), values)
            for leaf in stands:
                part = of_piece([shard], leaf.piece, parameter.shape)
                self._optimizer.state[leaf.tensor] = {name: _as_of(leaf, value) for name, value in part.items()}

    def _parameters(self) -> list[torch.Tensor]:
        return [parameter for group in self._optimizer.param_groups for parameter in group["params"]]

    def _sizes(self) -> list[int]:
        """How many parameters, or leaves in their place, each group has."""
        return [len(group["params"]) for group in self._optimizer.param_groups]


def settle_others() -> None:
    """Gives optimizers that nobody has wrapped the parts of their parameters; those inside another object, too."""
    own = state.optimizer
    for each in gc.get_objects():
        if not issubclass(type(each), torch.optim.Optimizer) or "param_groups" not in vars(each):
            continue
        if own is None or each is not own.optimizer:
            adopt(each)


def adopt(optimizer: torch.optim.Optimizer) -> bool:
    """An optimizer has this rank's parts of what it was made for; whether other parameters took the place of some.

    So has its state, which some (Adagrad) make when they are made.
    """
    found, in_shards = take_replaced(optimizer), _sharding()
    if in_shards is not None:
        in_shards.adopt(optimizer)
    for parameter, values in optimizer.state.items():
        optimizer.state[parameter] = part_of_state(values, parameter)
    return found


def is_divided() -> bool:
    """Whether there is a model, and each rank has its own part of it."""
    return state.model is not None and bool(state.model.partitioned)


def _sharding() -> sharding.Sharding | None:
    """Sharded data parallelism's, where it is on."""
    return state.model.sharding if state.model is not None else None


def _with_each(found: dict[str, Any], change: Callable[[Any], Any]) -> dict[str, Any]:
    """A state whose values are changed where they belong to shards; every rank that has one must call it."""
    if _sharding() is None:
        return found
    with log.waiting("optimizer.state_dict()"):
        values = {
            number: {name: change(value) for name, value in each.items()} for number, each in found["state"].items()
        }
    return {**found, "state": values}


def _is_away(parameter: torch.Tensor) -> bool:
    """Whether another rank of the pipeline has the parameter."""
    if isinstance(parameter, absent.AbsentParameter):
        return True
    return is_divided() and bool(state.model.has_elsewhere(parameter))


def _gathered(leaves: Leaves, shards: Sequence[tuple[Any, ...]]) -> dict[int, Any]:
    """The state of whole parameters, of all replicas' shards where it is shared out."""
    parts = [shards]
    if leaves.sharded:
        parts = _from_all(
            "rdp", list(shards), "optimizer.local_state_dict() or state_dict(), with shard_optimizer_state"
        )
    return merged((Shard(*each) for part in parts for each in part), leaves.whole())


def _from_all(kind: Kind, given: Any, what: str) -> list[Any]:
    """What each rank of the group gives."""
    group = state.group(kind)
    if group.size == 1:
        return [given]
    parts: list[Any] = [None] * group.size
    with log.waiting(what):
        dist.all_gather_object(parts, given, group=group.process_group)
    return parts


def _as_of(leaf: Leaf, value: Any) -> Any:
    """A value of a parameter's state, in the type of its leaf where it has one for each element."""
    if isinstance(value, torch.Tensor) and value.is_floating_point() and value.shape == leaf.tensor.shape:
        return value.to(leaf.tensor.dtype)
    return value


def _numbered(groups: Iterable[Mapping[str, Any]], sizes: Iterable[int]) -> list[dict[str, Any]]:
    """The options of saved groups, for so many parameters in each, which are numbered through."""
    numbers = itertools.count()
    return [{**group, "params": list(itertools.islice(numbers, size))} for group, size in zip(groups, sizes)]
