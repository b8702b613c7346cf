"""Which launcher starts this job's ranks, and how many of them per host."""

from typing import Callable, NamedTuple

from musterpoint.errors import LauncherError
from musterpoint.fabric.devices import Devices
from musterpoint.job.model import Job
from musterpoint.settings import Settings

BUILT = ("script", "torchrun", "ranks")
"""The launchers of this release."""

_KINDS = {
    "torch_distributed": "the job asks for torch_distributed",
    "pytorch_ddp": "the job asks for pytorchddp, which is torchrun by another name",
}

_INSTEAD = "this release starts " + ", ".join(BUILT[:-1]) + " and " + BUILT[-1]


class Choice(NamedTuple):
    """``slots`` is the number of ranks on this host: 0 if it is outside the distribution group."""

    launcher: str
    slots: int
    reason: str


def choose(job: Job, settings: Settings, devices: Devices, has_torch: Callable[[], bool], local: bool) -> Choice:
    """The launcher and this host's slots.

    ``has_torch`` asks the user's interpreter; it is called only where torchrun may be the answer. ``local`` is true
    where the user typed the program himself (``muster launch``, ``muster local``): a job without distribution
    settings then still gets a world as large as its slots and hosts.

    Raises:
        LauncherError: the launcher asked for isn't part of this release, or torchrun is needed and torch is missing.
    """
    room = room_for_ranks(job, settings, devices)
    launcher, reason = _launcher(job, settings, room, has_torch, local)
    if launcher == "torchrun" and job.in_group and not has_torch():
        raise LauncherError(
            f"launcher torchrun ({reason}): the program's Python has no module torch; install torch for it, "
            "or pass --launcher script or --launcher ranks"
        )
    slots = 1 if launcher == "script" else room
    return Choice(launcher, slots if job.in_group else 0, reason)


def room_for_ranks(job: Job, settings: Settings, devices: Devices) -> int:
    """Ranks that fit on this host: what the settings say, else the job, else the devices."""
    return settings.slots or job.distribution.processes_per_host or devices.slots


def _launcher(job: Job, settings: Settings, room: int, has_torch: Callable[[], bool], local: bool) -> tuple[str, str]:
    if settings.launcher != "auto":
        if settings.launcher not in BUILT:
            raise LauncherError(f"--launcher {settings.launcher}: not part of this release yet; {_INSTEAD}")
        return settings.launcher, f"--launcher {settings.launcher} was given"
    kind = job.distribution.kind
    if kind in _KINDS:
        return "torchrun", _KINDS[kind]
    if kind != "none":
        raise LauncherError(
            f"the job's distribution is {kind}, whose launcher is not part of this release yet; {_INSTEAD}: "
            "pass --launcher (or set MUSTER_LAUNCHER) to start the program with one of them"
        )
    if not local:
        return "script", "the job names no distribution: the program runs once per host"
    return _for_typed_program(len(job.group_hosts), room, has_torch)


def _for_typed_program(hosts: int, room: int, has_torch: Callable[[], bool]) -> tuple[str, str]:
    if hosts == 1 and room == 1:
        return "script", "one slot on one host"
    world = f"{_count(hosts, 'host')} with {_count(room, 'slot')} each" if hosts > 1 else _count(room, "slot")
    if not has_torch():
        raise LauncherError(
            f"{world} make a world of several ranks, but the program's Python has no module torch to start it "
            "with torchrun: install torch, or pass --launcher script (once per host) or --launcher ranks"
        )
    return "torchrun", f"{world}, and the program's Python has torch"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
