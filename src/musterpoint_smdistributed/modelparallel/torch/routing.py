"""Where the modules of a divided model run when somebody calls them.

Every rank has all modules. One whose parameters are all on this rank runs as it is. One whose parameters are on another
rank is called there. What spans several ranks runs as a chain of stages if it can be traced (:mod:`.stages`); else it
runs on the rank that has its own parameters, and calls its children one by one.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import logging
import os
import sys
from typing import Any, Callable, Iterable, Iterator, Protocol, Sequence

import torch
from torch import nn
from torch.nn.utils.stateless import _reparametrize_module

from . import absent, log, passes
from .effects import Attribute, Changed, Place
from .errors import SMPStepError
from .guard import Gather, Guard
from .messages import Link
from .module_hooks import ModuleHooks, past_hooks
from .packing import Names, pack, unpack
from .passes import ParameterHooks
from .patches.checkpoint import kept_at_its_ends, one_after_the_other
from .places import ANYWHERE, SEVERAL, Places
from .randomness import Stream
from .replaced import ComputedWeights, Slots, Tensors, refuse_cache
from .scheduler import current
from .stages import Chain, ChainKey, Untraceable, chain, signature
from .verification import differs, untouched

VERIFY = "SMP_VERIFY"
"""The variable that has chains used without comparing them with the model first, where it is 0."""


class Calls(Protocol):
    """What calls other ranks: the server. ``device``: this rank's GPU."""

    @property
    def device(self) -> torch.device | None: ...

    def call(self, links: Sequence[Link], args: tuple[Any, ...], kwargs: dict[str, Any], what: str) -> Any: ...

    def pause(self) -> None: ...


