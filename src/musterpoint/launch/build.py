"""A job, a roster and this host's devices in; this host's launch plan out. Pure."""

from __future__ import annotations

from musterpoint.launch.inputs import LaunchInputs
from musterpoint.launch.plan import LaunchPlan


def build_plan(inputs: LaunchInputs) -> LaunchPlan:
    """What to start on the host ``inputs.roster.me``, which runs the program as ``script`` if it is outside the group.

    A launcher's module is imported when it is the one.

    Raises:
        LauncherError: the launcher can't start this job here.
        UsageError: an option or a variable of the launcher's is wrong.
    """
    if not inputs.roster.seat.grouped:
        inputs = inputs._replace(launcher="script")
    launcher = inputs.launcher
    if launcher == "script":
        from musterpoint.launch.script import plan_script as plan
    elif launcher == "torchrun":
        from musterpoint.launch.torchrun import plan_torchrun as plan
    elif launcher == "ranks":
        from musterpoint.launch.ranks import plan_ranks as plan
    elif launcher == "mpi":
        from musterpoint.launch.mpi.plan import plan_mpi as plan
    elif launcher == "deepspeed":
        from musterpoint.launch.deepspeed import plan_deepspeed as plan
    elif launcher == "tensorflow":
        from musterpoint.launch.tensorflow.workers import plan_tensorflow as plan
    else:
        from musterpoint.launch.tensorflow.parameter_server import plan_parameter_server as plan
    return plan(inputs)
