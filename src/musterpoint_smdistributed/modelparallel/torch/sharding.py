"""Sharded data parallelism: each rank keeps a part of every parameter, of its gradient and of the optimizer's state.

Torch's ``fully_shard`` does the work: it gathers a group of modules before they compute and reduces their gradients
afterwards. Here is which modules make a group, and what ``fully_shard`` doesn't take as it is. With a degree smaller
than the number of ranks there are several copies of the parts, as in AWS's documentation ("Sharded Data Parallelism").
"""

from __future__ import annotations

import contextlib
import functools
from collections import Counter
from typing import Any, Callable, Iterable, Iterator, Mapping, NamedTuple, Sequence

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, Partial, Replicate, distribute_tensor
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree

from . import absent, delayed, passes
from .agreement import END, GatherOrder
from .errors import SMPStepError

_FREED, _UNUSED = "out of bounds for storage of size 0", "not have been used in the graph"
"""What torch says of a gathered parameter that has been given up, and of one that has become a part again."""
_MIXED = "got mixed torch.Tensor and DTensor"
"""What torch says of a part among whole tensors."""
EMBEDDINGS = (nn.Embedding, nn.EmbeddingBag)
"""Modules whose gradients may be sparse."""
_LISTS = (nn.ModuleList, nn.ModuleDict, nn.ParameterList, nn.ParameterDict)
"""Modules that don't compute when they are called."""
LARGEST = 0.3
"""A module with more of the parameters than this is opened, where what is in it can be gathered by itself."""


Settle = Callable[[Sequence[tuple[str, nn.Parameter]]], None]


class Limits(NamedTuple):
    """How much stays gathered between the forward and the backward pass, which saves gathering it a second time.

    persistent: modules stay whose parameters all have fewer elements than this.
    live: how many elements may stay in all.
    """

    persistent: int
    live: int


