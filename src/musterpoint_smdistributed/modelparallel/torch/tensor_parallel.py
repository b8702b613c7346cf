"""Which modules of a model are shared out over the ranks of a tensor-parallel group: by marks of the script.

``smp.tensor_parallelism`` and ``smp.set_tensor_parallelism`` mark modules, ``smp.tp_register`` says what takes the
place of a class of the script's own. :func:`distribute` puts the distributed modules into the model when it is wrapped.
Rules: AWS's documentation ("PyTorch API for Tensor Parallelism").
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import weakref
from collections import Counter
from typing import Any, Callable, Iterator, Mapping, NamedTuple, TypeVar

import torch
from torch import nn

from . import absent, delayed, log, model_state, passes
from .effects import tables_of_hooks
from .marks import Marks
from .nn.base import DistributedModule, IndivisibleError, indivisible, refuse_unknown
from .nn.huggingface import families
from .nn.layers import DistributedEmbedding, DistributedLinear
from .state import state

Class = TypeVar("Class", bound=type)
Hook = Callable[..., Any]

_OF_LOADING = ("_load_state_dict_pre_hooks",)
"""Where torch's hooks know their module by themselves."""
_MADE = "_smp_made_with"
"""The attribute that says with which arguments a module of a registered class was made."""


class Mark(NamedTuple):
    """Whether a module is to be distributed, and arguments of the distributed one."""

    enabled: bool
    arguments: Mapping[str, Any]


class Registered(NamedTuple):
    """What takes the place of a class's modules.

    init: from the arguments of the original's ``__init__`` to ``(args, kwargs)`` of the distributed one.
    forward: the same for ``forward``.
    returned: from what the distributed module returns to what the original would.
    """

    module: type[DistributedModule]
    init: Hook | None
    forward: Hook | None
    returned: Hook | None


_registered: dict[type, Registered] = {}
_marks: Marks[Mark] = Marks("_smp_tensor_parallelism")
_UNMARKED = Mark(False, {})


@contextlib.contextmanager
def tensor_parallelism(enabled: bool = True, **tp_config: Any) -> Iterator[None]:
    """Supported modules made inside are distributed, or are not; of nested contexts the innermost counts.

    ``tp_config``: arguments of the distributed modules; those count more than what a registered class's hook says.
    Raises TypeError: an argument that no distributed module has, neither of ``smp.nn`` nor of those registered so far.
    """
    _refuse_unknown("smp.tensor_parallelism", tp_config)
    with _marks.on_modules_made_inside(Mark(enabled, tp_config)):
        yield


@contextlib.contextmanager
def model_creation(
    tensor_parallelism: bool = False,
    dtype: torch.dtype | None = None,
    delayed_parameter_initialization: bool | None = None,
    **tp_config: Any,
) -> Iterator[None]:
    """Parameters made inside are of ``dtype``; ``tensor_parallelism`` and ``tp_config`` as in that context.

    ``delayed_parameter_initialization``: as in ``smp.delay_param_initialization``; None: as the configuration says.
    """
    _refuse_unknown("smp.model_creation", tp_config)
    delays = delayed_parameter_initialization
    if delays is None:
        delays = state.initialized and state.cfg.delayed_parameter_initialization
    before = torch.get_default_dtype()
    if dtype is not None:
        torch.set_default_dtype(dtype)
    try:
        marked = _marks.on_modules_made_inside(Mark(tensor_parallelism, tp_config))
        with delayed.delay_param_initialization(delays), marked:
            yield
    finally:
        torch.set_default_dtype(before)


def set_tensor_parallelism(module: nn.Module, enabled: bool = True, **tp_config: Any) -> None:
    """As :func:`tensor_parallelism`, for a module that is there already, and all modules in it.

    Raises:
        ValueError: the model has been wrapped already.
        TypeError: as in that context.
    """
    _refuse_unknown("smp.set_tensor_parallelism", tp_config)
    if state.model is not None and any(module is each for each in state.model.modules()):
        raise ValueError("smp.set_tensor_parallelism: call it before smp.DistributedModel wraps the model")
    _marks.put_on(module, Mark(enabled, tp_config))


def _refuse_unknown(what: str, given: Mapping[str, Any]) -> None:
    """Raises TypeError for arguments that no distributed module has, where each of them says which it has."""
    if all(_arguments_of(each.module) is not None for each in _registered.values()):
        refuse_unknown(what, given)


def tp_register(
    dist_module: type[DistributedModule],
    init_hook: Hook | None = None,
    forward_hook: Hook | None = None,
    return_hook: Hook | None = None,
) -> Callable[[Class], Class]:
    """A decorator of a module class that says which distributed module takes its place.
    Raises TypeError: ``dist_module`` isn't a class derived from ``smp.nn.DistributedModule``."""

    def register(module_cls: Class) -> Class:
        tp_register_with_module(module_cls, dist_module, init_hook, forward_hook, return_hook)
        return module_cls

    return register


