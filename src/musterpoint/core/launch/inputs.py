"""The input of a launcher's plan, and what the plans of all launchers have in common."""

import os
from typing import TYPE_CHECKING, Mapping

import musterpoint
from musterpoint.base.records import NamedTuple
from musterpoint.base.settings import ATTEMPT, Settings
from musterpoint.base.stop_budget import rank_grace
from musterpoint.core.code.workspace import Workspace
from musterpoint.core.fabric.devices import Devices
from musterpoint.core.fabric.setting import CpuSet, EnvSetting, unless_set
from musterpoint.core.job import platforms
from musterpoint.core.job.model import Job, StartedRank
from musterpoint.core.job.platform import Platform, StartedBy
from musterpoint.core.launch.launch_plan import LaunchPlan, ProcessPlan
from musterpoint.core.launch.launcher import Launcher
from musterpoint.core.launch.smdistributed import TOKEN, token, wanted
from musterpoint.core.rollcall.roster import Roster

if TYPE_CHECKING:
    from musterpoint.core.fabric.ssh import Ssh

LOOPBACK = "127.0.0.1"
GLOO_INTERFACE = "GLOO_SOCKET_IFNAME"
_PACKAGE = os.path.dirname(musterpoint.__file__).replace("/proc/self/", f"/proc/{os.getpid()}/")
STANDINS = os.path.join(_PACKAGE, "embedded", "standins")
"""The folder with packages that stand in for AWS's own, which scripts import; for the one-file launcher it is in the
archive."""
SMDISTRIBUTED = os.path.join(os.path.dirname(_PACKAGE), "musterpoint_smdistributed", "startup")
"""The folder by which Python finds musterpoint's ``smdistributed``."""
STARTUP = os.path.join(_PACKAGE, "embedded", "startup", "path")
"""The folder by which Python finds our tasks for its start (:mod:`musterpoint.embedded.startup`)."""
TASKS = "MUSTER_STARTUP"
"""The variable that names the tasks."""


