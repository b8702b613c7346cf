"""``deepspeed``: DeepSpeed's per-node launcher on every host, as ``deepspeed --no_ssh`` would start it.

The runner in front of it (the ``deepspeed`` command) is left out: it ends with 0 when its child was killed by a signal
and leaves the ranks behind on SIGTERM. When ranks are started again, the launcher isn't
(:mod:`musterpoint.core.launch.identity`).

Facts are those of DeepSpeed 0.19.8, ``launcher/launch.py`` and ``runner.py``.
"""

from __future__ import annotations

import base64
import json

from musterpoint.core.fabric.setting import EnvSetting
from musterpoint.core.launch.identity import plan_restarted
from musterpoint.core.launch.inputs import LaunchInputs
from musterpoint.core.launch.launch_plan import Argument, LaunchPlan, ProcessPlan, stub_arguments
from musterpoint.core.launch.launcher import PYTHONPATH, Hidden, Launcher
from musterpoint.core.launch.launchers import LAUNCHERS

DEVICES = "CUDA_VISIBLE_DEVICES"
ON_CUDA_VARIABLE = ("cuda", "cpu", "hpu", "mps")
"""DeepSpeed's accelerators (``DS_ACCELERATOR``) that know a rank's devices by :data:`DEVICES`."""


def plan_deepspeed(inputs: LaunchInputs) -> LaunchPlan:
    """This host's plan: DeepSpeed's launcher; in later attempts the ranks that it would start."""
    roster, workspace = inputs.roster, inputs.workspace
    if roster.attempt and inputs.environ.get("DS_ACCELERATOR", "cuda") in ON_CUDA_VARIABLE:
        return plan_restarted(inputs, lambda rank: _of_launcher(inputs))
    launcher = ProcessPlan(
        "launcher",
        "deepspeed",
        (
            Argument(workspace.interpreter, "the program's Python"),
            Argument("-m", "DeepSpeed's launcher for one host, which its runner would start over ssh"),
            Argument("deepspeed.launcher.launch"),
            Argument(f"--world_info={_world_info(inputs)}", "every host's name and devices, one for each slot"),
            Argument(f"--node_rank={roster.node_rank}", "this host's place in the group"),
            Argument(f"--master_addr={inputs.master_address}", "where rank 0 listens"),
            Argument(f"--master_port={roster.master_port}", "free on the leader"),
            Argument("--no_python", "what follows is a whole command"),
            Argument("--no_local_rank", "where it is wanted, the stub puts --local_rank behind the program's name"),
            *stub_arguments(workspace.interpreter, workspace.argv),
        ),
    )
    own = (
        EnvSetting("NODE_RANK", str(roster.node_rank), "this host's place in the group; DeepSpeed sets no such"),
        EnvSetting("GROUP_RANK", str(roster.node_rank), "this host's place in the group, by torchrun's name"),
        EnvSetting("LOCAL_WORLD_SIZE", str(roster.seat.slots), "slots of this host; DeepSpeed says LOCAL_SIZE"),
        *_numbering(inputs),
    )
    names = {setting.name for setting in own}
    common = (setting for setting in inputs.environment() if setting.name not in names)
    return inputs.plan((launcher,), (*own, *common))


def _of_launcher(inputs: LaunchInputs) -> tuple[EnvSetting, ...]:
    """What DeepSpeed's launcher gives every rank beside its identity."""
    why = "by DeepSpeed's name"
    return (
        EnvSetting("CROSS_RANK", str(inputs.roster.node_rank), f"this host's place in the group, {why}"),
        EnvSetting("CROSS_SIZE", str(inputs.hosts), f"hosts in the group, {why}"),
        EnvSetting("LOCAL_SIZE", str(inputs.roster.seat.slots), f"slots of this host, {why}"),
        EnvSetting(DEVICES, ",".join(map(str, _devices(inputs))), "this host's devices, one for each rank"),
    )


def _world_info(inputs: LaunchInputs) -> str:
    """Hosts in rank order with their device ids, as base64 of JSON, as DeepSpeed's runner writes it."""
    world = {seat.name: list(range(seat.slots)) for seat in inputs.roster.group}
    ids = {**world, inputs.roster.me: _devices(inputs)}
    return base64.urlsafe_b64encode(json.dumps(ids).encode()).decode()


def _devices(inputs: LaunchInputs) -> list[int | str]:
    """The device ids from which the launcher makes this host's CUDA_VISIBLE_DEVICES, one for each rank.

    They are those of a value that is already set; the launcher would replace it by 0, 1, …. Where it names fewer
    devices than there are ranks, -1 fills the list: CUDA stops reading there.
    """
    slots = inputs.roster.seat.slots
    if DEVICES not in inputs.environ:
        return list(range(slots))
    words = [word.strip() for word in inputs.environ[DEVICES].split(",") if word.strip()]
    named: list[int | str] = [int(word) if word.isdecimal() else word for word in words[:slots]]
    return [*named, *([-1] * (slots - len(named)))]


def _numbering(inputs: LaunchInputs) -> tuple[EnvSetting, ...]:
    """Where the stub has to number the slots: DeepSpeed 0.19 takes rank modulo slots (ranks 1, 2 become slots 1, 0)."""
    roster = inputs.roster
    if roster.first_rank % roster.seat.slots == 0:
        return ()
    return (
        EnvSetting("MUSTER_FIRST_RANK", str(roster.first_rank), "the stub numbers this host's slots from this rank"),
    )


LAUNCHER = Launcher(
    name="deepspeed",
    summary="DeepSpeed's launcher on every host, which starts a rank per slot",
    starts="foreign",
    leads=True,
    plan=plan_deepspeed,
    instead_of=dict.fromkeys(LAUNCHERS["deepspeed"].commands, "--launcher deepspeed SCRIPT"),
    needs="deepspeed",
    reads=("slots", "cpu_binding"),
    hides=(
        PYTHONPATH,
        Hidden(
            (
                "OMPI_COMM_WORLD_LOCAL_RANK",
                "OMPI_COMM_WORLD_LOCAL_SIZE",
                "OMPI_COMM_WORLD_RANK",
                "OMPI_COMM_WORLD_SIZE",
            ),
            "of an mpirun that started us, once per host: DeepSpeed's engine refuses ranks with other values",
        ),
    ),
    leaves_out=("ACCELERATE_USE_CPU",),
    local_rank="argument",
)