def tp_register_with_module(
    module_cls: type,
    dist_module: type[DistributedModule],
    init_hook: Hook | None = None,
    forward_hook: Hook | None = None,
    return_hook: Hook | None = None,
) -> None:
    """As :func:`tp_register`, for a class that is there already; before modules of it are made."""
    if not (isinstance(dist_module, type) and issubclass(dist_module, DistributedModule)):
        raise TypeError(f"smp.tp_register: {dist_module!r:.80} isn't a class derived from smp.nn.DistributedModule")
    _registered[module_cls] = Registered(dist_module, init_hook, forward_hook, return_hook)
    original: Callable[..., None] = module_cls.__init__  # type: ignore[misc]
    if hasattr(original, "of_the_class"):
        return

    @functools.wraps(original)
    def remembering(self: Any, *args: Any, **kwargs: Any) -> None:
        if type(self) is module_cls:
            self.__dict__.setdefault(_MADE, (args, kwargs))
        original(self, *args, **kwargs)

    vars(remembering)["of_the_class"] = original
    module_cls.__init__ = remembering  # type: ignore[misc]


def distribute(root: nn.Module) -> nn.Module:
    """Puts distributed modules in the place of the outermost marked ones that are supported; says what it did, once.

    Returns the root, which may be another one now. Distributed modules have the values of those whose place they take.
    With a degree of 1 only transformers' models change, so that what a job saves fits one of any degree.
    """
    mark(root)
    alone = state.cfg.tensor_parallel_degree == 1
    if alone and not any(_is_wanted(each) and families.family_of(each) for each in root.modules()):
        return root
    holders = _holders(root)
    made: dict[int, nn.Module] = {}
    skipped: dict[str, list[str]] = {}

    def visit(module: nn.Module, name: str) -> nn.Module:
        if id(module) in made:
            return made[id(module)]
        made[id(module)] = module
        if isinstance(module, DistributedModule):
            return module
        if _is_wanted(module) and _is_supported(module, alone):
            why, replacement = _replaced(module, holders)
            if replacement is not None:
                made[id(module)] = made[id(replacement)] = replacement
                return replacement
            skipped.setdefault(why, []).append(name or type(module).__name__)
        for key, child in list(module._modules.items()):
            if child is not None:
                other = visit(child, f"{name}.{key}" if name else key)
                if other is not child:
                    module._modules[key] = other
        return module

    new = visit(root, "")
    _say(new, skipped)
    encoders = (each for each in new.modules() if isinstance(each, (nn.TransformerEncoder, nn.TransformerEncoderLayer)))
    if any(True for each in encoders for _ in _outermost(each)):
        # its fast path for evaluation takes the weights of its linear layers without calling them
        torch.backends.mha.set_fastpath_enabled(False)
    return new


def mark(root: nn.Module) -> None:
    """Says of each parameter of distributed modules how it is divided; copies of them have forgotten it."""
    for module in root.modules():
        if isinstance(module, DistributedModule):
            module.mark()


def _say(root: nn.Module, skipped: Mapping[str, list[str]]) -> None:
    count = Counter(type(each).__name__ for each in _outermost(root))
    kinds = ", ".join(f"{number} {name}" for name, number in sorted(count.items()))
    log.say(f"tensor parallelism over {state.cfg.tensor_parallel_degree} ranks: {kinds or 'no module is distributed'}")
    for why, names in skipped.items():
        shown = ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
        log.say(f"not distributed: {shown}: {why}")


def _outermost(module: nn.Module) -> Iterator[DistributedModule]:
    """Distributed modules that aren't part of another one."""
    if isinstance(module, DistributedModule):
        yield module
        return
    for child in module.children():
        yield from _outermost(child)


def _is_wanted(module: nn.Module) -> bool:
    return _marks.of(module, _UNMARKED).enabled


def _is_supported(module: nn.Module, alone: bool = False) -> bool:
    if type(module) in _registered or type(module) in (nn.Linear, nn.Embedding):
        return not alone
    return families.family_of(module) is not None


def _holders(root: nn.Module) -> Counter[int]:
    """How many of the modules below and with this one have each parameter, by its id."""
    return Counter(id(each) for module in root.modules() for each in module.parameters(recurse=False))


def _replaced(module: nn.Module, holders: Counter[int]) -> tuple[str, nn.Module | None]:
    """The distributed module in a module's place; or why there is none."""
    if any(count < holders[each] for each, count in _holders(module).items()):
        return "its weights are another module's as well", None
    if any(map(passes.has_any, module.parameters())):
        return "a parameter has a hook, which would get a part of the gradient", None
    if "forward" in module.__dict__:
        return (
            "its forward function is another one already; smp.set_activation_checkpointing comes behind wrapping",
            None,
        )
    if type(module) in (nn.Linear, nn.Embedding):
        if "weight" not in module._parameters:  # weight_norm, pruning
            return "its weight is made of other parameters", None
        return _of_torch(module)
    replaced = _of_registered if type(module) in _registered else _of_transformers
    try:
        return replaced(module, _marks.of(module, _UNMARKED).arguments)
    except IndivisibleError as error:
        return str(error), None


