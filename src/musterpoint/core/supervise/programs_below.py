"""Sees the programs below this host's ranks: Pythons of a script and how they end, and worlds of other launchers.

A shell takes the status of what it runs. Linux tells it to others, too, who hold a descriptor of the process (6.15 and
later); before, a Python's own word and the script's output tell of a failure.
"""

from __future__ import annotations

import os
from functools import partial
from typing import Callable, Iterator, Mapping

from musterpoint.base.loop import READ, Loop, Timer
from musterpoint.base.records import NamedTuple
from musterpoint.core.diagnosis import ProgramEnd, ScriptEnd
from musterpoint.core.launch.launchers import launching
from musterpoint.core.processes import process_tree

SOONEST, LATEST, SLOWER = 0.005, 0.5, 1.2
"""Seconds from one look at a script to the next: after a start or an end the first, then each time longer."""
TAKEN = 0.002
"""Seconds to the first question for the status of a program that its parent hasn't taken yet."""
WORLDS = (0.5,) * 20 + (2.0,) * 10 + (15.0,) * 6
"""Seconds from one look for other launchers' worlds to the next."""
_MOST = 1000
"""Programs of a script that are kept, the last ones."""


class Script:
    """The shell in the place of a rank. ``text`` is what it runs; ``programs``: its Pythons, by pid."""

    def __init__(self, pid: int) -> None:
        self.pid, self.text = pid, ""
        self.programs: dict[int, ProgramEnd] = {}
        self.descriptors: dict[int, int] = {}
        self.timer: Timer | None = None


class NestedWorld(NamedTuple):
    """A world that another launcher has made below a rank; ``ranks``: those of it that are there."""

    launcher: str
    size: int
    ranks: frozenset[int]