class Sharding:
    """A model in shards.

    mesh: the ranks, by copy (``replicate``) and by part of a copy (``shard``).
    whole: parameters by their names that every rank has whole: scalars, those with sparse gradients, those of another
        type than most.
    parts: the others, by their names, as DTensors.
    order: what is gathered in the step that runs.
    used: names of the parameters that got a gradient in this step.
    half: the type that shards are gathered in; None: their own. Gradients are reduced in float32 then.

    ``settle`` gives delayed parameters, by their names, their memory and values, on all ranks alike.
    """

    def __init__(
        self, module: nn.Module, mesh: DeviceMesh, limits: Limits, half: torch.dtype | None, settle: Settle
    ) -> None:
        self.mesh, self.half, self._module = mesh, half, module
        self.used: set[str] = set()
        before = dict(module.named_parameters())
        passes.refuse_hooks(before)
        ignored = unfit(module)
        policy = MixedPrecisionPolicy() if half is None else MixedPrecisionPolicy(half, torch.float32)
        groups = _groups(module, ignored)
        stays = _staying(groups, ignored, limits)
        for group in (*groups, module):
            settle(delayed.named(group))
            whole = list(group.parameters())
            reshard = group is not module and group not in stays
            fully_shard(
                group, mesh=mesh["shard"], reshard_after_forward=reshard, mp_policy=policy, ignored_params=ignored
            )
            _release(whole, set(group.parameters()))
        every_rank_the_same = getattr(module, "set_reduce_scatter_unused_params", None)  # in torch 2.13 and newer
        if every_rank_the_same is not None:
            every_rank_the_same(True)
        after = dict(module.named_parameters())
        self._replaced: dict[torch.Tensor, nn.Parameter] = {
            old: after[name] for name, old in before.items() if after[name] is not old
        }
        DTensor.data = property(torch.Tensor.data.__get__, _set_data)  # type: ignore[assignment, attr-defined]
        self._list()
        self._names: dict[nn.Parameter, str] = {}
        self._noting: set[nn.Parameter] = set()
        self._versions: dict[str, tuple[int, int]] = {}
        self.order = GatherOrder(dist.get_process_group_ranks(mesh["shard"].get_group()))
        self._watch(groups)
        self._reaches: dict[tuple[str, bool], bool] = {}

    @property
    def shards(self) -> int:
        return self.mesh["shard"].size()

    @contextlib.contextmanager
    def step(self, name: str, calls: int) -> Iterator[None]:
        """While a step function runs, which has been called so often before. Afterwards nothing is gathered any more.

        The first time it is watched for parameters that are used outside of their modules.
        """
        key, reaching = (name, torch.is_grad_enabled()), Reaching(self)
        self.order.begin(calls)
        with contextlib.ExitStack() as stack:
            if self._reaches.get(key, True):
                stack.enter_context(passes.within(reaching))
                stack.enter_context(reaching)
            try:
                yield
                self.order.end()
                self._compare_switches()
            except RuntimeError as error:
                if _MIXED in str(error):
                    raise SMPStepError(
                        f"{error}. A weight is used where it isn't gathered: as an argument of "
                        "autograd.Function.apply or torch.utils.checkpoint with use_reentrant=True, of a module that "
                        "isn't called. Call the module that has it, or leave sharded_data_parallel_degree at 1"
                    ) from error
                if _FREED not in str(error) and _UNUSED not in str(error):
                    raise
                raise SMPStepError(
                    f"{error} " * (_UNUSED in str(error)) + "a backward pass needs a weight that an earlier one has "
                    "given up: in a step with several passes (retain_graph, autograd.grad) somebody uses a weight of "
                    "another module, which stays gathered until the first pass is through. Set "
                    "sdp_param_persistence_threshold to 0"
                ) from error
        self._reaches[key] = reaching.found
        self.reshard()

    @contextlib.contextmanager
    def taking_parts(self) -> Iterator[None]:
        """Modules load parts, of whole tensors as well, behind the script's hooks."""

        def take(module: nn.Module, values: dict[str, Any], prefix: str, *_: Any) -> None:
            for name, each in module._parameters.items():
                if each is not None and prefix + name in values:
                    values[prefix + name] = part_of(values[prefix + name], each)

        handles = [
            each.register_load_state_dict_pre_hook(take)  # type: ignore[no-untyped-call]
            for each in self._module.modules()
        ]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def reshard(self) -> None:
        """Gives up what is gathered."""
        for module in self._module.modules():
            if isinstance(module, FSDPModule):
                module.reshard()

    def adopt(self, optimizer: torch.optim.Optimizer) -> None:
        """The optimizer updates the parts of what it was made for, and its state is of the parts."""
        for group in optimizer.param_groups:
            group["params"] = [self._replaced.get(each, each) for each in group["params"]]
        for old in [each for each in optimizer.state if each in self._replaced]:
            new, values = self._replaced[old], optimizer.state.pop(old)
            optimizer.state[new] = {name: part_of(value, new) for name, value in values.items()}

    def _compare_switches(self) -> None:
        """Raises SMPStepError where a gathered parameter wants gradients and its parts don't."""
        for name, each in self._module.named_parameters():
            part = self.parts.get(name, each)
            if each.requires_grad != part.requires_grad:
                raise SMPStepError(
                    f"requires_grad of parameter {name} was switched in a step, while it was gathered from its parts "
                    "(sharded_data_parallel_degree): switch it between steps"
                )

    def take_in(self, added: Mapping[str, torch.Tensor]) -> None:
        """The model has other parameters since; those that were added are whole on every rank."""
        self._list()
        note(added.values())

    def _list(self) -> None:
        """Lists the parameters that the model has while nothing is gathered."""
        self._by_key = dict(self._module.named_parameters(remove_duplicate=False))
        now = dict(self._module.named_parameters())
        self.whole = {name: each for name, each in now.items() if not isinstance(each, DTensor)}
        self.parts = {name: each for name, each in now.items() if isinstance(each, DTensor)}

    def _watch(self, groups: list[nn.Module]) -> None:
        """Notes which parameters autograd reaches: the gradients of the others are zeros here, but None elsewhere."""
        for module in (*groups, self._module):
            prefix = next(name for name, each in self._module.named_modules() if each is module)
            # before fully_shard's own, which gathers
            module.register_forward_pre_hook(functools.partial(self._gathers, prefix or "the model"), prepend=True)
            module.register_forward_pre_hook(functools.partial(self._gathered, prefix))
            # before fully_shard's own, which gives up what was gathered
            module.register_forward_hook(functools.partial(self._computed, prefix), prepend=True)
        self._module.register_forward_hook(lambda *_: self.order.next(END))

    def _gathers(self, name: str, module: nn.Module, args: Any) -> None:
        for own, each in module.named_parameters(name if name != "the model" else "", remove_duplicate=False):
            if not isinstance(each, DTensor) and each not in self._names and self._by_key.get(own) is not each:
                raise SMPStepError(
                    f"{own} has another tensor in its place (torch.func.functional_call), and each rank keeps a part "
                    "of it (sharded_data_parallel_degree): what is gathered would take that place. Compute with the "
                    "tensor itself (torch.nn.functional), or leave the degree at 1"
                )
        if any(isinstance(each, DTensor) for each in module.parameters()):  # else it is gathered still
            passes.refuse_transforms(
                f"{name}, of which each rank keeps a part (sharded_data_parallel_degree)",
                "Leave the degree at 1, or have the transform inside of what is gathered at once: a layer of a row",
                vmap=False,
            )
            self.order.next(name)

    def _gathered(self, prefix: str, module: nn.Module, args: Any) -> None:
        for name, parameter in module.named_parameters(prefix):
            if isinstance(parameter, DTensor):
                continue
            self._versions[name] = parameter._version, parameter.data_ptr()
            self._names.setdefault(parameter, name)
            if parameter.requires_grad and parameter not in self._noting:
                self._noting.add(parameter)
                note = functools.partial(lambda name, _: self.used.add(name), name)
                parameter.register_post_accumulate_grad_hook(note)  # type: ignore[no-untyped-call]

    def _computed(self, prefix: str, module: nn.Module, args: Any, result: Any) -> None:
        """Raises SMPStepError where a forward pass has changed what was gathered: its parts would stay as they are."""
        for name, parameter in module.named_parameters(prefix):
            before = self._versions.pop(name, None)
            part = name in self.parts and not isinstance(parameter, DTensor)
            if part and before is not None and before != (parameter._version, parameter.data_ptr()):
                raise SMPStepError(
                    f"parameter {name} is changed in a forward pass, but each rank keeps a part of it, which stays as "
                    "it is (sharded_data_parallel_degree). Change it behind the step, or make it a buffer"
                )