class ModuleRouting:
    """The routes of one model on one rank, and what a step needs of it."""

    def __init__(self, model: nn.Module, places: Places, rank: int, ranks: Sequence[int], microbatches: int) -> None:
        self.model = model
        self.names = Names(model)
        self._ranks = tuple(ranks)
        self.guard = Guard(self.names, places, rank, self._ranks, microbatches)
        self._places, self._rank = places, rank
        own = {name: each for name, each in self.names.parameters.items() if places.of_parameter(name) == rank}
        self._hooks = ParameterHooks(own)
        self._slots = Slots(self.names.modules, self._is_own)
        self._server: Calls | None = None
        self._native: dict[str, Callable[..., Any]] = {}
        self._approved: dict[ChainKey, str] = {}
        self._chains: dict[ChainKey, Chain] = {}
        self._inside: dict[str, list[nn.Module]] = {}
        self._module_hooks = ModuleHooks(self.names, self.guard)
        self._all_here = self._exploring = False
        self._flags: bytes | None = None

    def install(self, server: Calls) -> None:
        """From now on calls of modules go where these are."""
        self._server = server
        for name, module in self.names.modules.items():
            place = self._places.of(name)
            here = place in (self._rank, ANYWHERE)
            weights = ComputedWeights(module)
            native = self._native[name] = weights.in_calls(here)
            self.guard.compute(Place(name, each) for each in weights.names)
            if here or type(module).forward is nn.Module.forward:
                continue
            module.forward = _uncompiled(functools.wraps(native)(functools.partial(self._route, name)))
            module._compiled_call_impl = None
        for name, module in self.model.named_modules(remove_duplicate=False):  # one that has several names
            known = self.names.of(module)
            assert known is not None
            self._native.setdefault(name, self._native[known[1]])
        absent.fetch, absent.describe = self._fetch, self._describe
        self.guard.ask = self._ask
        passes.install()

    def _route(self, name: str, *args: Any, **kwargs: Any) -> Any:
        """A call of a module that isn't all on this rank."""
        spans, native = self._places.of(name) == SEVERAL, self._native[name]
        if self._all_here:
            return self._explore(name, args, kwargs) if spans and self._exploring else native(*args, **kwargs)
        tensors = self._replaced(name)
        if self._module_hooks.in_call(name, args, kwargs):
            return native(*args, **kwargs)
        can_chain = spans and self._approved and not self.guard.live and not tensors
        called = signature(args, kwargs) if can_chain else None
        if called is not None:
            key = self._key(name, *called)
            if key in self._approved and self._chain(key).holds():
                return self._along(key, self._chain(key), called[1])
        rank = self._places.runs(name)
        if rank == self._rank or (spans and not name):
            return native(*args, **kwargs)
        server, what = self._in_step(name), f"module {name}"
        if tensors:
            return server.call([Link(rank, ("with", name))], (tensors, args, kwargs), {}, what)
        return server.call([Link(rank, ("module", name))], args, kwargs, what)

    def _replaced(self, name: str) -> Tensors:
        """What a call has been given in the place of parameters; tasks that come between would have it as well."""
        refuse_cache(self.model, f"module {name or type(self.model).__name__} is called on several ranks")
        tensors = self._slots.replaced(name) if current() is not None else {}
        if tensors:
            which = f"{name}.{next(iter(tensors))}" if name else next(iter(tensors))
            self.guard.run_one_by_one(f"{which} has another tensor in its place (torch.func.functional_call)")
        return tensors

    def _is_own(self, module: nn.Module) -> bool:
        known = self.names.of(module)
        return known is not None and self._places.owner[known[1]] == self._rank

    # ---- chains

    def _along(self, key: ChainKey, route: Chain, tensors: Sequence[torch.Tensor]) -> Any:
        """Runs a chain: this rank's stages here, and those between them as one call, which hops from rank to rank."""
        value: Any = route.begin(tensors)
        server = self._in_step(key.name)
        stages = list(enumerate(route.stages))
        for here, run in itertools.groupby(stages, lambda each: each[1].rank == self._rank):
            if here:
                for _, stage in run:
                    value = stage(value, server.pause)
                continue
            links = [Link(stage.rank, ("stage", key, index, route.digest)) for index, stage in run]
            value = {name: value[name] for name in route.stages[links[0].target[2]].takes}
            value = server.call(links, (value,), {}, f"module {key.name or type(self.model).__name__}")
        return value

    def _chain(self, key: ChainKey) -> Chain:
        """The chain for a kind of call. Raises Untraceable."""
        if key not in self._chains:
            container = self.names.modules[key.name]
            with self.guard.left_alone(), _training(container, key.training):
                self._chains[key] = chain(container, key, self._place, self._is_leaf, self._native.__getitem__)
        return self._chains[key]

    def _key(self, name: str, arguments: bytes, tensors: Sequence[torch.Tensor]) -> ChainKey:
        if name not in self._inside:
            self._inside[name] = list(self.names.modules[name].modules())
        return ChainKey(name, _flags(self._inside[name]), arguments, len(tensors))

    def _place(self, name: str) -> int | None:
        if name in self.names.modules:
            place = self._places.of(name)
            return self._places.owner[name] if place == SEVERAL else None if place == ANYWHERE else place
        return self._places.of_parameter(name) if name in self._places.held else None

    def _is_leaf(self, name: str) -> bool:
        return self._places.of(name) != SEVERAL

    def decide(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[tuple[ChainKey, str]]:
        """Finds out which containers can run as chains, as long as this rank has the values of all parameters.

        Runs the model with a call's arguments, on copies of its tensors, and leaves it as it was. Returns what
        :meth:`adopt` takes on the other ranks.
        """
        try:
            packed = pack((args, kwargs), self.names, "an argument of the model")
        except SMPStepError:
            return []
        copies = [tensor.detach().clone().requires_grad_(tensor.requires_grad) for tensor in packed.tensors]
        self._all_here = self._exploring = True
        try:
            with (
                past_hooks(self.model) as (skipped, registering),
                self.guard.left_alone(),
                absent.moving(),
                untouched(self.model, all_of_it=True) as written,
            ):
                args, kwargs = unpack(packed.data, copies, self.names)
                look = self.guard.all_of_it()
                self._explore("", args, kwargs)
                if written():
                    self._refused("", "forward passes change parameters")
                    self._approved.clear()
                elif look.changed(self.guard.computed):
                    self._exploring = False
                    look = self.guard.all_of_it()
                    self._native[""](*args, **kwargs)
                    changed = look.changed(self.guard.computed)
                    if changed:  # and not only the first time, as what is kept for later calls
                        self._refused("", f"forward passes change {changed}")
                        self._approved.clear()
        except (torch.OutOfMemoryError, MemoryError):
            log.warn("there isn't memory enough to compare stages with the model: modules are called one by one")
        except Exception as error:
            if not skipped:
                raise
            self._refused("", f"it needs its hooks ({error!r})")
            self._approved.clear()
        finally:
            self._all_here = self._exploring = False
        self.guard.look_anew()
        self._module_hooks.learn(registering)
        return list(self._approved.items())

    def keep(self, found: Sequence[Sequence[tuple[ChainKey, str]]]) -> list[tuple[ChainKey, str]]:
        """Of what ranks that share tensors decided, each for itself, what all of them did; they have to run alike."""
        common = [each for each in found[0] if all(each in other for other in found)]
        self._approved = dict(common)
        return common

    def _explore(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Runs a container, and finds out before whether it can be a chain; if not, so for those in it."""
        self._exploring = False
        found = self._approve(name, args, kwargs)
        self._exploring = not found
        try:
            return self._native[name](*args, **kwargs)
        finally:
            self._exploring = True

    def _approve(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Whether the container can be a chain for this call; looks at training and evaluation as well."""
        called = signature(args, kwargs)
        if self._module_hooks.within(name):
            self._refused(name, "modules in it have hooks")
            return False
        if called is None:
            self._refused(name, "its arguments aren't only tensors and plain values")
            return False
        container = self.names.modules[name]
        own = self._key(name, *called)
        count = len(own.training)
        variants = (own, own._replace(training=bytes(count)), own._replace(training=b"\1" * count))
        for key in dict.fromkeys(variants):
            if key in self._approved:
                continue
            try:
                route = self._chain(key)
                with _training(container, key.training):
                    verifies = os.environ.get(VERIFY) != "0"
                    wrong = differs(container, self._native[name], route, args, kwargs) if verifies else None
            except Untraceable as error:
                wrong = str(error)
            except (torch.OutOfMemoryError, MemoryError):
                raise
            except Exception as error:
                if key == own:
                    raise  # the model's own
                wrong = repr(error)
            if wrong is None:
                self._approved[key] = route.digest
            elif key == own:
                self._refused(name, wrong)
        return own in self._approved

    def _refused(self, name: str, why: str) -> None:
        text = "%s runs module by module over the ranks, and not as a chain of stages: %s"
        log.get_logger().log(logging.DEBUG if name else logging.INFO, text, name or "the model", why)

    def place_of(self, module: nn.Module) -> int | None:
        """The rank that has a module, SEVERAL, or None where it may be anywhere or isn't the model's."""
        known = self.names.of(module)
        place = ANYWHERE if known is None else self._places.of(known[1])
        return None if place == ANYWHERE else place

    def is_away(self, module: nn.Module) -> bool:
        """Whether calls of a module go to another rank; not while this one still has all values."""
        place = self.place_of(module)
        return place is not None and place >= 0 and place != self._rank and not self._all_here

    def call_again(
        self, modules: Sequence[nn.Module], args: tuple[Any, ...], kwargs: dict[str, Any], preserve_rng_state: bool
    ) -> Any:
        """Calls modules of another rank there, under a checkpoint."""
        known = [self.names.of(module) for module in modules]
        names = tuple(each[1] for each in known if each is not None)
        if any(map(self._module_hooks.of_any, names)):
            return kept_at_its_ends(functools.partial(one_after_the_other, modules), args, kwargs, preserve_rng_state)
        link = Link(self._places.of(names[0]), ("again", names, preserve_rng_state))
        return self._in_step(names[0]).call([link], args, kwargs, f"module {names[0]}")

    def _fetch(self, tensor: torch.Tensor) -> torch.Tensor:
        """The values of a parameter or buffer that another rank has."""
        known = self.names.of(tensor)
        if known is None:
            raise SMPStepError("a parameter or buffer of another model is used in this step; it has no values here")
        kind, name = known
        if self._server is None or current() is None:
            absent.out_of_reach(tensor, "its value")
        server = self._in_step(f"{kind} {name}")
        module, _, key = name.rpartition(".")
        fresh, task = Place(module, key), current()
        if task is not None and fresh in task.fresh:
            return task.fresh[fresh]  # type: ignore[no-any-return]
        value = server.call([Link(self._places.of_parameter(name), known)], (), {}, f"{kind} {name}")
        assert isinstance(value, torch.Tensor)
        self.guard.received(tensor, value)
        return value

    def _describe(self, tensor: torch.Tensor) -> str:
        known = self.names.of(tensor)
        if known is None:
            return "a parameter or buffer that isn't on this rank of the pipeline"
        return (
            f"{known[0]} {known[1]} is on rank {self._ranks[self._places.of_parameter(known[1])]} of the pipeline, and "
            f"this is rank {self._ranks[self._rank]}"
        )

    def _ask(self, rank: int, target: tuple[Any, ...], args: tuple[Any, ...], what: str) -> Any:
        """Has another rank answer for the guard; random numbers go on as if nobody had asked."""
        server = self._in_step(what)
        before = Stream.current(server.device)
        try:
            return server.call([Link(rank, target)], args, {}, what)
        finally:
            before.resume(server.device)

    def _in_step(self, name: str) -> Calls:
        if self._server is None or current() is None:
            raise SMPStepError(
                f"{name or 'the model'} is on another rank of the pipeline: call the model inside of an @smp.step "
                "function, and use model.state_dict() for the values of all parameters"
            )
        return self._server

    # ---- for the server

    def function(self, target: tuple[Any, ...]) -> Callable[..., Any]:
        """What a link runs."""
        if target[0] in ("parameter", "buffer"):
            tensor = self.names.find(*target)
            self.guard.fetched(target[1])
            return lambda: tensor.view_as(tensor)
        if target[0] == "attribute":
            return functools.partial(self.guard.answer, *target[1:])
        if target[0] == "set":
            return functools.partial(self.guard.set, *target[1:])
        if target[0] == "module":
            return self._native[target[1]]
        if target[0] == "with":
            return functools.partial(self._call_with, target[1])
        if target[0] == "again":
            group = functools.partial(one_after_the_other, [self._native[name] for name in target[1]])
            return lambda *args, **kwargs: kept_at_its_ends(group, args, kwargs, target[2])
        _, key, index, digest = target
        route = self._chain(key)
        if route.digest != digest:
            raise SMPStepError(
                f"{key.name or 'the model'} is another graph on this rank of the pipeline than on the caller's: its "
                "forward function depends on something that differs between ranks"
            )
        stage: Callable[..., Any] = route.stages[index]
        return stage

    def _call_with(self, name: str, tensors: Tensors, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        with _reparametrize_module(self.names.modules[name], tensors):  # type: ignore[arg-type]  # None may be one
            return self._native[name](*args, **kwargs)

    def arrive(self, effects: Iterable[Changed | Attribute], what: str) -> None:
        """A call has changed this elsewhere; it is so here."""
        self.guard.arrive(effects, what)
        for each in effects:
            if isinstance(each, Attribute) and each.buffer is not None:
                self._slots.take(self.names.modules[each.place.module]._buffers, each.place.attribute)

    def training(self) -> bytes:
        """The flags of this rank's modules: whether each is in training, and has hooks."""
        hooked = self._module_hooks.of_leader()
        flags = zip(self.names.modules, _flags(self.names.modules.values()))
        return bytes(flag | (name in hooked) << 1 for name, flag in flags)

    def begin(self, training: bytes) -> None:
        """A step begins with these flags; hooks are the first rank's."""
        own, wanted = _flags(self.names.modules.values()), bytes(each & 1 for each in training)
        self._flags = own if own != wanted else None
        if self._flags is not None:
            _set(self.names.modules.values(), wanted)
        self._module_hooks.take_away({name for name, flags in zip(self.names.modules, training) if flags & 2})

    def end(self) -> None:
        self._module_hooks.put_back()
        if self._flags is not None:
            _set(self.names.modules.values(), self._flags)
        self._flags = None

    def adopt(self, chains: Sequence[tuple[ChainKey, str]]) -> None:
        """The leader has decided which modules run as chains."""
        self._approved.update(chains)

    def started(self, step: str, grad: bool, anew: bool) -> None:
        """A step of that name has begun on this rank, with gradients or without; ``anew``: with new buffers."""
        if anew:  # a forward function may go another way, and no rank has the whole model to compare with
            self._approved.clear()
        self._slots.begin(anew)
        self._module_hooks.begin()
        if grad:
            self._hooks.begin()
            behind = next((name for name, each in self.names.parameters.items() if passes.follows(each)), None)
            if behind is not None:
                self.guard.run_one_by_one(f"a hook of parameter {behind} changes sums of gradients", begun=False)
        self.guard.begin(step, grad, anew)

    def ended(self, gather: Gather) -> None:
        """A step has ended; all ranks of the pipeline come here."""
        self._hooks.end()
        self.guard.end(gather)


def _flags(modules: Iterable[nn.Module]) -> bytes:
    """A byte for each module: whether it is in training."""
    return bytes(_in_training(module) for module in modules)


def _in_training(module: nn.Module) -> bool:
    """Past the guard, which takes longer: this is asked for every microbatch."""
    known: bool | None = object.__getattribute__(module, "__dict__").get("training")
    return module.training if known is None else known  # a scripted module has a property


def _set(modules: Iterable[nn.Module], flags: bytes) -> None:
    for module, flag in zip(modules, flags):
        module.training = bool(flag)


def _uncompiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function for torch.compile to leave as it is, where a model uses that: the compiler can't see other ranks."""
    if "torch._dynamo" not in sys.modules:  # importing it takes a second
        return function
    disabled: Callable[..., Any] = torch.compiler.disable(function)  # type: ignore[no-untyped-call]
    return disabled


@contextlib.contextmanager
def _training(container: nn.Module, flags: bytes) -> Iterator[None]:
    """A container under some flags of its modules."""
    modules = list(container.modules())
    before = _flags(modules)
    _set(modules, flags)
    try:
        yield
    finally:
        _set(modules, before)
