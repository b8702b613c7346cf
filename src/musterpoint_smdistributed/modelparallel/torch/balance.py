"""Cuts a model into parts of about the same cost: which modules go together, without any rank asked.

A part is a contiguous run of modules in the order in which the model registers them. Modules are opened only where the
parts would otherwise be too uneven: a module that is kept whole runs as it is, without any call to another rank inside.
"""

from __future__ import annotations

import itertools
import math
from typing import Any, Iterable, Iterator, NamedTuple, Sequence

from torch import nn

from .packing import is_in

TOLERANCE = 1.1
"""How far the largest part may be above the average before more modules are opened."""

_LISTS = (nn.Sequential, nn.ModuleList, nn.ModuleDict)
_OPENED = (*_LISTS, nn.Transformer, nn.TransformerEncoder, nn.TransformerDecoder)
"""Of torch's own modules, those that call their children. The others (MultiheadAttention, TransformerEncoderLayer) use
their children's parameters without a call, which a part on another rank doesn't have."""
_CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
_POOLS = (nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d, nn.AvgPool1d, nn.AvgPool2d, nn.AvgPool3d)
_LAST_MAP = 49.0
"""Positions of the last feature map: 7 by 7."""


class Unit(NamedTuple):
    """Modules that stay together, as one link of the chain.

    names: the qualified names of the outermost modules; the first says where in the order it stands.
    cost: its share of the whole model's memory and time, weighted; all units together are about 1.
    """

    names: tuple[str, ...]
    cost: float


def cut(root: nn.Module, parts: int, memory_weight: float) -> tuple[tuple[Unit, ...], ...]:
    """The units of each part, in the order of registration."""
    measure = _Measure(root, memory_weight)
    opened = {""}
    best: tuple[tuple[Unit, ...], ...] = ()
    best_load = float("inf")
    for _ in range(200):  # each round opens one module
        units = _units(root, opened, measure)
        found = _evenest(units, parts)
        load = max(_load(part) for part in found)
        if load < best_load * 0.98:  # opening has its price: every call between ranks
            best, best_load = found, load
        if load <= TOLERANCE * sum(unit.cost for unit in units) / parts:
            break
        heaviest = max(found, key=_load)
        names = [name for unit in sorted(heaviest, key=lambda unit: -unit.cost) for name in unit.names]
        openable = next((name for name in names if _can_open(root.get_submodule(name))), None)
        if openable is None:
            break
        opened.add(openable)
    return best


class _Measure:
    """What modules cost, relative to the whole model."""

    def __init__(self, root: nn.Module, memory_weight: float) -> None:
        self.root, self.memory_weight = root, memory_weight
        self.bytes = max(sum(each.nbytes for each in (*root.parameters(), *root.buffers())), 1)
        self.estimates = _estimates(root)
        self.time = max(self._estimate(root), 1)

    def cost(self, names: Sequence[str], opened: Iterable[str] = ()) -> float:
        """Of modules as a whole, shared parameters counted once; of ``opened`` ones their own parameters."""
        modules = [self.root.get_submodule(name) for name in names]
        tensors = {id(tensor): tensor for module in modules for tensor in (*module.parameters(), *module.buffers())}
        for name in opened:
            module = self.root.get_submodule(name)
            own = (*module.parameters(recurse=False), *module.buffers(recurse=False))
            tensors.update((id(tensor), tensor) for tensor in own)
        size = sum(tensor.nbytes for tensor in tensors.values())
        time = sum(self._estimate(module) for module in modules)
        return self.memory_weight * size / self.bytes + (1 - self.memory_weight) * time / self.time

    def _estimate(self, module: nn.Module) -> float:
        return sum(self.estimates[id(each)] for each in module.modules())


def _estimates(root: nn.Module) -> dict[int, float]:
    """A forward pass's time of each module by itself, in multiplications for one position of the last feature map.

    Parameters are multiplied once for each position, and embeddings only look up. How large a convolution's map is
    follows from the strides behind it; the last map has the usual 7 by 7 positions, and an image's linear layers one.
    """
    shrunk = 1.0
    sizes: dict[int, float] = {}
    for each in root.modules():
        stride, is_shortcut = _stride(each)
        if not is_shortcut:
            shrunk *= stride
        if isinstance(each, _CONVOLUTIONS):
            sizes[id(each)] = 1 / shrunk
    return {
        id(each): 1.0 + _multiplied(each) * _LAST_MAP * sizes.get(id(each), 1 / _LAST_MAP / shrunk) * shrunk
        for each in root.modules()
    }


