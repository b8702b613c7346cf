"""Finds launchers by name. A launcher's file is imported when it is asked for, so that a job pays for its own alone.

:mod:`musterpoint.base.kinds` lists ours. Another name may be another package's: it is looked up among the entry points
``musterpoint.launchers`` of what is installed beside musterpoint.
"""

from typing import Iterator, cast

from musterpoint.base import plugins
from musterpoint.base.kinds import LAUNCHERS
from musterpoint.base.settings import BY_FIELD, Settings
from musterpoint.core.job.model import Job
from musterpoint.core.launch.commands import launching
from musterpoint.core.launch.launcher import Asked, Launcher

PACKAGE = "musterpoint.core.launch.launchers"

ON_ITS_OWN = "script"
"""The launcher of a job that names no distribution, and of hosts outside the distribution's group."""
FOR_SLOTS = "torchrun"
"""That of a typed program for which there are several slots."""
FOR_STARTED = "ranks"
"""That of ranks which the platform has started."""


def find(name: str) -> Launcher:
    """The launcher ``name``.

    Raises:
        UsageError: there is none.
    """
    if name in LAUNCHERS:
        module = __import__(f"{PACKAGE}.{name.replace('-', '_')}", fromlist=["LAUNCHER"])
        return cast(Launcher, module.LAUNCHER)
    option = BY_FIELD["launcher"]
    option.read(name, "launcher")
    return plugins.load(option.plugins, name, Launcher)


def every() -> Iterator[Launcher]:
    """All launchers of ours, in the order of the table."""
    return map(find, LAUNCHERS)


def asked_by(kind: str) -> list[tuple[str, Asked]]:
    """The launchers for a kind of distribution, each with why, the first choice first."""
    found = [(name, find(name).asked_by[kind]) for name, row in LAUNCHERS.items() if kind in row.kinds]
    return sorted(found, key=lambda each: each[1].instead)


def asked_by_option(settings: Settings) -> tuple[str, str]:
    """The launcher that an option asks for, and that option's flag; both empty: none does."""
    for name, row in LAUNCHERS.items():
        if row.option and getattr(settings, row.option):
            return name, BY_FIELD[row.option].flag
    return "", ""


def of_program(*names: str) -> str:
    """The launcher whose own command line a program of one of these ``names`` is; empty: none's."""
    return next((name for name, row in LAUNCHERS.items() if not {*names}.isdisjoint(row.programs)), "")


def command_of(job: Job) -> str:
    """The command, or Python's module, of another launcher that the job's program is; empty: it is none."""
    start = job.entry_point
    return launching((*(("python", "-m") if start.module else ()), start.program, *job.arguments))


def readers(field: str) -> tuple[str, ...]:
    """The launchers that read an option which only some read."""
    return tuple(launcher.name for launcher in every() if field in launcher.reads)


def instead_of(command: str, way: str, job: Job | None = None) -> str:
    """What starts a script as ``command`` would, with ``muster launch`` or ``muster local`` (``way``), for people.

    Empty where ``command`` is no launcher's. ``job``: where the platform starts its ranks, it is they who are started.
    """
    words = next((launcher.instead_of[command] for launcher in every() if command in launcher.instead_of), "")
    if words and job is not None and job.started is not None and job.started.local_size > 1:
        return f"`muster {way} SCRIPT`, without --launcher, starts a script as the ranks of this platform"
    return f"`muster {way} {words}` starts a script as {command} would" if words else ""