def _of_torch(module: nn.Module) -> tuple[str, nn.Module | None]:
    """The same module under its distributed class; parameters stay the same objects, for optimizers that have them."""
    kind: type[DistributedModule]
    if isinstance(module, nn.Linear):
        kind, why = DistributedLinear, indivisible(in_features=module.in_features)
    else:
        assert isinstance(module, nn.Embedding)
        kind, why = DistributedEmbedding, indivisible(embedding_dim=module.embedding_dim)
    if why is not None:
        return why, None
    new: DistributedModule = kind.__new__(kind)
    new.__dict__.update(module.__dict__)
    for hook in (each for table in tables_of_hooks([new], _OF_LOADING) for each in table.values()):
        if getattr(hook, "with_module", False):
            hook.module = weakref.ref(new)
    if isinstance(new, DistributedEmbedding):
        new._skip_allgather = new._skip_merge = False
    new.divide()
    return "", new


def _of_transformers(module: nn.Module, more: Mapping[str, Any]) -> tuple[str, nn.Module | None]:
    family = families.family_of(module)
    assert family is not None
    found = families.arguments_of(module, family, more)
    if isinstance(found, str):
        return found, None
    new = _alike(module, lambda: family.kind(**found))
    model_state.share(delayed.named(module), model_state.everything)
    new.takes_place_of(module, family.name, family.prefix, family.ours)
    for each in module.parameters():
        absent.release(each)  # the script may keep the module
    return "", new


def _of_registered(module: nn.Module, more: Mapping[str, Any]) -> tuple[str, nn.Module | None]:
    found = _registered[type(module)]
    args, kwargs = module.__dict__.get(_MADE, ((), {}))
    if found.init is not None:
        args, kwargs = found.init(*args, **kwargs)
    known = _arguments_of(found.module)
    kwargs = {**kwargs, **{name: value for name, value in more.items() if known is None or name in known}}
    new = _alike(module, lambda: found.module(*args, **kwargs))
    model_state.share(delayed.named(module), model_state.everything)
    _take_values(new, module)
    _adapt(new, found)
    return "", new


def _alike(module: nn.Module, make: Callable[[], Any]) -> Any:
    """A new module in the same mode, on the same device and of the same type, that costs no random numbers."""
    with torch.random.fork_rng(devices=[]):
        new = make()
    new.train(module.training)
    first = next(module.parameters(), None)
    if first is not None:
        new.to(device=first.device, dtype=first.dtype)
    return new


def _arguments_of(kind: type) -> set[str] | None:
    """The names of a class's arguments; None where it takes any."""
    parameters = inspect.signature(kind).parameters
    if any(each.kind is inspect.Parameter.VAR_KEYWORD for each in parameters.values()):
        return None
    return set(parameters)


def _take_values(new: DistributedModule, old: nn.Module) -> None:
    """The values of the module whose place it takes: where the names are the same, or a translation is registered."""
    values = old.state_dict()
    expected = set(new.state_dict())
    candidates: list[Any] = [values]
    for _, back in state.module_manager.translate_functions:
        with contextlib.suppress(Exception):  # another model's
            candidates.append(back(dict(values)))
    for each in candidates:
        if expected == set(each):
            try:
                new.load_state_dict(each)
            except RuntimeError:
                continue
            if each is values:
                _keep_parameters(new, old)
            return
    log.warn(
        f"smp.tp_register: {type(old).__name__} has other parameters than {type(new).__name__}, which takes its place: "
        "that begins with values of its own; load a state dict with its names into the wrapped model"
    )


def _keep_parameters(new: nn.Module, old: nn.Module) -> None:
    """Parameters with the new values stay the old objects, for optimizers that have them."""
    objects = dict(old.named_parameters(remove_duplicate=False))
    for name, module in new.named_modules():
        for key, parameter in list(module._parameters.items()):
            if parameter is not None:
                kept = objects[f"{name}.{key}" if name else key]
                kept.data, kept.grad = parameter.data, None
                module._parameters[key] = kept
        if isinstance(module, DistributedModule):
            module.mark()


def _adapt(new: Any, found: Registered) -> None:
    """Has the module called as the one whose place it takes."""
    if found.forward is None and found.returned is None:
        return
    native = new.forward

    @functools.wraps(native)
    def forward(*args: Any, **kwargs: Any) -> Any:
        if found.forward is not None:
            args, kwargs = found.forward(*args, **kwargs)
        result = native(*args, **kwargs)
        return result if found.returned is None else found.returned(result)

    new.forward = forward
