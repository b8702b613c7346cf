"""The environment of one process of a plan."""

from __future__ import annotations

from typing import Callable, Mapping

from musterpoint.fabric.setting import SEARCH_PATHS
from musterpoint.launch.plan import LaunchPlan, ProcessPlan
from musterpoint.settings import SOCKET_TOKEN
from musterpoint.supervise.handover import OUTER, PLANNED


def planned_environment(
    plan: LaunchPlan, process: ProcessPlan, environ: Mapping[str, str], desk: str, token: str,
    path: Callable[[str], str],
) -> dict[str, str]:  # fmt: skip
    """What ``plan`` says on top of ``environ``.

    ``desk`` is the control socket's address, ``token`` what it wants to be shown; ``path`` says where a program of ours
    lies.
    """
    environment = {name: value for name, value in environ.items() if name not in plan.unset}
    for setting in (*plan.environment, *process.environment):
        environment[setting.name] = path(setting.ours) if setting.ours else setting.value
    environment[OUTER] = desk
    environment[SOCKET_TOKEN] = token
    environment[PLANNED] = ",".join(setting.name for setting in plan.environment if setting.name not in SEARCH_PATHS)
    return environment


def add_for_launcher(
    environment: dict[str, str], plan: LaunchPlan, session: int, desk: str, stub: str, scratch: str
) -> None:
    """What a launcher needs to start ranks through the stub at ``stub``, which gives them back what is taken here."""
    environment["MUSTER_STUB"] = stub
    environment["MUSTER_SOCKET"] = desk
    environment["MUSTER_SESSION_NUMBER"] = str(session)
    environment["MUSTER_USER_CWD"] = plan.user_cwd
    environment["MUSTER_USER_PYTHONPATH"] = plan.user_pythonpath
    environment.pop("PYTHONPATH", None)
    if plan.local_rank_at >= 0:
        environment["MUSTER_LOCAL_RANK_AT"] = str(plan.local_rank_at)
    if scratch:
        environment["MUSTER_USER_TMPDIR"] = environment.get("TMPDIR", "")
        environment["TMPDIR"] = scratch