class Reaching(TorchFunctionMode):
    """Gathers a parameter that is used while the module it belongs to isn't: a borrowed weight, a penalty.

    ``found`` says whether there was one.
    """

    def __init__(self, sharding: Sharding) -> None:
        super().__init__()
        self.found = False
        self._order = sharding.order
        self._parts = {id(part): name for name, part in sharding.parts.items()}
        self._half = sharding.half

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if _has_part((*args, *kwargs.values())) and _needs_values(func):
            args, kwargs = _pytree.tree_map_only(DTensor, self._value, (args, kwargs))
        return func(*args, **kwargs)

    def _value(self, tensor: DTensor) -> torch.Tensor:
        if id(tensor) not in self._parts:
            return tensor
        self.found = True
        self._order.next(self._parts[id(tensor)])
        value = gathered(tensor)
        return value if self._half is None else value.to(self._half)


def _needs_values(func: Any) -> bool:
    """Whether it computes with what is in a tensor; properties do that give the tensor in another order."""
    name, own = absent.named(func)
    return name not in absent.WITHOUT_VALUE or own in ("T", "mT", "H", "mH")


def _has_part(values: tuple[Any, ...]) -> bool:
    return any(
        isinstance(each, DTensor) or (isinstance(each, (list, tuple)) and _has_part(tuple(each))) for each in values
    )


