"""What a launcher plans from."""

import os
from typing import Mapping, NamedTuple

import musterpoint
from musterpoint.code.workspace import Workspace
from musterpoint.fabric.devices import Devices
from musterpoint.fabric.mpi import Mpi
from musterpoint.fabric.setting import EnvSetting
from musterpoint.job.model import Job
from musterpoint.launch.environment import unless_set
from musterpoint.rollcall.roster import Roster
from musterpoint.settings import Settings

LOOPBACK = "127.0.0.1"
_PACKAGE = os.path.dirname(musterpoint.__file__).replace("/proc/self/", f"/proc/{os.getpid()}/")
STANDINS = os.path.join(_PACKAGE, "standins")
"""Packages that scripts import on SageMaker's images, where musterpoint took their place; of the one-file launcher a
folder in its archive."""


class Site(NamedTuple):
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
