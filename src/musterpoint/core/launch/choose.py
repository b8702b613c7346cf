"""Which launcher a job gets, and how many ranks each host has under it."""

import sys
from typing import Callable, Mapping

from musterpoint.base.errors import LauncherError, UsageError
from musterpoint.base.records import NamedTuple
from musterpoint.base.settings import OPTIONS, Settings
from musterpoint.core.fabric.devices import Devices
from musterpoint.core.job import platforms
from musterpoint.core.job.model import Job
from musterpoint.core.launch.inputs import capacity_of
from musterpoint.core.launch.launcher import Lacks, Launcher, Wanted, refuse
from musterpoint.core.launch.launchers import (
    FOR_SLOTS,
    FOR_STARTED,
    ON_ITS_OWN,
    asked_by,
    asked_by_option,
    command_of,
    find_launcher,
    instead_of,
    readers,
)


class Choice(NamedTuple):
    """How this host's ranks are started.

    launcher: what starts them, by its name.
    slots: how many there are on this host; 0 outside the distribution group.
    reason: why this launcher, for ``muster plan``.
    """

    launcher: str
    slots: int
    reason: str


class _Found(NamedTuple):
    """The launcher's ``name``, why it is that one, and what to say where its module is missing (empty: the usual)."""

    name: str
    reason: str
    lack: str = ""


_ANOTHER = (
    "choose another launcher: --launcher script or --launcher ranks (--muster-launcher behind `muster torchrun` and "
    "launcher.py)"
)


def choose(
    job: Job,
    settings: Settings,
    devices: Devices,
    has: Callable[[str], bool],
    local: bool,
    environ: Mapping[str, str] = {},
    wanted: Wanted | None = None,
    lacks: Lacks = refuse,
) -> Choice:
    """The launcher and this host's slots.

    ``has`` asks the user's interpreter for a module, or this host for
    :data:`musterpoint.core.launch.launcher.MPIRUN`; it is called only where the answer matters. ``local``: the user
    typed the program (``muster launch``, ``muster local``); a job without distribution settings then still uses all
    slots of all hosts. ``environ`` may have a TF_CONFIG by which some hosts run no rank, only a server. ``wanted``:
    what the program stands for, where it is a launcher's own command line. ``lacks`` is told of a missing module.

    Raises:
        LauncherError: no launcher of this release fits the job, or the launcher's module is missing.
        UsageError: TF_CONFIG is malformed, or a parameter-server job has more hosts than roles.
    """
    capacity, typed = capacity_of(job, settings, devices), wanted.launcher if wanted else ""
    python = wanted.interpreter if wanted else sys.executable
    name, reason, lack = (
        _as_started(job, settings, typed)
        or (_Found(typed, wanted.reason) if wanted and typed else None)
        or _launcher(job, settings, capacity, has, local, python)
    )
    launcher = find_launcher(name)
    if (command := command_of(job)) and not launcher.once and not typed:
        once = f"--launcher script starts {command} itself, once per host"
        if job.started is not None and job.started.local_size > 1:  # there any other launcher is refused
            once = f"{platforms.load(job.platform).once_per_host} lets the platform start {command} once per host"
        raise UsageError(
            f"PROGRAM is {command}, which starts ranks itself, and launcher {name} ({reason}) would start it once per "
            f"rank: {instead_of(command, 'launch', job)}; {once}"
        )
    told = wanted is not None and bool(wanted.assumed)
    if launcher.needs and job.in_group and not told and not has(launcher.needs):
        usual = (
            f"launcher {name}{'' if settings.launcher == name else f' ({reason})'}: the program's Python"
            f", {python}, has no module {launcher.needs}; install {launcher.needs} for it"
            f" ({python} -m pip install {launcher.needs}), or {_ANOTHER}"
        )
        lacks(LauncherError(lack or usual))
    _check_options(launcher, reason, settings)
    slots = slots_of(job.current_host, launcher, job, settings, capacity, environ)
    return Choice(name, slots if job.in_group else 0, reason)


