"""What a launcher plans from."""

import os
from typing import Iterable, Mapping, NamedTuple

import musterpoint
from musterpoint.code.workspace import Workspace
from musterpoint.fabric.devices import Devices
from musterpoint.fabric.mpi import Mpi
from musterpoint.fabric.setting import SEARCH_PATHS, EnvSetting
from musterpoint.job.model import Job
from musterpoint.rollcall.roster import Roster
from musterpoint.settings import Settings

LOOPBACK = "127.0.0.1"
_PACKAGE = os.path.dirname(musterpoint.__file__).replace("/proc/self/", f"/proc/{os.getpid()}/")
STANDINS = os.path.join(_PACKAGE, "standins")
"""Packages that scripts import on SageMaker's images, where musterpoint took their place; of the one-file launcher a
folder in its archive."""


class LaunchInputs(NamedTuple):
    """One host of one job, complete. ``environment`` is what every launcher adds, ``environ`` what was there.

    ``room`` is the number of ranks that fit on this host, whether or not the launcher starts as many. ``modules`` are
    those of :data:`musterpoint.launch.choose.WANTED` that the user's interpreter has; ``mpi`` is this host's MPI.
    """

    job: Job
    workspace: Workspace
    roster: Roster
    devices: Devices
    settings: Settings
    environ: Mapping[str, str]
    environment: tuple[EnvSetting, ...]
    room: int
    modules: frozenset[str] = frozenset()
    mpi: Mpi | None = None

    @property
    def hosts(self) -> int:
        """Hosts in the distribution group."""
        return len(self.roster.group)

    @property
    def master_address(self) -> str:
        """The address ranks meet at; the loopback where nobody else takes part."""
        return self.roster.master_address if self.hosts > 1 else LOOPBACK

    @property
    def own_address(self) -> str:
        return self.roster.seat.address if self.hosts > 1 else LOOPBACK

    @property
    def pythonpath(self) -> str:
        """The user's PYTHONPATH with the code's directories in front and our stand-ins behind."""
        own = self.environ.get("PYTHONPATH", "")
        standins = self.job.platform == "sagemaker" and STANDINS not in own.split(os.pathsep)
        return os.pathsep.join((*self.workspace.pythonpath, *([own] if own else []), *([STANDINS] if standins else [])))

    def environment_of(self, *own: EnvSetting) -> tuple[EnvSetting, ...]:
        """What a program started without a stub gets: the launcher's ``own`` settings, the common ones, PYTHONPATH."""
        settings = unless_set((*own, *self.environment), self.environ)
        if self.pythonpath == self.environ.get("PYTHONPATH", ""):
            return settings
        reason = "the program's code, in front of the PYTHONPATH it was given"
        return (*settings, EnvSetting("PYTHONPATH", self.pythonpath, reason))


def common_environment(
    exports: Iterable[tuple[str, str]],
    devices: Devices,
    ranks: int,
    network: Iterable[EnvSetting],
    environ: Mapping[str, str],
    grace: float,
) -> tuple[EnvSetting, ...]:
    """``exports`` are the platform's variables for scripts; ``ranks`` is how many a launcher starts on this host.

    0 of them: the program runs once there, and has the host to itself. ``grace`` is how many seconds ranks have to
    stop; a torchrun (or accelerate) that the program itself starts would kill its own after 30 s.
    """
    return unless_set(
        (
            EnvSetting("PYTHONUNBUFFERED", "1", "the last lines before a crash reach the log"),
            EnvSetting("PYTHONFAULTHANDLER", "1", "a rank that dies by a signal says where it was"),
            *((EnvSetting("OMP_NUM_THREADS", *_threads(devices.cpus, ranks)),) if ranks else ()),
            EnvSetting("TORCH_ELASTIC_SHUTDOWN_TIMEOUT", str(int(-(-grace // 1))), "for ranks of a torchrun below"),
            *network,
            *(EnvSetting(name, value, "what scripts expect on this platform") for name, value in exports),
        ),
        environ,
    )


def unless_set(settings: Iterable[EnvSetting], environ: Mapping[str, str]) -> tuple[EnvSetting, ...]:
    """``settings`` without the variables of ``environ``; of several settings of one variable, the first.

    A search path stays: the user's own is its end.
    """
    kept: dict[str, EnvSetting] = {}
    for setting in settings:
        if setting.name not in environ or setting.name in SEARCH_PATHS:
            kept.setdefault(setting.name, setting)
    return tuple(kept.values())


def _threads(cpus: int, ranks: int) -> tuple[str, str]:
    threads = max(1, cpus // ranks)
    processors = f"{cpus} processor{'s' if cpus != 1 else ''}"
    slots = f"{ranks} slot{'s' if ranks != 1 else ''}"
    return str(threads), f"{processors} of this container over {slots}"
