"""Which files of a directory are a whole checkpoint: each kind is one object, :data:`KINDS` has them all.

Runs in any Python, the ranks' own too, by the standard library only. Paths are relative to the directory of the
checkpoints, with "/" between their parts.
"""

from __future__ import annotations

import fnmatch
import json
import os
import pickletools
import re
from typing import Callable, Iterator, NamedTuple

from musterpoint.embedded.programs.checkpoint_look import (
    MOST_JSON,
    SHARED,
    TEMPORARY,
    Facts,
    Look,
    Version,
    family_of,
    is_temporary,
    join,
    link_version,
    numbers_of,
    pointer,
)
from musterpoint.embedded.programs.file_changes import is_written

_END_OF_ZIP = b"PK\x05\x06"
_ZIP_TAIL = 65557


class Unit(NamedTuple):
    """A checkpoint on this host, or the part of one. ``name``: its path. ``family``: the same for all that one program
    saves one after the other. ``files`` by path. ``lacks``: what is missing of the files here. ``unmarked``: which mark
    isn't here; another host may have it.

    ``needs``: files that must be there on some host. ``has_mark``: its kind has a mark, which says that every host's
    part is whole; ``mark``: its file, if it is among these. ``everywhere``: every host reads all hosts' files.
    ``texts``: small files that name this checkpoint, and what they then say. ``links``: those that lead to it or into
    it, with their relative targets.
    """

    name: str
    files: dict[str, Facts]
    lacks: str = ""
    unmarked: str = ""
    needs: tuple[str, ...] = ()
    has_mark: bool = False
    mark: str = ""
    everywhere: bool = True
    texts: dict[str, str] = {}
    links: dict[str, str] = {}
    family: str = ""
    kind: str = ""

    @property
    def why_not(self) -> str:
        """What is missing here; empty: whole here."""
        return self.unmarked or self.lacks

    @property
    def is_whole(self) -> bool:
        return not self.why_not

    @property
    def marked(self) -> bool:
        """Whether a mark says so."""
        return self.has_mark and self.is_whole

    @property
    def is_unmarked(self) -> bool:
        """Whether only a mark is missing: the files that are here are whole."""
        return bool(self.unmarked) and not self.lacks

    @property
    def version(self) -> tuple[tuple[str, Version], ...]:
        links = ((path, link_version(target)) for path, target in self.links.items())
        return tuple(sorted([*((path, facts.version) for path, facts in self.files.items()), *links]))


class Kind(NamedTuple):
    """A kind of checkpoint. ``find`` gives those of it that begin in one folder; a folder that has one is looked at by
    no later kind.
    """

    name: str
    find: Callable[[Look, str], list[Unit]]

    def units(self, look: Look, folder: str) -> list[Unit]:
        """Those of this kind, each with its kind and family."""
        found = self.find(look, folder)
        return [unit._replace(kind=self.name, family=unit.family or family_of(unit.name)) for unit in found]


# -- kinds with a mark of their own --


def _unit(
    look: Look, folder: str, lacks: str = "", needs: tuple[str, ...] = (), unmarked: str = "", mark: str = ""
) -> Unit:
    """A folder whose mark counts for the checkpoints inside of it too; ``lacks`` and ``unmarked`` as the unit's.
    ``mark``: the name of its file in the folder.
    """
    files, inner = look.files_below(folder), list(_nested(look, folder))
    lacks = lacks or next((unit.why_not for unit in inner if not unit.is_unmarked), "") or _why_not(look, files)
    unmarked = unmarked or next((unit.why_not for unit in inner), "")
    its = join(folder, mark) if mark else ""
    return Unit(folder, files, lacks, unmarked, needs, has_mark=True, mark=its)


def _nested(look: Look, folder: str) -> Iterator[Unit]:
    """The checkpoints inside of this one that aren't whole."""
    for name in look.below[folder]:
        inner = join(folder, name)
        yield from (unit for kind in (TORCH, ORBAX) for unit in kind.units(look, inner) if not unit.is_whole)
        yield from _nested(look, inner)