def _check_options(launcher: Launcher, reason: str, settings: Settings) -> None:
    """Raises a UsageError for an option that was given, that only other launchers read, and that is no mere wish."""
    for option in OPTIONS:
        value = getattr(settings, option.field)
        if option.refused and value and option.field not in launcher.reads:
            who = " or ".join(readers(option.field))
            raise UsageError(
                f"{option.flag}={value} ({option.variable}) is {who}'s, and the launcher is {launcher.name} "
                f"({reason}): leave it out, or pass --launcher {who}"
            )


def _as_started(job: Job, settings: Settings, typed: str) -> _Found | None:
    """The launcher for ranks that the platform has started; None where ranks are to be started.

    Raises:
        LauncherError: there is a process per rank already, and each is asked to start ranks.
    """
    started = job.started
    if started is None:
        return None
    asks = settings.launcher
    takes = asks == "auto" or find_launcher(asks).takes_started
    if takes and settings.slots in (None, started.local_size):
        launcher = typed or (FOR_STARTED if asks == "auto" else asks)
        counted = plural(started.local_size, "process")
        return _Found(launcher, f"the platform has started {counted} on this host, one per rank")
    if started.local_size == 1:
        return None
    asked = f"--slots {settings.slots}" if takes else f"--launcher {asks}"
    raise LauncherError(
        f"{asked}: the platform has started {started.local_size} processes on this host, one per rank, and each "
        "would start ranks of its own: leave the option out, or let the platform start one process per host "
        f"({platforms.load(job.platform).once_per_host})"
    )


def slots_of(
    host: str, launcher: Launcher, job: Job, settings: Settings, capacity: int, environ: Mapping[str, str] = {}
) -> int:
    """How many ranks ``host`` runs under ``launcher``; ``capacity`` is how many it can take."""
    if launcher.slots is not None:
        return launcher.slots(host, job, settings, environ)
    if not launcher.once:
        return capacity
    return 1 if launcher.starts == "host" or host == job.leader else 0


def _launcher(
    job: Job, settings: Settings, capacity: int, has: Callable[[str], bool], local: bool, python: str
) -> _Found:
    if settings.launcher != "auto":
        return _Found(settings.launcher, f"--launcher {settings.launcher} was given")
    kind = job.distribution.kind
    if kind != "none":
        return _for_kind(kind, has)
    name, flag = asked_by_option(settings)
    if name:
        return _Found(name, f"{flag} was given")
    if not local:
        return _Found(ON_ITS_OWN, "the job names no distribution: the program runs once per host")
    return _for_typed_program(len(job.group_hosts), capacity, has, python)


def _for_kind(kind: str, has: Callable[[str], bool]) -> _Found:
    """The first choice for a kind of distribution whose needs are met; the very first where none's are."""
    candidates = asked_by(kind)
    if not candidates:
        raise LauncherError(
            f"the job's distribution is {kind}, for which this release has no launcher: pass --launcher "
            "(or set MUSTER_LAUNCHER) to start the program with another one"
        )
    name, asked = next((each for each in candidates if not each[1].needs or has(each[1].needs)), candidates[0])
    return _Found(name, asked.reason)


def _for_typed_program(hosts: int, capacity: int, has: Callable[[str], bool], python: str) -> _Found:
    if hosts == 1 and capacity == 1:
        return _Found(ON_ITS_OWN, "one slot on one host")
    world = f"{plural(hosts, 'host')} with {plural(capacity, 'slot')} each" if hosts > 1 else plural(capacity, "slot")
    if not has(find_launcher(FOR_SLOTS).needs):
        others = ", --launcher ranks or --launcher tensorflow" if has("tensorflow") else " or --launcher ranks"
        several = f"{world} make a world of several ranks"
        return _Found(
            FOR_SLOTS,
            several,
            f"{several}, but the program's Python, {python}, has no module torch "
            f"to start it with torchrun: install torch, or pass --launcher script (once per host){others}",
        )
    return _Found(FOR_SLOTS, f"{world}, and the program's Python has torch")


def plural(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}{'es' if noun.endswith('s') else 's'}"
