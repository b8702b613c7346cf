"""The environment of one process of a plan."""

from __future__ import annotations

from typing import Callable, Mapping

from musterpoint.base.settings import OUTER, SOCKET_TOKEN
from musterpoint.core.fabric.setting import SEARCH_PATHS
from musterpoint.core.launch.plan import LaunchPlan, ProcessPlan
from musterpoint.core.processes.control_socket import ControlSocket
from musterpoint.core.supervise.handover import PLANNED
from musterpoint.embedded.programs.registry import Program


def planned_environment(
    plan: LaunchPlan,
    process: ProcessPlan,
    environ: Mapping[str, str],
    control_socket: ControlSocket,
    path: Callable[[Program], str],
) -> dict[str, str]:
    """``environ`` with the settings of ``plan`` and ``process``; ``path`` gives the file of a program of ours."""
    environment = {name: value for name, value in environ.items() if name not in plan.unset}
    for setting in (*plan.environment, *process.environment):
        environment[setting.name] = path(setting.ours) if setting.ours else setting.value
    environment[OUTER] = control_socket.address
    environment[SOCKET_TOKEN] = control_socket.token
    environment[PLANNED] = ",".join(setting.name for setting in plan.environment if setting.name not in SEARCH_PATHS)
    return environment


def add_for_launcher(environment: dict[str, str], plan: LaunchPlan, session: int, stub: str, temporary: str) -> None:
    """Adds what a launcher needs to start ranks through ``stub``; the stub restores for ranks what is changed here.

    ``temporary``: a directory for its temporary files; empty: its default.
    """
    environment["MUSTER_STUB"] = stub
    environment["MUSTER_SOCKET"] = environment[OUTER]
    environment["MUSTER_SESSION_NUMBER"] = str(session)
    environment["MUSTER_USER_CWD"] = plan.user_cwd
    environment["MUSTER_USER_PYTHONPATH"] = plan.user_pythonpath
    environment.pop("PYTHONPATH", None)
    if plan.local_rank_at >= 0:
        environment["MUSTER_LOCAL_RANK_AT"] = f"{plan.local_rank_at}{plan.local_rank_flag}"
    if plan.cpu_sets:
        environment["MUSTER_CPUS"] = ";".join(cpus.cpus for cpus in plan.cpu_sets)
    if plan.expands:
        environment["MUSTER_EXPAND"] = "1"
    if temporary:
        environment["MUSTER_USER_TMPDIR"] = environment.get("TMPDIR", "")
        environment["TMPDIR"] = temporary
