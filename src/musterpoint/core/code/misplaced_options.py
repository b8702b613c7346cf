"""Options behind the program that were meant for musterpoint, or torchrun: they go to the program."""

from __future__ import annotations

import os
import shlex
from itertools import chain
from typing import Collection, Sequence

from musterpoint.base import spellings
from musterpoint.base.settings import OPTIONS
from musterpoint.base.spellings import Typed
from musterpoint.core.job.fields import small_text

_FLAGS = frozenset(flag for option in OPTIONS for flag in (option.flag, *option.aliases))
_LOCAL = spellings.OF_LOCAL | (_FLAGS - {"--nnodes", "--node-rank", "--rollcall-leader", "--job-name", "--platform"})
"""The flags of ``muster local`` among those that are looked for."""


def behind_the_program(path: str, arguments: Sequence[str], line: Typed) -> list[str]:
    """A sentence where ``arguments`` of the program at ``path`` are called like options of ours, or of torchrun, with
    the command line that was meant: there they stand before the program. It isn't said of a name that the program's own
    text has, nor where it is no file but a command, such as torchrun.
    """
    if not os.path.isfile(path):
        return []
    ours = {*line.flags, *_FLAGS, *spellings.OF_LOCAL, *spellings.OF_TORCHRUN}
    if all(spellings.plain(word) not in ours for word in arguments):
        return []
    text, rest = small_text(path), list(arguments)
    found = dict[str, tuple[str, list[str]]]()
    for word in arguments:
        name, equals, value = word.partition("=")
        flag = spellings.plain(word)
        if flag not in ours or _has(text, name, flag):
            continue
        at = rest.index(word)
        valued = line.flags.get(flag, flag not in spellings.SWITCHES) and not equals
        behind = [next_ for next_ in rest[at + 1 : at + 2] if valued and not next_.startswith("-")]
        rest[at : at + 1 + len(behind)] = []
        found[name] = flag, [value] if equals else behind
    if not found:
        return []
    program = os.path.basename(path)
    meant = _meant(found.values(), line)
    return [
        f"{', '.join(found)} behind {program} {'goes' if len(found) == 1 else 'go'} to the program. Options of "
        f"musterpoint stand before it: {meant} {shlex.join((line.program, *rest))}"
    ]


def _meant(found: Collection[tuple[str, Sequence[str]]], line: Typed) -> str:
    """The command with its options and those ``found``, each with its value; ``muster local`` where it has one that
    the command lacks.
    """
    here = [(_spelled(flag, line.flags), value) for flag, value in found]
    there = [(spellings.meant(flag, _LOCAL), value) for flag, value in found]
    is_local = any(word and not own for (own, _), (word, _) in zip(here, there))
    start = ["muster", "local"] if is_local else [*line.command.split(), *line.head]
    words = [(word, *value) for word, value in (there if is_local else here) if word]
    return shlex.join((*start, *chain.from_iterable(words)))


def _spelled(flag: str, known: Collection[str]) -> str:
    """``flag`` as a command with the flags ``known`` spells it; empty: it has none like it."""
    same = (flag, f"--muster-{flag.removeprefix('--')}")
    # --nnodes, which means the same, counts hosts that are there already
    found = next((each for each in same if each in known), "")
    return found or ("" if flag == "--hosts" else spellings.meant(flag, known))


def _has(text: str, word: str, flag: str) -> bool:
    """Looks for a flag in a program's text, as it was typed or not, or for its bare name in quotes."""
    name = flag.removeprefix("--")
    quoted = (f"{mark}{bare}{mark}" for bare in (name, name.replace("-", "_")) for mark in "\"'")
    return any(each in text for each in (word, flag, *quoted))