def gathered(part: DTensor) -> torch.Tensor:
    """The whole of a parameter. Its gradient is the mean of all ranks', in parts again."""
    ranks = part.device_mesh.size()
    whole = part.redistribute(placements=[Replicate()] * part.device_mesh.ndim)
    value = whole.to_local(grad_placements=[Partial()] * part.device_mesh.ndim)
    if value.requires_grad:
        value.register_hook(lambda gradient: gradient / ranks)  # type: ignore[no-untyped-call]
    return value


def mesh_of(device: torch.device | None, ranks: int, degree: int) -> DeviceMesh:
    """The mesh of ``ranks`` in groups of ``degree``, neighbours first: parts travel over the shortest way."""
    kind = "cpu" if device is None else "cuda"
    return init_device_mesh(kind, (ranks // degree, degree), mesh_dim_names=("replicate", "shard"))


def part_of(value: Any, parameter: torch.Tensor) -> Any:
    """What belongs to a parameter as a DTensor, of a whole tensor or of this rank's part; anything else as it is."""
    if not isinstance(parameter, DTensor) or not isinstance(value, torch.Tensor) or isinstance(value, DTensor):
        return value
    mesh, placements = parameter.device_mesh, parameter.placements
    if value.shape == parameter.shape:
        return distribute_tensor(value.to(parameter.device), mesh, placements, src_data_rank=None)
    if value.shape != parameter._local_tensor.shape or not value.dim():
        return value
    return DTensor.from_local(
        value.to(parameter.device), mesh, placements, run_check=False, shape=parameter.shape, stride=parameter.stride()
    )


def local(value: Any) -> Any:
    """This rank's part as a plain tensor."""
    return value._local_tensor.detach().clone() if isinstance(value, DTensor) else value


def here(tensor: torch.Tensor) -> torch.Tensor:
    """What this rank has of a tensor, in its own memory."""
    return tensor._local_tensor if isinstance(tensor, DTensor) else tensor


def full(value: Any) -> Any:
    """The whole as a plain tensor; every rank that has a part must ask."""
    with torch.no_grad():
        return value.full_tensor() if isinstance(value, DTensor) else value


def with_each(values: Any, change: Callable[[Any], Any]) -> Any:
    """The same dict, each of its values changed; tensors that it has twice stay one."""
    done: dict[int, Any] = {}
    for key, value in values.items():
        if id(value) not in done:
            done[id(value)] = change(value)
        values[key] = done[id(value)]
    return values


# ---- the names by which AWS's published scripts reach shards

# They log norms of parameters with these. Here a shard is a DTensor, and nothing is copied into flat buffers; the names
# lead to the same values.


def _set_data(part: DTensor, value: torch.Tensor) -> None:
    """Does ``part.data = value`` in the memory that ``fully_shard`` knows."""
    same = isinstance(value, DTensor) and value.placements == part.placements and value.device_mesh == part.device_mesh
    if same and hasattr(part, "ds_tensor") and value.dtype == part.dtype and value.shape == part.shape:
        with torch.no_grad():
            here(part).copy_(here(value))
    else:
        torch.Tensor.data.__set__(part, value)  # type: ignore[attr-defined]


def note(parameters: Iterable[torch.Tensor]) -> None:
    """Gives each parameter ``ds_tensor``, what this rank has of it, which knows its ``ds_numel``."""
    for each in parameters:
        own: Any = here(each.detach())
        own.ds_numel = own.numel()
        each.ds_tensor = own  # type: ignore[attr-defined]


class FlatGroup:
    """A group of an optimizer as one row of elements: what this rank has of its parameters, one after the other."""

    def __init__(self, parameters: Sequence[Any]) -> None:
        self._places: dict[tuple[int, int], Any] = {}
        start = 0
        for each in parameters:
            size = each.ds_tensor.numel()
            self._places[start, size] = each.ds_tensor
            start += size
        self._size = start

    def numel(self) -> int:
        return self._size

    def narrow(self, dim: int, start: int, length: int) -> torch.Tensor:
        """The elements of one parameter, as they are now and later."""
        found = self._places.get((start, length))
        if dim or found is None:
            raise SMPStepError(
                f"optimizer.fp32_partitioned_groups_flat: narrow({dim}, {start}, {length}) isn't one parameter's "
                "place, and shards aren't in one row here: use parameter.ds_tensor"
            )
        return torch.Tensor.flatten(found)


# ---- which modules make a group


def _release(before: list[nn.Parameter], after: set[nn.Parameter]) -> None:
    """Gives up the memory of what is in parts now: optimizers hold the whole parameters still."""
    for each in before:
        if each not in after:
            absent.release(each)


def unfit(module: nn.Module) -> set[nn.Parameter]:
    """What ``fully_shard`` can't cut: scalars, those with sparse gradients, those of another type than most."""
    parameters = list(module.parameters())
    sizes: Counter[torch.dtype] = Counter()
    for each in parameters:
        sizes[each.dtype] += each.numel()
    most = sizes.most_common(1)[0][0] if sizes else None
    unfit: set[nn.Parameter] = {each for each in parameters if not each.dim() or each.dtype != most}
    for inner in module.modules():
        if getattr(inner, "sparse", False) and isinstance(inner, EMBEDDINGS):
            unfit.update(inner.parameters())
    return unfit


def _groups(root: nn.Module, ignored: set[nn.Parameter]) -> list[nn.Module]:
    """Modules that are gathered by themselves: those of a row of layers, wherever in the model there is one.

    Only such that nothing outside shares parameters or modules with, and inner ones first.
    """
    parents: dict[nn.Module, set[nn.Module]] = {}
    owners: dict[nn.Parameter, set[nn.Module]] = {}
    for module in root.modules():
        for child in module.children():
            parents.setdefault(child, set()).add(module)
        for parameter in module.parameters(recurse=False):
            owners.setdefault(parameter, set()).add(module)
    total = _size(root, ignored)
    found: list[nn.Module] = []

    def alone(module: nn.Module) -> bool:
        inside = set(module.modules())
        return all(parents[each] <= inside for each in inside - {module}) and all(
            owners[each] <= inside for each in module.parameters()
        )

    def search(module: nn.Module, in_row: bool) -> None:
        if module in found:
            return
        size = _size(module, ignored)
        if in_row and size and not isinstance(module, _LISTS) and alone(module) and not _changes_its_input(module):
            inner = len(found)
            if size > LARGEST * total:
                search_in(module)
            rest = size - sum(_size(each, ignored) for each in found[inner:])
            if rest and module not in found:
                found.append(module)
            return
        search_in(module)

    def search_in(module: nn.Module) -> None:
        row = isinstance(module, nn.Sequential | nn.ModuleList | nn.ModuleDict)
        for child in module.children():
            search(child, row)

    search_in(root)
    return found


def _size(module: nn.Module, ignored: set[nn.Parameter]) -> int:
    return sum(each.numel() for each in module.parameters() if each not in ignored)


def _changes_its_input(module: nn.Module) -> bool:
    """Whether it begins in place: autograd doesn't allow that behind ``fully_shard``'s own node."""
    first = next((each for each in module.modules() if not any(True for _ in each.children())), module)
    return bool(getattr(first, "inplace", False))


def _staying(groups: list[nn.Module], ignored: set[nn.Parameter], limits: Limits) -> set[nn.Module]:
    """The groups that stay gathered until their backward pass."""
    staying, live = set[nn.Module](), 0
    for group in groups:
        sizes = [each.numel() for each in group.parameters() if each not in ignored]
        if max(sizes) < limits.persistent and live + sum(sizes) <= limits.live:
            staying.add(group)
            live += sum(sizes)
    return staying
