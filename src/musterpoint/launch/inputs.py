"""What a launcher plans from, and what the plans of all launchers have in common."""

import os
from typing import Mapping, NamedTuple

import musterpoint
from musterpoint.code.workspace import Workspace
from musterpoint.fabric.devices import Devices
from musterpoint.fabric.mpi import Mpi
from musterpoint.fabric.setting import EnvSetting, unless_set
from musterpoint.job.model import Job
from musterpoint.launch.plan import ONE_PER_HOST, LaunchPlan, ProcessPlan
from musterpoint.launch.smdistributed import wanted
from musterpoint.rollcall.roster import Roster
from musterpoint.settings import Launcher, Settings
from musterpoint.stop_budget import grace

LOOPBACK = "127.0.0.1"
GLOO_INTERFACE = "GLOO_SOCKET_IFNAME"
_PACKAGE = os.path.dirname(musterpoint.__file__).replace("/proc/self/", f"/proc/{os.getpid()}/")
STANDINS = os.path.join(_PACKAGE, "standins")
"""Packages that scripts import on SageMaker's images, where musterpoint took their place; of the one-file launcher a
folder in its archive."""
SMDISTRIBUTED = os.path.join(_PACKAGE, "smdistributed", "startup")
"""What makes Python find musterpoint's ``smdistributed``, likewise."""


class LaunchInputs(NamedTuple):
    """One host of one job, complete.

    launcher: what starts the group's ranks.
    job: what was asked for.
    workspace: the user's program on this host.
    roster: all hosts, and which one this is.
    devices: what this host has.
    settings: the options.
    environ: the variables this process was started with; none of them is replaced without a reason.
    exports: the platform's variables for scripts, by name and value.
    network: the fabric's settings for this host.
    modules: those of :data:`musterpoint.launch.choose.WANTED` that the user's interpreter has.
    mpi: this host's MPI, for launcher ``mpi``.
    """

    launcher: Launcher
    job: Job
    workspace: Workspace
    roster: Roster
    devices: Devices
    settings: Settings
    environ: Mapping[str, str]
    exports: tuple[tuple[str, str], ...] = ()
    network: tuple[EnvSetting, ...] = ()
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
        """This host's address, as the others reach it; the loopback where nobody else takes part."""
        return self.roster.seat.address if self.hosts > 1 else LOOPBACK

    @property
    def gloo_interface(self) -> str:
        """GLOO_SOCKET_IFNAME as the ranks get it: the user's, else the interface towards the leader; may be empty."""
        found = {setting.name: setting.value for setting in self.network}
        return self.environ.get(GLOO_INTERFACE) or found.get(GLOO_INTERFACE, "")

    @property
    def pythonpath(self) -> str:
        """The user's PYTHONPATH with the code's directories in front and our stand-ins behind.

        Before all of them is what has to run when Python starts.
        """
        own = self.environ.get("PYTHONPATH", "")
        there = own.split(os.pathsep)
        first = [SMDISTRIBUTED] if wanted(self.job, self.environ) and SMDISTRIBUTED not in there else []
        last = [STANDINS] if self.job.platform == "sagemaker" and STANDINS not in there else []
        return os.pathsep.join((*first, *self.workspace.pythonpath, *([own] if own else []), *last))

    def environment(self, *own: EnvSetting) -> tuple[EnvSetting, ...]:
        """The launcher's ``own`` settings and those that every launcher adds, without what the user set."""
        return unless_set((*own, *self._common()), self.environ)

    def program_environment(self, *own: EnvSetting) -> tuple[EnvSetting, ...]:
        """:meth:`environment` for a program that no stub starts: with its PYTHONPATH."""
        settings = self.environment(*own)
        if self.pythonpath == self.environ.get("PYTHONPATH", ""):
            return settings
        reason = "the program's code, in front of the PYTHONPATH it was given"
        return (*settings, EnvSetting("PYTHONPATH", self.pythonpath, reason))

    def plan(
        self, processes: tuple[ProcessPlan, ...], environment: tuple[EnvSetting, ...], unset: tuple[str, ...] = (),
        notes: tuple[str, ...] = (),
    ) -> LaunchPlan:  # fmt: skip
        """This host's plan, with its ranks as the roster numbers them: one for each slot.

        A launcher that counts otherwise replaces those fields.
        """
        return LaunchPlan(
            launcher=self.launcher,
            host=self.roster.me,
            processes=processes,
            environment=environment,
            local_ranks=self.roster.seat.slots,
            world_size=self.roster.world_size,
            first_rank=self.roster.first_rank,
            user_cwd=self.workspace.cwd,
            user_pythonpath=self.pythonpath,
            unset=unset,
            notes=notes,
        )

    def _common(self) -> tuple[EnvSetting, ...]:
        """What every launcher adds."""
        # a program that runs once on a host has the host to itself
        ranks = 0 if self.launcher in ONE_PER_HOST else self.roster.seat.slots
        time_to_stop = -(-grace(self.job.grace, self.settings.stop_grace) // 1)
        return (
            EnvSetting("PYTHONUNBUFFERED", "1", "the last lines before a crash reach the log"),
            EnvSetting("PYTHONFAULTHANDLER", "1", "a rank that dies by a signal says where it was"),
            *((EnvSetting("OMP_NUM_THREADS", *_threads(self.devices.cpus, ranks)),) if ranks else ()),
            # a torchrun (or accelerate) that the program itself starts would kill its ranks after 30 s
            EnvSetting("TORCH_ELASTIC_SHUTDOWN_TIMEOUT", str(int(time_to_stop)), "for ranks of a torchrun below"),
            *self.network,
            *(EnvSetting(name, value, "what scripts expect on this platform") for name, value in self.exports),
        )


def _threads(cpus: int, ranks: int) -> tuple[str, str]:
    threads = max(1, cpus // ranks)
    processors = f"{cpus} processor{'s' if cpus != 1 else ''}"
    slots = f"{ranks} slot{'s' if ranks != 1 else ''}"
    return str(threads), f"{processors} of this container over {slots}"
