"""Keeps what ranks that end with 0 hide: what failed or was cut off in their scripts, and worlds of other launchers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Mapping, Sequence

from musterpoint.base.exit_codes import signal_name
from musterpoint.core.diagnosis import Evidence, ProgramEnd, ScriptEnd, diagnose
from musterpoint.core.processes import process_tree
from musterpoint.core.supervise.context import SupervisorContext

if TYPE_CHECKING:
    from musterpoint.core.supervise.programs_below import ProgramsBelow

WHAT_TO_DO = (
    "a script ends with its last command's code: write `set -e`; for a pipe `set -o pipefail`, too; for a program in "
    "the background `wait PID`, as a bare `wait` gives 0; `X=$(...)` apart from its `export`; no `exit 0` in a trap"
)
WAIT = "a script that ends waits for nothing: write `wait PID` at its end for what runs in the background"
UNTIL_LOOKED = 0.02
"""Seconds from a rank's start to the first look at what it runs; a script's programs may end soon."""


class HiddenWork:
    """``warnings`` are sentences; ``told``: that of them which was said when it was found. ``told_by_launches`` are
    those of launches of ours in the ranks' programs, which have said them.
    """

    def __init__(self, context: SupervisorContext) -> None:
        self._context = context
        self.warnings: list[str] = []
        self.told = ""
        self.told_by_launches: list[str] = []
        self._programs: list[ProgramEnd] = []
        self._scripts: dict[int, ScriptEnd] = {}
        self._below: ProgramsBelow | None = None
        self._world, self._are_scripts = 0, False

    def expect(self, world: int, are_scripts: bool) -> None:
        """Ranks will come up, of ``world`` in all (0: they needn't be one world).

        ``are_scripts``: their program is none of Python's.
        """
        self._world, self._are_scripts = world, are_scripts

    def started(self, rank: int, pid: int) -> None:
        """A rank's program runs: looks at what is below it once it was started, as the start needn't wait for that."""

        def watch() -> None:
            if process_tree.read_stat(pid) is not None:
                self._programs_below.watch(rank, pid)

        self._context.loop.call_later(0 if self._are_scripts else UNTIL_LOOKED, watch)

    @property
    def _programs_below(self) -> ProgramsBelow:
        if self._below is None:
            from musterpoint.core.supervise.programs_below import ProgramsBelow

            self._below = ProgramsBelow(self._context.loop, self._world, self._found_world)
        return self._below

    def raised(self, rank: int, rank_pid: int, pid: int, text: str) -> None:
        """A Python below a rank tells of the exception that ends it."""
        self._programs_below.watch(rank, rank_pid)
        self._programs_below.raised(rank, pid, text.partition("\n")[0])

    def ended(self, end: Evidence, well: bool) -> None:
        """A rank has ended, ``well`` or not: keeps what failed in its script where that did nothing about it.

        ``end``: with what the rank has printed.
        """
        if self._below is not None:
            self._scripts[end.rank] = self._below.ended(end.rank)
        programs, script = self._scripts.get(end.rank, ((), ""))
        self._programs += programs
        if not well or not (programs or self._are_scripts):
            return
        unknown = not programs or any(one.status is None and not one.runs for one in programs)
        if unknown and (failure := diagnose(end, self._context.diagnosis)) is not None:
            last = programs[-1] if programs else ProgramEnd(0, "a program")
            said = last.error or failure.reason.partition("\n")[0]
            programs = (*programs[:-1], last._replace(error=said, runs=False))
        if (one := ScriptEnd(programs, script).hidden) is None:
            return
        status = one.status or 1
        how = f"exit code {status}" if status > 0 else signal_name(-status)
        failure = diagnose(end._replace(status=status, seen="ended"), self._context.diagnosis)
        said = one.error or (failure.reason if failure is not None else "")
        error, name = self._context.mask(said.partition("\n")[0]), self._context.mask(one.name)
        if one.status is not None:
            error = how if error.startswith(("rank ", "the program of ")) else f"{error} ({how})"
        self._context.record("exception-hidden", rank=end.rank, error=error)
        who = self._context.diagnosis.job.outside or f"rank {end.rank}"
        self.warnings.append(f"{who} ended with 0, though {name} in it ended with {error}: {WHAT_TO_DO}")

    def script_of(self, rank: int) -> ScriptEnd | None:
        """The script in the place of a rank that has ended, and its Pythons; None: there is none."""
        script = self._scripts.get(rank)
        return script if script is not None and script.programs else None

    def note_left(self, left: Sequence[int]) -> None:
        """Keeps which Pythons of ``left`` are cut off that scripts left in the background."""
        names = {pid: process_tree.command_of(pid) for pid in left if process_tree.is_python(pid)}
        if cut_off := left_behind(names, self._programs, self._are_scripts):
            programs = self._context.mask(", ".join(cut_off))
            self._context.record("left-cut-off", programs=programs)
            self.warnings.append(f"the program's end cut off what it had left running: {programs}: {WAIT}")

    def explains(self, orphans: bool) -> bool:
        """Whether scripts hid something, also by ``orphans`` that they left: their ranks are not to be judged."""
        return bool(self.warnings) or (self._are_scripts and orphans)

    def _found_world(self) -> None:
        """Another launcher has made worlds below ranks: says so where they can't be the job's one."""
        from musterpoint.core.supervise.programs_below import are_separate

        worlds = self._programs_below.worlds
        if not self.told and are_separate(worlds, self._world):
            self.told = self.worlds
            launcher, size, _ranks = min(worlds.items())[1]
            self._context.record("worlds-apart", launcher=launcher, size=size, world=self._world)
            self._context.say(f"warning: {self.told}")
            self.warnings.append(self.told)

    @property
    def worlds(self) -> str:
        """The worlds of other launchers below the ranks, in a sentence; empty: there are none."""
        if self._below is None or not self._below.worlds:
            return ""
        from musterpoint.core.supervise.programs_below import nested_words

        return nested_words(self._below.worlds, self._world, self._context.diagnosis.job.once_per_host)

    def close(self) -> None:
        """Ends all looks."""
        if self._below is not None:
            self._below.close()


def left_behind(left: Mapping[int, str], programs: Sequence[ProgramEnd], is_script: bool) -> list[str]:
    """The command lines of Pythons in ``left`` (by pid) that the job was about, not helpers beside it.

    ``programs``: those of a script, as far as they were seen; ``is_script``: the rank was no Python itself.
    """
    last = programs[-1].pid if programs else 0
    if last in left:
        return [left[pid] for pid in left]
    return [*left.values()] if is_script and not programs else []
