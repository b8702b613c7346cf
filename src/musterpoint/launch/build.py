"""A job, a roster and this host's devices in; this host's launch plan out. Pure."""

from __future__ import annotations

from typing import Callable, Iterable, Mapping

from musterpoint.code.workspace import Workspace
from musterpoint.fabric.devices import Devices
from musterpoint.fabric.mpi import Mpi
from musterpoint.fabric.setting import EnvSetting
from musterpoint.job.model import Job
from musterpoint.launch.choose import ONE_PER_HOST, Choice, capacity_of
from musterpoint.launch.inputs import LaunchInputs, common_environment
from musterpoint.launch.plan import LaunchPlan
from musterpoint.rollcall.roster import Roster
from musterpoint.settings import Settings
from musterpoint.stop_budget import grace


def _script(inputs: LaunchInputs) -> LaunchPlan:
    from musterpoint.launch.script import plan_script

    return plan_script(inputs)


def _torchrun(inputs: LaunchInputs) -> LaunchPlan:
    from musterpoint.launch.torchrun import plan_torchrun

    return plan_torchrun(inputs)


def _ranks(inputs: LaunchInputs) -> LaunchPlan:
    from musterpoint.launch.ranks import plan_ranks

    return plan_ranks(inputs)


def _mpi(inputs: LaunchInputs) -> LaunchPlan:
    from musterpoint.launch.mpi.plan import plan_mpi

    return plan_mpi(inputs)


def _deepspeed(inputs: LaunchInputs) -> LaunchPlan:
    from musterpoint.launch.deepspeed import plan_deepspeed

    return plan_deepspeed(inputs)


def _tensorflow(inputs: LaunchInputs) -> LaunchPlan:
    from musterpoint.launch.tensorflow.workers import plan_tensorflow

    return plan_tensorflow(inputs)


def _parameter_server(inputs: LaunchInputs) -> LaunchPlan:
    from musterpoint.launch.tensorflow.parameter_server import plan_parameter_server

    return plan_parameter_server(inputs)


LAUNCHERS: dict[str, Callable[[LaunchInputs], LaunchPlan]] = {
    "script": _script,
    "torchrun": _torchrun,
    "ranks": _ranks,
    "mpi": _mpi,
    "deepspeed": _deepspeed,
    "tensorflow": _tensorflow,
    "parameter-server": _parameter_server,
}
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
    modules: frozenset[str] = frozenset(),
    mpi: Mpi | None = None,
) -> LaunchPlan:
    """What to start on the host ``roster.me``.

    ``exports`` are the platform's variables for scripts, ``network`` the fabric's settings; neither replaces a
    variable of ``environ``; ``modules`` and ``mpi`` are what the user's Python and this host have. A host outside the
    distribution group runs the program as ``script``.
    """
    launcher = choice.launcher if roster.seat.grouped else "script"
    once = launcher in ONE_PER_HOST
    # a program started once per host may start its own ranks
    room = capacity_of(job, settings, devices) if once else roster.seat.slots
    time_to_stop = grace(job.grace, settings.stop_grace)
    common = common_environment(exports, devices, 0 if once else room, network, environ, time_to_stop)
    inputs = LaunchInputs(job, workspace, roster, devices, settings, environ, common, room, modules, mpi)
    return LAUNCHERS[launcher](inputs)
