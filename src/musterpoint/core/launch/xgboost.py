"""XGBoost under ``ranks``: its tracker on the leader, and the variables by which a rank's communicator finds it.

Names are those of ``xgboost.collective.init`` in upper case (XGBoost 3.2, ``python-package/xgboost/collective.py``),
which dmlc-core's launchers and Kubeflow's XGBoost runtime set as well. The communicator reads none of them by itself.
"""

from __future__ import annotations

from musterpoint.base.records import NamedTuple
from musterpoint.core.fabric.setting import EnvSetting
from musterpoint.core.launch.inputs import LaunchInputs
from musterpoint.core.launch.launch_plan import Argument, ProcessPlan, program_of_ours

URI = "DMLC_TRACKER_URI"


class Tracker(NamedTuple):
    """What XGBoost adds to one host's plan.

    environment: variables of every rank.
    identities: variables of each rank, slot by slot.
    services: the tracker, on the leader.
    """

    environment: tuple[EnvSetting, ...] = ()
    identities: tuple[tuple[EnvSetting, ...], ...] = ()
    services: tuple[ProcessPlan, ...] = ()


def plan_tracker(inputs: LaunchInputs) -> Tracker:
    """What XGBoost adds to the plan.

    Nothing where the program's Python has no XGBoost, there is one rank, or DMLC_TRACKER_URI says that a tracker is
    there already.
    """
    roster = inputs.roster
    if "xgboost" not in inputs.modules or roster.world_size == 1 or URI in inputs.environ:
        return Tracker()
    address, port, ranks = inputs.master_address, str(inputs.port("xgboost")), str(roster.world_size)
    digits = len(str(roster.world_size - 1))
    tracker = ProcessPlan(
        "service",
        "XGBoost's tracker",
        (
            Argument(inputs.workspace.interpreter, "the program's Python, which has XGBoost"),
            program_of_ours("xgboost_tracker", "runs the tracker in which XGBoost's ranks find each other"),
            Argument(address, "where it listens"),
            Argument(port, "its port, free on this host"),
            Argument(ranks, "how many ranks it waits for"),
        ),
        cwd=inputs.workspace.cwd,
        optional=True,
    )
    return Tracker(
        environment=(
            EnvSetting(URI, address, "the leader, which runs XGBoost's tracker"),
            EnvSetting("DMLC_TRACKER_PORT", port, "free on the leader"),
            EnvSetting("DMLC_NUM_WORKER", ranks, "ranks in all"),
        ),
        identities=tuple(
            (_task_id(roster.first_rank + local_rank, digits),) for local_rank in range(roster.seat.slots)
        ),
        services=(tracker,) if roster.node_rank == 0 else (),
    )


def _task_id(rank: int, digits: int) -> EnvSetting:
    return EnvSetting("DMLC_TASK_ID", f"{rank:0{digits}}", "global rank; the tracker sorts by this text")