def _torch(look: Look, folder: str) -> list[Unit]:
    """torch.distributed.checkpoint: ``.metadata``, which the coordinator writes last, names every rank's file."""
    files = look.folders[folder]
    if not folder or not (".metadata" in files or any(name.endswith(".distcp") for name in files)):
        return []
    if ".metadata" not in files:
        return [_unit(look, folder, unmarked=f"{folder}/.metadata isn't here yet")]
    named = {join(folder, name) for name in _distcp_names(look, join(folder, ".metadata"))}
    lacks = "" if named else f"{folder}/.metadata is half"
    return [_unit(look, folder, lacks, tuple(sorted(named)), mark=".metadata")]


def _distcp_names(look: Look, name: str) -> Iterator[str]:
    """The files that a ``.metadata`` names. It is a pickle, of which only the texts are read."""
    try:
        with look.file(name) as file:
            for _, argument, _ in pickletools.genops(file):
                if isinstance(argument, str) and argument.endswith(".distcp"):
                    yield argument
    except (OSError, ValueError):
        return


_RNG = re.compile(r"rng_state_(\d+)\.pth")


def _trainer(look: Look, folder: str) -> list[Unit]:
    """transformers' Trainer: ``trainer_state.json`` comes last on the first rank; each has its own random state."""
    files = look.folders[folder]
    begun = "training_args.bin" in files or any(_RNG.fullmatch(each) for each in files)
    if not folder or not (begun or "trainer_state.json" in files):
        return []
    unmarked = "" if "trainer_state.json" in files else f"{folder}/trainer_state.json isn't here yet"
    lacks, needs = "", tuple[str, ...]()
    if look.world.ranks > 1 and any(_RNG.fullmatch(each) for each in files):
        needs = tuple(join(folder, f"rng_state_{rank}.pth") for rank in range(look.world.ranks))
        for rank in range(look.world.first, look.world.first + look.world.own):
            if f"rng_state_{rank}.pth" not in files:
                lacks = lacks or f"{folder}/rng_state_{rank}.pth isn't here yet"
    if not unmarked and not lacks and "latest" in files:  # DeepSpeed's, inside
        for unit in _deepspeed(look, folder):
            lacks, needs = lacks or unit.why_not, needs + unit.needs
    return [_unit(look, folder, lacks, needs, unmarked, "trainer_state.json")]


_STATES = re.compile(r"random_states_(\d+)\.pkl")


def _accelerate(look: Look, folder: str) -> list[Unit]:
    """accelerate's ``save_state``: each rank's random states come last."""
    files = look.folders[folder]
    if not folder or not any(_STATES.fullmatch(name) for name in files):
        return []
    needs = tuple(join(folder, f"random_states_{rank}.pkl") for rank in range(look.world.ranks))
    first = look.world.first
    own = (f"random_states_{rank}.pkl" for rank in range(first, first + look.world.own))
    lacks = next((f"{join(folder, name)} isn't here yet" for name in own if name not in files), "")
    return [_unit(look, folder, lacks, needs)]


_ZERO = re.compile(r"((?:bf16_|fp16_)?zero_pp_rank_)(\d+)(_mp_rank_)(\d+)(.*optim_states\.pt)")
_MP = re.compile(r"mp_rank_(\d+)_model_states\.pt")


