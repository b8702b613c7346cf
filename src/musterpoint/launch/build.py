"""A job, a roster and this host's devices in; this host's launch plan out. Pure."""

from __future__ import annotations

from typing import Callable, Iterable, Mapping

from musterpoint.code.workspace import Workspace
from musterpoint.fabric.devices import Devices
from musterpoint.fabric.setting import EnvSetting
from musterpoint.job.model import Job
from musterpoint.launch.choose import Choice, room_for_ranks
from musterpoint.launch.environment import common_environment
from musterpoint.launch.plan import LaunchPlan
from musterpoint.launch.site import Site
from musterpoint.rollcall.roster import Roster
from musterpoint.settings import Settings


def _script(site: Site) -> LaunchPlan:
    from musterpoint.launch.script import plan_script

    return plan_script(site)


def _torchrun(site: Site) -> LaunchPlan:
    from musterpoint.launch.torchrun import plan_torchrun

    return plan_torchrun(site)


def _ranks(site: Site) -> LaunchPlan:
    from musterpoint.launch.ranks import plan_ranks

    return plan_ranks(site)


LAUNCHERS: dict[str, Callable[[Site], LaunchPlan]] = {"script": _script, "torchrun": _torchrun, "ranks": _ranks}
"""A launcher's module is imported when it is the one."""


def build_plan(
    job: Job,
    workspace: Workspace,
    roster: Roster,
    devices: Devices,
    settings: Settings,
    choice: Choice,
    exports: Iterable[tuple[str, str]],
    environ: Mapping[str, str],
    network: Iterable[EnvSetting] = (),
) -> LaunchPlan:
    """What to start on the host ``roster.me``.

    ``exports`` are the platform's variables for scripts, ``network`` the fabric's settings; neither replaces a
    variable of ``environ``. A host outside the distribution group runs the program as ``script``.
    """
    launcher = choice.launcher if roster.seat.grouped else "script"
    # a program started once per host may start its own ranks
    room = room_for_ranks(job, settings, devices) if launcher == "script" else roster.seat.slots
    common = common_environment(exports, devices, room, network, environ)
    site = Site(job, workspace, roster, devices, settings, environ, common, room)
    return LAUNCHERS[launcher](site)
