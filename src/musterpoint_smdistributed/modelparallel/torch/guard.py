"""Nobody gets an old value of a module that is on another rank, and no change of one is lost.

Every rank has all modules, but one of them owns each. What the others have of its plain attributes is a copy. In a
step, reading one on another rank asks the owner, setting one sends it there; whatever would change a copy unseen is
refused by name. That costs messages, so the first two steps of each step function show which attributes change at all,
and only these are asked for afterwards. In these steps one microbatch runs after the other. If forward passes change
what later ones may see (attributes, buffers that aren't a norm's own), it stays so: microbatches under way at once
would see each other's values.

After the first steps, and later from time to time with growing pauses, the ranks compare all attributes.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from typing import Any, Callable, Collection, Iterable, Iterator, Mapping, NamedTuple, Sequence

import torch
from torch import nn
from torch.nn.modules.batchnorm import _NormBase
from torch.utils import _pytree

from . import absent, effects, log
from .attributes import Record, digest, guarded, is_fixed
from .effects import GONE, VALUES, Attribute, Changed, Look, Place, Step, content, in_graph, plain, poured, vars_of
from .errors import SMPStepError
from .packing import Names, Packed, pack, unpack
from .places import Places
from .scheduler import current

LEARNING = 2
"""Steps of each step function in which attributes are watched all the time."""
LARGEST = 1 << 16
"""Elements of tensors in an attribute that goes to other ranks behind each step."""
_OURS = ("torch", "musterpoint_smdistributed", "smdistributed", "copy", "inspect")

Ask = Callable[[int, tuple[Any, ...], tuple[Any, ...], str], Any]
"""Runs a target with arguments on a rank of the pipeline, in the current step."""
Gather = Callable[[Any], Sequence[Any]]
"""What all ranks of the pipeline say, in their order."""


class Said(NamedTuple):
    """What a rank says behind a step.

    live: its attributes that forward passes change, with their values; None: they can't be sent, or are too large.
    stateless: attributes of modules without parameters and buffers that changed here, with their digests.
    together: why microbatches can't be under way at once; empty: they can.
    digests: of all attributes, where they are compared.
    """

    live: dict[Place, Packed | None]
    stateless: dict[Place, bytes]
    together: str
    digests: dict[Place, bytes]


class Guard:
    """Guards the attributes of one model, on one rank.

    ``ranks``: the global ranks of the pipeline, in its order. ``microbatches``: of a step, that may be under way at
    once.
    """

    def __init__(self, names: Names, places: Places, rank: int, ranks: Sequence[int], microbatches: int) -> None:
        self._names, self._rank, self._ranks, self._microbatches = names, rank, tuple(ranks), microbatches
        self._stateless, modules = places.is_anywhere, names.modules
        self._owner = {name: places.runs(name) for name in modules}
        self._own = {name: each for name, each in modules.items() if self._owner[name] == rank}
        self.others = {name: each for name, each in modules.items() if self._owner[name] != rank}
        self.quiet = 0
        self.live: set[Place] = set()
        self._unreadable: set[Place] = set()
        self._free: set[Place] = set()
        self.computed: set[Place] = set()
        """Attributes that are made of parameters before each call: no change of state, and the owner's count."""
        self._seen: dict[tuple[str, bool], int] = {}
        self._steps = 0
        self._learning = False
        self._serial = self._together = ""
        self._changed: dict[Place, int] = {}
        self._foreign: dict[Place, bytes] = {}
        self._fetched: set[str] = set()
        self._told: set[Place] = set()
        """Attributes elsewhere that are here, in this step, as their owner has them: read, sent or heard of."""
        self._written: dict[str, dict[int, int]] = {}
        self._record: Record | None = None
        self._copies: Record | None = None
        self._versions: dict[str, tuple[int, int]] = {}
        self._watched: list[tuple[torch.Tensor, Callable[[], bool]]] = []
        self._values: list[_Value] = []
        self._looked: dict[tuple[str, ...], tuple[Mapping[str, nn.Module], dict[int, tuple[Any, Any]]]] = {}
        self._reached: dict[tuple[str, ...], set[str]] = {}
        self._usual: set[Place] = set()
        self._shared: dict[Place, int] = {}
        """Attributes elsewhere whose objects were changed here once, by modules of this rank that have them, too.

        In the step of this number, whose calls take them along.
        """
        self._open: list[int] = []

    def install(self, gather: Gather) -> None:
        """Modules of other ranks are guarded from now on. What ranks have differently now isn't compared."""
        everyones = gather(Record(self._names.modules).digests)
        self._free |= {place for place in set().union(*everyones) if len({each.get(place) for each in everyones}) > 1}
        for module in self.others.values():
            kind = type(module)
            try:
                module.__class__ = guarded(kind, self)
            except TypeError:  # one that isn't made of Python alone
                log.get_logger().debug("attributes of %s can't be guarded", kind.__name__)

    def compute(self, places: Iterable[Place]) -> None:
        """These attributes are made of parameters before each call."""
        self.computed.update(places)
        self._unreadable.update(place for place in self.computed if place.module in self.others)

    # ---- steps

    def begin(self, step: str, grad: bool, anew: bool = False) -> None:
        """A step begins on this rank; ``anew``: what forward passes change has to be learned once more."""
        self._steps += 1
        if anew:
            self._seen.clear()
        key = (step, grad)
        self._seen[key] = self._seen.get(key, 0) + 1
        self._learning = self._seen[key] <= LEARNING
        self._written, self._fetched, self._told = {}, set(), set()
        self._watched, self._values = [], []
        self._looked.clear()
        self._reached.clear()
        self._open.clear()
        self.look_anew()

    def look_anew(self) -> None:
        """What is there now counts as unchanged."""
        if self._learning:
            self._record, self._copies = Record(self._own), Record(self.others)
            self._versions = self._now()

    @property
    def one_by_one(self) -> bool:
        """Whether one microbatch runs after the other."""
        return self._learning or bool(self._serial or self._together)

    def ran(self, microbatch: int) -> None:
        """A piece of work has run on this rank, or stopped to wait."""
        for tensor, changes in self._watched:
            if changes():
                absent.refuse(tensor, "a copy of it was changed here")
        if self._learning:
            if self._values and self._values[0].microbatch != microbatch:
                self._look_at_values()
            self._look(microbatch)

    def _look_at_values(self) -> None:
        """What torch doesn't count as changes, as by numpy, is seen by comparing, once a microbatch is through."""
        values, self._values = self._values, []
        for tensor, value, before, _ in values:
            with torch.no_grad():
                same = (value == before) | ((value != value) & (before != before))  # what is no number isn't itself
                if not same.all():
                    absent.refuse(tensor, "a copy of it was changed here")

    def _look(self, microbatch: int) -> None:
        """Looks what has changed, here and in copies."""
        assert self._copies is not None
        self._note(microbatch)
        for place in self._copies.changed():
            if self._stateless(place.module):
                self._foreign[place] = digest(vars(self.others[place.module]).get(place.attribute))
                self._changed[place] = max(microbatch, self._changed.get(place, 0))
            elif not self._reaches(place):
                if place in self._shared or not self._shares(place):
                    self._refuse(place, "it was changed here past the module, as by vars() or in place")
                self._shared[place] = self._steps
        now = self._now()
        for name, version in now.items():
            if version != self._versions.get(name):
                turns = self._written.setdefault(name, {})
                turns[microbatch] = turns.get(microbatch, 0) + 1
        self._versions = now

    def _shares(self, place: Place) -> bool:
        """Tells whether a module of this rank has changed the same object."""
        value = vars_of(self.others[place.module]).get(place.attribute, GONE)
        own = (each for each in self._changed if each.module in self._own)
        return any(vars_of(self._own[each.module]).get(each.attribute) is value for each in own)

    def _note(self, microbatch: int, but: Collection[Place] = ()) -> None:
        """Notes which attributes forward passes have changed here, but for some."""
        assert self._record is not None
        for place in set(self._record.changed()).difference(but):
            self._changed[place] = max(microbatch, self._changed.get(place, 0))

    def _now(self) -> dict[str, tuple[int, int]]:
        """How often each tensor of this rank has been changed, and where it is."""
        return {
            f"{name}.{key}" if name else key: (-1 if each.is_inference() else each._version, each.data_ptr())
            for name, module in self._own.items()
            for held in (module._buffers, module._parameters)
            for key, each in held.items()
            if each is not None and not absent.is_absent(each) and not each.is_meta
        }

    def end(self, gather: Gather) -> None:
        """The step is over on this rank; every rank of the pipeline calls it."""
        self._look_at_values()
        compares = self._learning or not self._steps & (self._steps - 1)
        if not compares and not self.live:
            return
        said = gather(self._say(compares))
        self._learning, self._changed, self._foreign = False, {}, {}
        for rank, each in enumerate(said):
            self._take(rank, each)
        self._settle_stateless(said)
        if compares:
            sent = set().union(*(each.live for each in said))  # the others have had their values just now
            self._compare([each.digests for each in said], sent)
        reason = next((each.together for each in said if each.together), "")
        if reason and not self._serial:
            self._serial = reason
            if self._microbatches > 1:
                log.say(f"one microbatch runs after the other, since {reason}")

    def run_one_by_one(self, why: str, begun: bool = True) -> None:
        """Has microbatches run one by one from now on; ``begun``: some are under way."""
        if begun and not self.one_by_one and self._microbatches > 1:
            raise SMPStepError(f"{why}, {_LATE}")
        self._together = why

    def _say(self, compares: bool) -> Said:
        first = self._steps <= 1
        own = {place for place in self._changed if self._is_own(place) and place not in self.computed}
        live = {place for place in own if not (first and self._changed[place] == 0)} | {
            place for place in self.live if self._is_own(place)
        }
        values = {place: self._packed(place) for place in own | live}
        together = self._together
        if live:
            together = f"forward passes change the attribute {min(live)}"
        for name, turns in self._written.items():
            module = self._names.modules[name.rpartition(".")[0]]
            of_norm = isinstance(module, _NormBase) and name.rpartition(".")[2] in module._buffers
            if not of_norm or name in self._fetched or max(turns.values()) > 1:
                together = together or f"forward passes change {name}"
        digests = Record(self._names.modules).digests if compares else {}
        return Said(values, dict(self._foreign), together, digests)

    def _is_own(self, place: Place) -> bool:
        """Whether what counts is here; a module that runs wherever it is called may have moved."""
        return self._owner[place.module] == self._rank

    def _packed(self, place: Place) -> Packed | None:
        value = vars(self._names.modules[place.module]).get(place.attribute, GONE)
        if value is GONE:
            return Packed(b"", [])
        try:
            packed = pack(value, self._names, str(place))
        except (SMPStepError, ValueError):
            return None
        small = sum(each.numel() for each in packed.tensors) <= LARGEST
        return packed._replace(tensors=[each.detach() for each in packed.tensors]) if small else None

    def _take(self, rank: int, said: Said) -> None:
        """Has the copies of another rank's attributes that have changed."""
        for place, value in said.live.items():
            if said.together:
                self.live.add(place)
            if rank == self._rank:
                continue
            held = vars(self._names.modules[place.module])
            self._unreadable.discard(place)
            if value is None:
                self._unreadable.add(place)
            elif not value.data:
                held.pop(place.attribute, None)
            else:
                new = unpack(value.data, value.tensors, self._names)
                held[place.attribute] = poured(held.get(place.attribute), new)

    def _settle_stateless(self, said: Sequence[Said]) -> None:
        """A module that runs wherever it is called may keep something on one rank, or the same on all."""
        for place in sorted(set().union(*(each.stateless for each in said))):
            holders = [rank for rank, each in enumerate(said) if place in each.stateless or place in each.live]
            if len(holders) > 1:
                raise SMPStepError(
                    f"attribute {place}: the module has neither parameters nor buffers, so it runs wherever it is "
                    f"called, which was on ranks {[self._ranks[each] for each in holders]}, and each has changed it "
                    "for itself. Keep it in a buffer (register_buffer), which gives the module one place"
                )
            self._owner[place.module] = holders[0]
            self._free.add(place)
            (set.discard if holders[0] == self._rank else set.add)(self._unreadable, place)

    def _compare(self, digests: Sequence[Mapping[Place, bytes]], sent: set[Place]) -> None:
        known = self._free | self.computed | self._unreadable | self.live | sent
        for place in sorted(set().union(*digests) - known):
            owner = self._owner[place.module]
            others = [rank for rank, each in enumerate(digests) if each.get(place) != digests[owner].get(place)]
            if others:
                raise SMPStepError(
                    f"attribute {place} has another value on ranks {[self._ranks[each] for each in others]} than on "
                    f"rank {self._ranks[owner]} of the pipeline, which owns the module: change it on all ranks alike, "
                    "or in the module's own forward function"
                )

    @contextlib.contextmanager
    def left_alone(self) -> Iterator[None]:
        """What runs inside sees and sets the copies here."""
        self.quiet += 1
        try:
            yield
        finally:
            self.quiet -= 1

    # ---- what calls change

    def look(self, names: Sequence[str], given: Sequence[Any]) -> Look:
        """Before a call of these modules runs here, in a task. Behind the first steps of a step function only what it
        can reach is looked at, and of that only the script's own classes and what has hooks: torch's own keep nothing.
        """
        others = [each for each in given if isinstance(each, nn.Module)]
        key = (*names, *map(self._name_of, others))
        self._open.append(_caller())
        if not names:
            return Look({}, (), {})
        if self._learning:
            return self.all_of_it(given)
        if key not in self._looked:
            reached = self._names.reached(names, others)
            kept = {name: each for name, each in self._names.modules.items() if name in reached and _keeps(each)}
            self._looked[key] = kept, effects.ways_to(kept)
        modules, ways = self._looked[key]
        return Look(modules, given, ways)

    def all_of_it(self, given: Sequence[Any] = ()) -> Look:
        """All modules as they are."""
        return Look(self._names.modules, given, effects.ways_to(self._names.modules))

    def effects(self, look: Look) -> list[Changed | Attribute]:
        """What the call has changed, for the caller to hear of."""
        found, task = look.found(self.computed), current()
        microbatch = 0 if task is None else task.microbatch
        for each in found:
            place = each.place
            if not isinstance(place, Place):
                continue
            module = place.module
            inside = [(None, each.value)] if isinstance(each, Attribute) else effects.elements(each.inside)
            follows = any(in_graph(value) for _, value in inside)
            if follows and not self.one_by_one and self._microbatches > 1:
                self._refuse(place, f"it has a gradient, {_LATE}")
            if module in self._own:
                if follows or not (self._learning or place in self._usual):
                    self._changed[place] = max(1, microbatch)
            elif self._stateless(module):
                if not self._learning:
                    self._foreign[place] = digest(vars_of(self.others[module]).get(place.attribute))
            elif isinstance(each, Attribute) and place in self._told:
                pass
            elif (task is None or place not in task.fresh) and not (  # else the rank that has it has told
                self._reaches(place) and (self._learning or place in self._usual)
            ):
                self._refuse(place, "it was changed here past the module, as by vars() or in place")
            if self._learning:
                self._usual.add(place)
        if found:
            self._looked.clear()
            if self._learning:
                self._look(microbatch)
        self._open.remove(_caller())
        return found

    def _reaches(self, place: Place) -> bool:
        """Whether effects of calls that run here reach the rank that has the module: the leader, or who has called."""
        owner = self._owner[place.module]
        return owner in self._open or (owner == 0 and bool(self._open))

    def arrive(self, effects: Iterable[Changed | Attribute], what: str) -> None:
        """A call has changed this elsewhere, so it is here: the object, or the attribute, as it is in this graph."""
        task = current()
        assert task is not None
        for each in effects:
            if isinstance(each, Changed):
                _fill(each, what)
                if isinstance(each.place, Place) and each.place.module not in self._own:
                    task.fresh[each.place] = vars_of(self._names.modules[each.place.module]).get(each.place.attribute)
            elif each.buffer is not None:
                self._take_buffer(each)
            elif each.is_there:
                vars_of(self._names.modules[each.place.module])[each.place.attribute] = each.value
                if each.place.module not in self._own:
                    task.fresh[each.place] = each.value
            else:
                vars_of(self._names.modules[each.place.module]).pop(each.place.attribute, None)
                task.fresh.pop(each.place, None)
            if isinstance(each, Attribute):
                self._told.add(each.place)
                if each.is_there is None:
                    self._unreadable.add(each.place)
        self._looked.clear()
        self.absorb()
        if self._learning:
            places = [each.place for each in effects if isinstance(each.place, Place)]
            self._note(task.microbatch, [place for place in places if self._stateless(place.module)])

    def brought(self, names: Sequence[str], given: Sequence[nn.Module]) -> list[Attribute]:
        """Attributes in the current task's graph, of modules that a call of ``names`` can reach, or of these."""
        task, key = current(), tuple(names)
        if task is None:
            return []
        if self._learning:
            self._look(task.microbatch)
        reached = None if given or self._learning else self._reached.get(key)
        if reached is None:
            reached = self._names.reached(names, given)
            if not given:
                self._reached[key] = reached
        values = {
            Place(name, each): value
            for name in reached & self._own.keys()
            for each, value in plain(vars_of(self._own[name]))
            if not isinstance(value, VALUES)
        }
        fresh = {place: value for place, value in task.fresh.items() if place.module in reached}
        values |= {place: value for place, value in fresh.items() if content(value) is None}
        found = [Attribute(place, value) for place, value in values.items() if in_graph(value, task.since)]
        untold = (place for place, at in self._shared.items() if at == self._steps and place.module in reached)
        found += [Attribute(place, vars_of(self.others[place.module])[place.attribute], once=True) for place in untold]
        return found + [Attribute(place, value) for place, value in fresh.items() if content(value) is not None]

    def bring(self, brought: Sequence[Attribute]) -> None:
        """A call has taken along attributes, in the graph that it is in here."""
        task = current()
        for each in brought:
            (module, name), value = each.place, each.value
            held, own = vars_of(self._names.modules[module]), module in self._own
            table = held["_buffers"] if name in held["_buffers"] else held
            if own or table is held:
                value = table[name] = poured(table.get(name), value)
            if task is not None and not own:
                task.fresh[each.place] = value
        if brought:
            self._names.find_buffers()
            self._looked.clear()
            self.absorb()
            if self._learning and task is not None:
                self._note(task.microbatch, [each.place for each in brought if each.once])

    def _take_buffer(self, new: Attribute) -> None:
        """Another buffer has taken the place of one. Its values stay there, but for one that is in the graph."""
        place, task = new.place, current()
        module = self._names.modules[place.module]
        if place.module in self._own and new.value is None:
            return
        if not new.is_there:
            module._buffers.pop(place.attribute, None)
        elif new.dtype is None:
            module._buffers[place.attribute] = None
        elif place.module in self._own:
            module._buffers[place.attribute] = new.value
        else:
            made = module._buffers[place.attribute] = torch.zeros((), dtype=new.dtype).expand(new.shape)
            absent.release(made)
            if new.value is not None and task is not None:
                task.fresh[place] = new.value
        (set.discard if new.buffer else set.add)(module._non_persistent_buffers_set, place.attribute)
        self._names.find_buffers()

    def held(self, place: Place, way: Sequence[Step]) -> Any:
        """The object that is there, in the attribute or in what is in it."""
        return effects.at(vars_of(self._names.modules[place.module])[place.attribute], way)

    # ---- attributes of modules elsewhere

    def read(self, module: nn.Module, name: str, value: Any) -> Any:
        """What somebody gets who asks for an attribute; ``value`` is the copy here."""
        place = self._place(module, name)
        task = current()
        if task is None:
            if place in self._unreadable:
                self._refuse(place, "it was changed there and can't be sent, so it can't be read here")
            return value
        if place in task.fresh:
            return task.fresh[place]
        is_sure = place not in self.live and place not in self._unreadable and not self._learning
        owner, is_copy = self._owner[place.module], place.module in self.others
        if is_sure or callable(value) or place in self._free or not is_copy or owner == self._rank:
            return value
        same, found = self.ask(owner, ("attribute", place.module, name, digest(value)), (), f"attribute {place}")
        if not same:
            value = found
            if not (isinstance(value, torch.Tensor) and value.requires_grad):
                vars(module)[name] = value
                self._told.add(place)
                self._changed.setdefault(place, 0)
                self.absorb()
        if isinstance(value, torch.Tensor):
            self.received(value, value)
        elif not is_fixed(value) and task.caller is not None and self._reaches(place):
            task.fresh[place] = value
        return value

    def write(self, module: nn.Module, name: str, value: Any) -> bool:
        """Somebody sets an attribute; whether the copy here is to be set as well."""
        place = self._place(module, name)
        if place.module not in self.others:
            return True
        held = vars(module)
        if isinstance(value, (nn.Parameter, nn.Module)) or name in held["_parameters"] or name in held["_modules"]:
            self._refuse(place, "it can't be replaced here in a step")
        task = current()
        if task is not None and task.caller is not None and in_graph(value) and self._reaches(place):
            if not self.one_by_one and self._microbatches > 1:
                self._refuse(place, f"it was set here {_LATE}")
            task.fresh[place] = value
            self._changed[place] = max(1, self._changed.get(place, 1))
            return True
        if any(isinstance(each, torch.Tensor) and each.requires_grad for each in _pytree.tree_leaves(value)):
            self._refuse(place, "its gradient wouldn't come back if it were set here: hand it on as an argument")
        if name == "training":
            if held.get(name) != value:
                self._refuse(place, "train() and eval() are for all ranks, outside of steps; in a step it was set here")
            return True
        if task is not None:
            task.fresh.pop(place, None)
        known = held.get(name, GONE)
        if isinstance(value, VALUES) and type(known) is type(value) and known == value and place not in self.live:
            if not self._learning:
                return True
        elif not self.one_by_one and self._microbatches > 1:
            self._refuse(place, f"it was set here {_LATE}")
        self.ask(self._owner[place.module], ("set", place.module, name), (value,), f"attribute {place}")
        self._told.add(place)
        self._changed[place] = max(1, self._changed.get(place, 1))
        return name not in held["_buffers"]

    def absorb(self) -> None:
        """Copies are others now, and rightly so."""
        if self._learning and self._copies is not None:
            self._copies.changed()

    ask: Ask

    def _name_of(self, module: nn.Module) -> str:
        known = self._names.of(module)
        return "" if known is None else known[1]

    def _place(self, module: nn.Module, attribute: str) -> Place:
        return Place(self._name_of(module), attribute)

    def dictionary(self, module: nn.Module) -> None:
        """Somebody asks for ``__dict__``."""
        if current() is None or self.quiet:
            return
        frame = sys._getframe(2)
        wraps = frame.f_code is functools.update_wrapper.__code__  # torch.func.vmap's; a call of it is refused by name
        if not wraps and not str(frame.f_globals.get("__name__", "")).startswith(_OURS):
            why = "vars() of a module elsewhere would show copies; read its attributes by their names"
            self._refuse(self._place(module, "__dict__"), why)

    def forbid_delete(self, module: nn.Module, name: str) -> None:
        self._refuse(self._place(module, name), "it can't be deleted here in a step")

    def _refuse(self, place: Place, what: str) -> None:
        owner = self._ranks[self._owner.get(place.module, 0)]
        raise SMPStepError(
            f"attribute {place} of a module that rank {owner} has, on rank {self._ranks[self._rank]}: {what}. Change "
            "state in the forward function of the module that has it, or outside of steps on all ranks alike"
        )

    # ---- on the owner

    def answer(self, module: str, name: str, known: bytes) -> tuple[bool, Any]:
        """For another rank: whether what it knows is right, else the value."""
        value = vars(self._names.modules[module]).get(name, GONE)
        if value is GONE:
            raise AttributeError(f"{type(self._names.modules[module]).__name__!r} object has no attribute {name!r}")
        return (True, None) if digest(value) == known else (False, value)

    def set(self, module: str, name: str, value: Any) -> None:
        """Another rank sets an attribute."""
        setattr(self._names.modules[module], name, value)
        self._changed[Place(module, name)] = 1

    def fetched(self, name: str) -> None:
        """Another rank asks for a buffer or parameter."""
        self._fetched.add(name)

    def received(self, tensor: torch.Tensor, value: torch.Tensor) -> None:
        """``value`` is what this rank got of another one's ``tensor``: changes of it would be lost."""
        self._watched.append((tensor, absent.watch(value)))
        task = current()
        if self._learning and task is not None and value.layout is torch.strided:
            with torch.no_grad():
                kept = value.detach()
                self._values.append(_Value(tensor, kept, kept.clone(), task.microbatch))


class _Value(NamedTuple):
    """What this rank got of another one's ``tensor``, and how it was ``before`` the script had it."""

    tensor: torch.Tensor
    value: torch.Tensor
    before: torch.Tensor
    microbatch: int


_LATE = (
    "for the first time, while other microbatches were under way, which would see it; set "
    f'"active_microbatches": 1 or "microbatches": 1, or do it in the first {LEARNING} steps of this step function too'
)


def _fill(new: Changed, what: str) -> None:
    """Has an object here contain what it contains there."""
    now = content(new.owner)
    if now is None or type(now.items) is not type(new.inside.items):
        raise SMPStepError(
            f"{what}, which is on another rank of the pipeline, has changed {new.place}, which is another object here. "
            "Return what it makes, and hand it on as an argument"
        )
    effects.fill(new.owner, new.inside)


def _caller() -> int:
    """The rank that has called, of the current task; -1: none."""
    task = current()
    return -1 if task is None or task.caller is None else task.caller


def _keeps(module: nn.Module) -> bool:
    """Whether a call may leave something on it: it is of the script's own class, or has hooks."""
    return bool(not type(module).__module__.startswith("torch.nn.") or module._forward_hooks)