def _deepspeed(look: Look, folder: str) -> list[Unit]:
    """DeepSpeed: ``latest`` names the folder of the last one, and every rank has a file of its optimizer's state."""
    files = look.folders[folder]
    units = []
    latest = (look.text(join(folder, "latest")) or "").strip() if "latest" in files else ""
    shared = {join(folder, name): facts for name, facts in files.items() if name in SHARED}
    for name in look.below[folder]:
        inner = join(folder, name)
        found = look.folders[inner]
        if not any(_MP.fullmatch(each) or _ZERO.fullmatch(each) for each in found):
            continue
        states = {match[2]: match for each in found if (match := _ZERO.fullmatch(each))}
        needs: tuple[str, ...] = ()
        if states:
            sample = next(iter(states.values()))
            parts = {match[4] for each in found if (match := _ZERO.fullmatch(each))}
            width = max(len({match[1] for each in found if (match := _MP.fullmatch(each))}), len(parts), 1)
            needs = tuple(
                join(inner, f"{sample[1]}{rank}{sample[3]}{part}{sample[5]}")
                for rank in range(max(1, look.world.ranks // width))
                for part in sorted(parts)
            )
        here = look.files_below(inner)
        lacks, unmarked = _why_not(look, here), ""
        if latest != name and not lacks:  # an earlier one, or one that isn't done
            done = latest and numbers_of(latest) > numbers_of(name)
            unmarked = "" if done else f"{join(folder, 'latest')} doesn't name {name} yet"
        texts = pointer(inner, "latest")
        units.append(Unit(inner, {**here, **shared}, lacks, unmarked, needs, has_mark=True, texts=texts))
    return units


def _orbax(look: Look, folder: str) -> list[Unit]:
    """Orbax: written under a name with ``orbax-checkpoint-tmp``, and renamed when all hosts are done."""
    if not folder or "_CHECKPOINT_METADATA" not in look.folders[folder]:
        return []
    return [_unit(look, folder)]


_SHARD = re.compile(r"(.+)\.data-(\d{5})-of-(\d{5})")
_MERGING = re.compile(r"_temp(_[0-9a-f]{32})?$")
"""Ends the name of a folder in which TensorFlow writes shards that it then merges."""


def _tensorflow(look: Look, folder: str) -> list[Unit]:
    """TensorFlow: an index, written last, and the shards that their names count; ``checkpoint`` names the last one."""
    files = look.folders[folder]
    prefixes = {match[1]: int(match[3]) for name in files if (match := _SHARD.fullmatch(name))}
    units = []
    for prefix, count in prefixes.items():
        index = f"{prefix}.index"
        shards = [f"{prefix}.data-{number:05d}-of-{count:05d}" for number in range(count)]
        its = {join(folder, name): files[name] for name in (index, *shards) if name in files}
        unmarked = "" if index in files else f"{join(folder, index)} isn't here yet"
        lacks = f"the shards of {folder} aren't merged yet" if _MERGING.search(folder) else _why_not(look, its)
        needs, name = tuple(join(folder, shard) for shard in shards), join(folder, prefix)
        unit = Unit(name, its, lacks, unmarked, needs, has_mark=True, texts=pointer(name, "checkpoint"))
        units.append(unit._replace(mark=join(folder, index)))
    return units


def _lightning(look: Look, folder: str) -> list[Unit]:
    """Lightning's files: each is a whole zip or none. Those of one folder go together: the last and the best."""
    names = (join(folder, name) for name in look.folders[folder] if name.endswith(".ckpt") and not is_temporary(name))
    ckpts = {path: look.folders[folder][path.rpartition("/")[2]] for path in names}
    if not ckpts:
        return []
    whole = {path: facts for path, facts in ckpts.items() if not _why_not(look, {path: facts})}
    name = join(folder, "*.ckpt")
    return [Unit(name, whole, "" if whole else f"{name}: none is whole yet", family=name)]


def _smdistributed(look: Look, folder: str) -> list[Unit]:
    """smdistributed.modelparallel: ``newest``, written last, names a checkpoint: a folder of every rank's files, or one
    file.
    """
    files = look.folders[folder]
    if "newest" not in files:
        return []
    tag = (look.text(join(folder, "newest")) or "").strip()
    name = join(folder, tag)
    if tag in look.below[folder]:
        unit = _unit(look, name)
    elif tag in files:
        its = {name: files[tag]}
        unit = Unit(name, its, _why_not(look, its), has_mark=True)
    else:
        return []
    return [unit._replace(texts=pointer(name, "newest"))]


# -- what the user says is whole --


def _said(look: Look, folder: str) -> list[Unit]:
    """What a program called ``musterpoint.checkpoints.saved`` for."""
    units = []
    if folder in look.said and folder:
        units.append(Unit(folder, look.files_below(folder), everywhere=False))
    for name, facts in look.folders[folder].items():
        if (path := join(folder, name)) in look.said:
            units.append(Unit(path, {path: facts}, everywhere=False))
    return units


def _marked(look: Look, folder: str) -> list[Unit]:
    """``--checkpoint-complete GLOB``: the folder of a file that matches; at the top, the file itself."""
    for name, facts in look.folders[folder].items():
        path = join(folder, name)
        if not any(fnmatch.fnmatchcase(path, mark) or fnmatch.fnmatchcase(name, mark) for mark in look.marks):
            continue
        its = look.files_below(folder) if folder else {path: facts}
        return [Unit(folder or path, its, _why_not(look, its), mark=path, everywhere=False)]
    return []


# -- files and folders without a mark --


def _plain(look: Look, folder: str) -> list[Unit]:
    """Any other files. A folder that was renamed into place, or has a later sibling of its family; at the top, all
    files together: each was renamed into place, or its format says that it is whole.
    """
    files = {join(folder, name): facts for name, facts in look.folders[folder].items() if not TEMPORARY.search(name)}
    if not files or is_temporary(folder):
        return []
    if folder:
        files = look.files_below(folder)
    lacks, name = _why_not(look, files), folder or "."
    unmarked = "" if lacks else _not_renamed(look, folder, files)
    if not folder:  # a file at the top has no mark but its own name
        lacks, unmarked = lacks or unmarked, ""
    return [Unit(name, files, lacks, unmarked, everywhere=False)]


_TELLS = (".pt", ".pth", ".ckpt", ".bin", ".npz", ".safetensors", ".json")


def _not_renamed(look: Look, folder: str, files: dict[str, Facts]) -> str:
    if look.is_over or (folder and (_folder_was_renamed(look, folder, files) or _has_successor(look, folder))):
        return ""
    if folder:
        return f"{folder} has no mark that says it is whole (--checkpoint-complete, or renaming it into place)"
    for name, facts in files.items():
        if not facts.was_renamed and name not in look.moved and not name.endswith(_TELLS):
            return f"{name} wasn't renamed into place (--checkpoint-complete)"
    return ""


def _folder_was_renamed(look: Look, folder: str, files: dict[str, Facts]) -> bool:
    """A rename changes the folder's own second time only, and comes after every write into it."""
    if folder in look.moved:
        return True
    try:
        facts = look.tree.facts(folder)
    except OSError:
        return False
    if facts is None:
        return False
    last = max((each.changed for each in files.values()), default=0)
    return facts.st_ctime_ns > facts.st_mtime_ns and facts.st_ctime_ns > last


def _has_successor(look: Look, folder: str) -> bool:
    above, _, name = folder.rpartition("/")
    family, number = family_of(name), numbers_of(name)
    return any(family_of(each) == family and numbers_of(each) > number for each in look.below[above])


MARKED = Kind("marked", _marked)
SAID = Kind("said", _said)
TORCH = Kind("torch.distributed.checkpoint", _torch)
TRAINER = Kind("transformers", _trainer)
DEEPSPEED = Kind("deepspeed", _deepspeed)
ACCELERATE = Kind("accelerate", _accelerate)
LIGHTNING = Kind("lightning", _lightning)
ORBAX = Kind("orbax", _orbax)
TENSORFLOW = Kind("tensorflow", _tensorflow)
SMDISTRIBUTED = Kind("smdistributed", _smdistributed)
PLAIN = Kind("files", _plain)
KINDS = (SAID, TRAINER, ACCELERATE, TORCH, ORBAX, DEEPSPEED, TENSORFLOW, SMDISTRIBUTED, LIGHTNING)
"""Those that a folder is asked for in this order; :data:`MARKED` alone where globs are given, else :data:`PLAIN` last.
"""


def units_of(look: Look) -> list[Unit]:
    """Every checkpoint below the directory, whole or not, the oldest first as far as numbers in names tell."""
    units = sorted(_units_in(look, ""), key=lambda unit: (unit.family, numbers_of(unit.name)))
    links: dict[str, dict[str, str]] = {}
    for path, target in look.links.items():
        end = os.path.normpath(os.path.join(os.path.dirname(path), target))
        names = [unit.name for unit in units if f"{end}/".startswith(f"{unit.name}/") or end in unit.files]
        if names and not is_temporary(path):
            links.setdefault(max(names, key=len), {})[path] = target
    return [unit._replace(links=links.get(unit.name, {})) for unit in units]


def _units_in(look: Look, folder: str) -> list[Unit]:
    """Those of ``folder`` and below it. Files without a mark count as one with what is below them, unless a checkpoint
    of a known kind is there.
    """
    kinds = (MARKED,) if look.marks else KINDS
    own = next((its for kind in kinds if (its := kind.units(look, folder))), [])
    if is_temporary(folder):
        own = [unit if unit.kind == SAID.name else _temporary(unit) for unit in own]
    own = [unit for unit in own if unit.is_whole or unit.name not in look.said]  # what is said to be whole, comes below
    taken = {unit.name for unit in own}
    if folder in taken:
        return own
    inner = [
        unit
        for name in look.below[folder]
        if (path := join(folder, name)) not in taken
        for unit in _units_in(look, path)
    ]
    if own or look.marks or (folder and any(unit.kind != PLAIN.name for unit in inner)):
        return own + inner
    plain = PLAIN.units(look, folder)
    return plain if plain and folder else plain + inner


def _temporary(unit: Unit) -> Unit:
    why = f"{unit.name} has a temporary name: it is kept once it is renamed, or musterpoint.checkpoints.saved called"
    return unit._replace(lacks=unit.why_not or why, unmarked="")


def newest_of(units: list[Unit]) -> list[Unit]:
    """The newest whole unit of each family."""
    newest: dict[str, Unit] = {}
    for unit in units:
        if unit.is_whole and set(unit.needs) <= set(unit.files):
            newest[unit.family] = unit
    return list(newest.values())


def _why_half(look: Look, name: str, facts: Facts) -> str:
    """Why a file isn't whole, as far as its format tells: a zip (torch.save, npz) ends with its directory, safetensors
    say their size, JSON can be read. Empty: nothing speaks against it.
    """
    try:
        if name.endswith((".pt", ".pth", ".ckpt", ".bin", ".npz", ".distcp", ".zip")):
            return "" if _zip_ends(look, name, facts.size) else f"{name} ends too early"
        if name.endswith(".safetensors"):
            return "" if _safetensors_end(look, name, facts.size) else f"{name} ends too early"
        if name.endswith(".json") and facts.size < MOST_JSON:
            with look.file(name) as file:
                json.load(file)
    except OSError as error:
        return f"{name}: {error.strerror}"
    except ValueError:
        return f"{name} is no whole JSON"
    return ""


def _zip_ends(look: Look, name: str, size: int) -> bool:
    with look.file(name) as file:
        if file.read(4) != b"PK\x03\x04":
            return size > 0  # an older format, which doesn't tell
        file.seek(max(0, size - _ZIP_TAIL))
        return _END_OF_ZIP in file.read()


def _safetensors_end(look: Look, name: str, size: int) -> bool:
    with look.file(name) as file:
        length = int.from_bytes(file.read(8), "little")
        if length > min(size, MOST_JSON):
            return False
        header = json.loads(file.read(length))
        ends = (each["data_offsets"][1] for name, each in header.items() if name != "__metadata__")
        return bool(size == 8 + length + max(ends, default=0))


def _why_not(look: Look, files: dict[str, Facts]) -> str:
    """Why ``files`` aren't whole: the first that is half, or still written."""
    for name, facts in files.items():
        if half := _why_half(look, name, facts):
            return half
        if not look.is_over and _is_written(look, name):
            return f"{name} is still being written"
    return ""


def _is_written(look: Look, name: str) -> bool | None:
    try:
        with look.file(name) as file:
            return is_written(file.fileno())
    except (OSError, ValueError):
        return None