class ProgramsBelow:
    """Looks below ranks, by global rank. ``world``: how many there are in all; 0: they are none.

    ``on_world`` is called when a world of another launcher was found or has grown.
    """

    def __init__(self, loop: Loop, world: int, on_world: Callable[[], None], proc: str = "/proc") -> None:
        self._loop, self._on_world, self._proc = loop, on_world, proc
        self._pids: dict[int, int] = {}
        self._scripts: dict[int, Script] = {}
        self.worlds: dict[int, NestedWorld] = {}
        self._looks = iter(WORLDS if world > 1 else ())
        self._timer: Timer | None = None

    def watch(self, rank: int, pid: int) -> None:
        """The program of a rank runs."""
        self._pids[rank] = pid
        self._look(self._scripts.setdefault(rank, Script(pid)), SOONEST)
        if self._timer is None:
            self._next()

    def raised(self, rank: int, pid: int, error: str) -> None:
        """A Python below a rank tells of the exception that ends it, and waits until it was heard."""
        if (script := self._scripts.get(rank)) is not None:
            self._look(script)
            known = script.programs.get(pid) or self._begun(script, pid)
            script.programs[pid] = known._replace(error=error)

    def ended(self, rank: int) -> ScriptEnd:
        """A rank has ended."""
        self._pids.pop(rank, None)
        script = self._scripts.pop(rank, None)
        if script is None:
            return ScriptEnd()
        for pid in [*script.descriptors]:
            stat = process_tree.read_stat(pid, self._proc)
            if stat is None or stat.state in "ZX":
                self._program_ended(script, pid, last=True)
        self._forget(script)
        return ScriptEnd(tuple(script.programs.values()), script.text)

    # -- scripts --

    def _look_later(self, script: Script, seconds: float) -> None:
        if script.timer is not None:
            script.timer.cancel()
        script.timer = self._loop.call_later(seconds, lambda: self._look(script, seconds))

    def _look(self, script: Script, seconds: float = LATEST) -> None:
        stat = process_tree.read_stat(script.pid, self._proc)
        if stat is None or not (stat.copy or process_tree.passes(stat, self._proc)):
            return  # it has ended, or is a program now, as with exec
        if stat.copy:  # it isn't the program yet
            self._look_later(script, seconds)
            return
        script.text = script.text or process_tree.script_of(script.pid, self._proc)
        found = [pid for pid in process_tree.behind(script.pid, self._proc) if process_tree.is_python(pid, self._proc)]
        fresh = [pid for pid in found if pid not in script.programs or not script.programs[pid].runs]
        for pid in fresh:
            script.programs.pop(pid, None)  # its number was another one's
            script.programs[pid] = self._begun(script, pid)
        for pid in found:
            one = script.programs[pid]
            script.programs[pid] = one._replace(beside=one.beside.union(found))
        while len(script.programs) > _MOST:
            del script.programs[next(iter(script.programs))]
        self._look_later(script, SOONEST if fresh else min(LATEST, seconds * SLOWER))

    def _begun(self, script: Script, pid: int) -> ProgramEnd:
        try:
            descriptor = script.descriptors[pid] = os.pidfd_open(pid)
        except (AttributeError, OSError):  # not Linux, or it has just ended
            return ProgramEnd(pid, process_tree.command_of(pid, self._proc))
        self._loop.watch(descriptor, READ, lambda _ready: self._program_ended(script, pid))
        return ProgramEnd(pid, process_tree.command_of(pid, self._proc), runs=True)

    def _program_ended(self, script: Script, pid: int, last: bool = False, wait: float = TAKEN) -> None:
        """A program has ended; ``last``: its script, too. Its status is told once its parent has taken it."""
        descriptor = script.descriptors.get(pid)
        if descriptor is None:
            return
        self._loop.forget(descriptor)
        was_there = process_tree.read_stat(pid, self._proc) is not None  # first: its parent may take it between the two
        status = process_tree.exit_status(descriptor)
        if status is None and not last and was_there:
            later = partial(self._program_ended, script, pid, wait=min(LATEST, wait * SLOWER))
            self._loop.call_later(wait, later)
            return
        os.close(script.descriptors.pop(pid))
        if (one := script.programs.get(pid)) is not None:
            script.programs[pid] = one._replace(status=status, runs=False)
        if not last:
            self._look(script, SOONEST)

    def _forget(self, script: Script) -> None:
        if script.timer is not None:
            script.timer.cancel()
        for descriptor in script.descriptors.values():
            self._loop.forget(descriptor)
            os.close(descriptor)
        script.descriptors.clear()

    # -- worlds of other launchers --

    def _next(self) -> None:
        seconds = next(self._looks, None)
        if seconds is not None:
            self._timer = self._loop.call_later(seconds, self._look_for_worlds)

    def _look_for_worlds(self) -> None:
        before = dict(self.worlds)
        for rank, pid in self._pids.items():
            own = _identity(pid, self._proc)
            for other, launcher in self._below(pid, _launcher_of(pid, self._proc)):
                its = number, size, session = _identity(other, self._proc)
                if its == own or not size or (size == 1 and session == own[2]):
                    continue
                world = self.worlds.get(rank) or NestedWorld("", size, frozenset())
                self.worlds[rank] = NestedWorld(launcher or world.launcher, size, world.ranks | {number})
        if self.worlds != before:
            self._on_world()
        self._next()

    def _below(self, pid: int, launcher: str) -> Iterator[tuple[int, str]]:
        """The processes below ``pid``, each with the launcher that is above it."""
        for child in process_tree.children_of(pid, self._proc):
            yield child.pid, launcher
            yield from self._below(child.pid, launcher or _launcher_of(child.pid, self._proc))

    def close(self) -> None:
        """Ends all looks."""
        for script in self._scripts.values():
            self._forget(script)
        if self._timer is not None:
            self._timer.cancel()


def _launcher_of(pid: int, proc: str) -> str:
    return launching(process_tree.words_of(pid, proc))


def _identity(pid: int, proc: str) -> tuple[int, int, str]:
    """Rank, world size (0: none) and torchrun's session of a process, by the variables that it was started with."""
    variables = process_tree.variables_of(pid, ("RANK", "WORLD_SIZE", "TORCHELASTIC_RUN_ID"), proc)
    rank, size = variables.get("RANK", ""), variables.get("WORLD_SIZE", "")
    known = rank.isdecimal() and size.isdecimal() and len(rank + size) < 20
    return int(rank) if known else 0, int(size) if known else 0, variables.get("TORCHELASTIC_RUN_ID", "")


def are_separate(found: Mapping[int, NestedWorld], planned: int) -> bool:
    """Whether what was found below ranks can't be one world of the job's, of ``planned`` ranks.

    Rank 0 alone may start one on purpose, for all or beside the job; and ranks may start one together.
    """
    ranks = [rank for world in found.values() for rank in world.ranks]
    alone = any(
        number > 0 and (world.size < planned or len(world.ranks) == world.size) for number, world in found.items()
    )
    return alone or len({*ranks}) < len(ranks)


def nested_words(found: Mapping[int, NestedWorld], planned: int, once_per_host: str) -> str:
    """What happened, and what to type, for people."""
    number, world = min(found.items())
    return (
        f"{world.launcher} in the place of rank {number} started ranks itself: they are a world of {world.size} of "
        f"their own, beside others, and not the job's of {planned}: start the script without {world.launcher}, or "
        f"let it start ranks once per host, by {once_per_host}"
    )