class LaunchInputs(NamedTuple):
    """All that the plan of one host depends on.

    launcher: what starts the group's ranks.
    job: what the platform asked for.
    workspace: the user's program on this host.
    roster: all hosts, and which one this is.
    devices: what this host has.
    settings: the options.
    environ: the variables this process was started with; none of them is replaced without a reason.
    exports: the platform's variables for scripts, by name and value.
    network: the fabric's settings for this host.
    modules: those of the launcher's that the user's interpreter has.
    known: what else the launcher has to know of this host: the answer of its ``survey``.
    cpu_sets: the processors of each slot; empty: the system's choice.
    ssh: OpenSSH on this host, where the job has ssh between its hosts.
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
    known: object = None
    cpu_sets: tuple[CpuSet, ...] = ()
    ssh: "Ssh | None" = None

    @property
    def hosts(self) -> int:
        """Hosts in the distribution group."""
        return len(self.roster.group)

    @property
    def platform(self) -> Platform:
        """What is special about the job's platform."""
        return platforms.load(self.job.platform)

    @property
    def started(self) -> StartedRank | None:
        """The rank that the platform has started this process as, where it runs as such; None where we start ranks."""
        started = self.job.started
        runs = started is not None and self.launcher.takes_started and started.local_size == self.roster.seat.slots
        return started if runs else None

    @property
    def master_address(self) -> str:
        """The address of rank 0's host; the loopback where the group has one host."""
        return self.roster.master_address if self.hosts > 1 else LOOPBACK

    @property
    def own_address(self) -> str:
        """This host's address for the other hosts; the loopback where the group has one host."""
        return self.roster.seat.address if self.hosts > 1 else LOOPBACK

    @property
    def gloo_interface(self) -> str:
        """The ranks' GLOO_SOCKET_IFNAME: the user's, else the interface toward the leader; may be empty."""
        network = {setting.name: setting.value for setting in self.network}
        return self.environ.get(GLOO_INTERFACE) or network.get(GLOO_INTERFACE, "")

    @property
    def pythonpath(self) -> str:
        """The user's PYTHONPATH, with the code's directories before it and our stand-ins after it.

        Folders with a ``sitecustomize`` of ours come before all: it has to run when Python starts.
        """
        own = self.environ.get("PYTHONPATH", "")
        folders = own.split(os.pathsep)
        startups = [SMDISTRIBUTED] if wanted(self.job, self.environ) else []
        startups.append(STARTUP)
        first = [folder for folder in startups if folder not in folders]
        last = [STANDINS] if self.platform.standins and STANDINS not in folders else []
        return os.pathsep.join((*first, *self.workspace.pythonpath, *([own] if own else []), *last))

    @property
    def _tasks(self) -> tuple[EnvSetting, ...]:
        """What runs in the user's Python when a rank starts, as a variable."""
        names = [*self.launcher.startup]
        names += ["stack_dumps", "flight_recorder"] if self.settings.stall_timeout is not None else []
        reason = "what musterpoint does when a rank's Python starts"
        return (EnvSetting(TASKS, ",".join((*names, "exceptions")), reason),)

    @property
    def _token(self) -> tuple[EnvSetting, ...]:
        """What ranks of smdistributed know each other by."""
        value = token(self.roster, self.settings) if wanted(self.job, self.environ) else ""
        return (EnvSetting(TOKEN, value, "by which ranks of smdistributed know each other"),) if value else ()

    def environment(self, *own: EnvSetting) -> tuple[EnvSetting, ...]:
        """The launcher's ``own`` settings and those of every launcher, without variables that the user set."""
        return unless_set((*own, *self._common()), self.environ)

    def program_environment(self, *own: EnvSetting) -> tuple[EnvSetting, ...]:
        """:meth:`environment` for a program that no stub starts: with its PYTHONPATH."""
        settings = self.environment(*own)
        hidden = "PYTHONPATH" in self.launcher.hidden(self.environ)
        if not self.pythonpath or (self.pythonpath == self.environ.get("PYTHONPATH", "") and not hidden):
            return settings
        reason = "the program's code, in front of the PYTHONPATH it was given"
        return (*settings, EnvSetting("PYTHONPATH", self.pythonpath, reason))

    def port(self, module: str) -> int:
        """The leader's port for the server of ``module``, one of the launcher's ``servers``.

        It was offered in the roll call; where none asked for any, it follows the master port.
        """
        servers = [name for name in self.launcher.servers if name in self.modules or name == module]
        offered, at = self.roster.group[0].ports, servers.index(module)
        return offered[at] if at < len(offered) else self.roster.master_port + 1 + at

    def plan(
        self,
        processes: tuple[ProcessPlan, ...],
        environment: tuple[EnvSetting, ...],
        unset: tuple[str, ...] = (),
        notes: tuple[str, ...] = (),
    ) -> LaunchPlan:
        """This host's plan, with one rank for each slot, numbered as in the roster.

        A launcher with other ranks replaces those fields.
        """
        return LaunchPlan(
            launcher=self.launcher.name,
            host=self.roster.me,
            processes=processes,
            environment=environment,
            local_ranks=self.roster.seat.slots,
            world_size=self.roster.world_size,
            first_rank=self.roster.first_rank,
            user_cwd=self.workspace.cwd,
            user_pythonpath=self.pythonpath,
            unset=tuple(dict.fromkeys((*self.launcher.hidden(self.environ), *unset, *self._misleading()))),
            independent=self.launcher.independent,
            notes=notes,
            cpu_sets=self.cpu_sets,
        )

    def _misleading(self) -> tuple[str, ...]:
        """Variables with which the platform numbers processes that aren't this host's ranks."""
        numbers = self.platform.numbers
        if numbers is None or self.started is not None:
            return ()
        started_by: StartedBy = "once" if self.launcher.once else "ranks" if self.launcher.takes_started else "launcher"
        return numbers.stale(self.environ, started_by)

    def _common(self) -> tuple[EnvSetting, ...]:
        """The settings that every launcher adds."""
        # a program that runs once on a host has the host to itself
        ranks = 0 if self.launcher.once else self.roster.seat.slots
        expected = self.platform.exports_reason
        time_to_stop = -(-rank_grace(self.job.grace, self.settings.stop_grace) // 1)
        return (
            EnvSetting("PYTHONUNBUFFERED", "1", "the last lines before a crash reach the log"),
            EnvSetting("PYTHONFAULTHANDLER", "1", "a rank that dies by a signal says where it was"),
            *((EnvSetting("OMP_NUM_THREADS", *_threads(self.devices, ranks)),) if ranks else ()),
            *((_ON_CPUS,) if ranks and self._meets_on_cpus() else ()),
            # a torchrun (or accelerate) that the program itself starts would kill its ranks after 30 s
            EnvSetting(
                "TORCH_ELASTIC_SHUTDOWN_TIMEOUT",
                str(int(time_to_stop)),
                "seconds that a torchrun which the program starts itself gives its ranks to stop",
            ),
            EnvSetting(ATTEMPT, str(self.roster.attempt), "how often the ranks were started again"),
            EnvSetting(
                "TORCHELASTIC_RESTART_COUNT",
                str(self.roster.attempt),
                "how often the ranks were started again, by torchrun's name",
            ),
            *self._tasks,
            *self._token,
            *self.network,
            *(EnvSetting(name, value, expected) for name, value in self.exports),
        )

    def _meets_on_cpus(self) -> bool:
        """Whether accelerate has to be told that several ranks without accelerators are one world.

        With the variable set it ignores DeepSpeed, and Hugging Face's Trainer the library of a smdistributed job.
        """
        words = (*self.job.arguments, *(name for name in ("ACCELERATE_USE_DEEPSPEED",) if name in self.environ))
        return (
            self.devices.cpu_only
            and self.roster.world_size > 1
            and _ON_CPUS.name not in self.launcher.leaves_out
            and not self.job.distribution.kind.startswith("smdistributed")
            and not any("deepspeed" in word.lower() for word in words)
        )


_ON_CPUS = EnvSetting(
    "ACCELERATE_USE_CPU",
    "true",
    "no accelerator here: without it accelerate and Hugging Face's Trainer take each rank for a world of one",
)


def _threads(devices: Devices, ranks: int) -> tuple[str, str]:
    """One thread per core: two on one core take turns."""
    count = devices.cores or devices.cpus
    what = "processor" if count == devices.cpus else "core"
    slots = f"{ranks} slot{'s' if ranks != 1 else ''}"
    return str(max(1, count // ranks)), f"{count} {what}{'s' if count != 1 else ''} of this container over {slots}"


def capacity_of(job: Job, settings: Settings, devices: Devices) -> int:
    """How many ranks this host can take: by the settings, else the job, another toolkit's count, or the devices."""
    return settings.slots or job.distribution.processes_per_host or job.counted.slots or devices.slots