def _stride(module: nn.Module) -> tuple[float, bool]:
    """By how much a module makes maps smaller, and whether it may be the shortcut around others that do as well."""
    given: Any = module  # torch's own types allow for each number of dimensions
    if isinstance(module, nn.Upsample):
        return 1 / _product(given.scale_factor or 1, 2), False
    if isinstance(module, _POOLS):
        return _product(given.stride or given.kernel_size, int(type(module).__name__[-2])), False
    if isinstance(module, _CONVOLUTIONS):
        stride = _product(given.stride, 1)
        return (1 / stride if given.transposed else stride), _product(given.kernel_size, 1) == 1
    return 1.0, False


def _product(each: Any, dimensions: int) -> float:
    """Over all dimensions, of one number for all or one for each."""
    return float(math.prod(each) if isinstance(each, tuple) else each**dimensions)


def _multiplied(module: nn.Module) -> int:
    if isinstance(module, (nn.Embedding, nn.EmbeddingBag)):
        return 0
    return sum(parameter.numel() for parameter in module.parameters(recurse=False))


def _can_open(module: nn.Module) -> bool:
    if not any(True for _ in module.children()):
        return False
    return isinstance(module, _OPENED) or not type(module).__module__.startswith("torch.nn.")


def _units(root: nn.Module, opened: set[str], measure: _Measure) -> list[Unit]:
    """The closed modules below the opened ones, those that share parameters as one unit."""
    closed = list(_closed(root, "", opened))
    together: dict[str, list[str]] = {name: [name] for name in closed}
    holder: dict[int, str] = {}
    where = {name: name for name in closed}
    for name in closed:
        for parameter in root.get_submodule(name).parameters():
            first = where[holder.setdefault(id(parameter), name)]
            if first != where[name]:
                moved = together.pop(where[name])
                together[first] += moved
                where.update((each, first) for each in moved)
    units = []
    own: dict[str, list[str]] = {}  # the parameters of an opened module itself go with its first unit
    for name in sorted(opened):
        inside = next((each for each in closed if is_in(each, name)), None)
        if inside is not None:
            own.setdefault(where[inside], []).append(name)
    for first, names in together.items():
        units.append(Unit(tuple(names), measure.cost(names, own.get(first, ()))))
    return units


def _closed(module: nn.Module, name: str, opened: set[str]) -> Iterator[str]:
    for child_name, child in module.named_children():
        qualified = f"{name}.{child_name}" if name else child_name
        if qualified in opened or (type(child) in _LISTS and has_state(child)):
            yield from _closed(child, qualified, opened)
        elif has_state(child) or isinstance(module, nn.Sequential):
            yield qualified  # the others have nothing to hold: they run wherever they are called


def has_state(module: nn.Module) -> bool:
    """Whether the module or one in it has parameters or buffers."""
    return any(True for _ in itertools.chain(module.parameters(), module.buffers()))


def _load(units: Iterable[Unit]) -> float:
    return sum(unit.cost for unit in units)


def _evenest(units: Sequence[Unit], parts: int) -> tuple[tuple[Unit, ...], ...]:
    """Contiguous parts whose largest is as small as possible; of those, the evenest. None is empty while units last."""
    sums = [0.0, *itertools.accumulate(unit.cost for unit in units)]
    count = len(units)
    filled = min(parts, count)
    # of the first units in so many parts: the largest part, the sum of the squares, and where the last part begins
    best = [[(float("inf"), float("inf"), 0)] * (count + 1) for _ in range(filled + 1)]
    best[0][0] = (0.0, 0.0, 0)
    for part in range(1, filled + 1):
        for end in range(part, count + 1):
            for begin in range(end - 1, part - 2, -1):
                load = round(sums[end] - sums[begin], 12)
                if load > best[part][end][0]:  # a longer last part only grows
                    break
                largest, squares, _ = best[part - 1][begin]
                best[part][end] = min(best[part][end], (max(largest, load), squares + load * load, begin))
    cuts = [count]
    for part in range(filled, 0, -1):
        cuts.append(best[part][cuts[-1]][2])
    cuts = [*reversed(cuts), *[count] * (parts - filled)]
    return tuple(tuple(units[cuts[part] : cuts[part + 1]]) for part in range(parts))
