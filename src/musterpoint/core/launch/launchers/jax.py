"""``jax``: ranks as under ``ranks``, and what ``jax.distributed.initialize()`` asks for when it gets no arguments.

JAX reads the coordinator's address and local devices from variables, the number of processes and a process's id from
none: those come from a cluster environment (``jax._src.clusters.ClusterEnv``). Ours is registered when JAX is imported
(:mod:`musterpoint.embedded.startup.jax_cluster`). Facts are those of JAX 0.10, ``jax/_src/distributed.py`` and
``jax/_src/clusters/``.
"""

from __future__ import annotations

from musterpoint.base.readers import bracketed
from musterpoint.core.fabric.setting import EnvSetting
from musterpoint.core.launch.identity import IDENTITY, identity
from musterpoint.core.launch.inputs import LaunchInputs
from musterpoint.core.launch.launch_plan import LaunchPlan, ProcessPlan, rank_process
from musterpoint.core.launch.launcher import Asked, Hidden, Launcher

OWN = ("JAX_COORDINATOR_ADDRESS", "JAX_NUM_PROCESSES", "JAX_PROCESS_ID", "JAX_COORDINATOR_PORT")
"""Variables of JAX's that identify a rank or its job: existing values belong to another job."""
PREEMPTION = EnvSetting(
    "JAX_ENABLE_PREEMPTION_SERVICE", "false", "its handler would swallow SIGTERM, so that a stop ends no rank"
)


def plan_jax(inputs: LaunchInputs) -> LaunchPlan:
    """This host's plan: one process per slot."""
    ranks = tuple(_process(inputs, local_rank) for local_rank in range(inputs.roster.seat.slots))
    own = {*IDENTITY, *OWN}
    common = tuple(setting for setting in inputs.program_environment(PREEMPTION) if setting.name not in own)
    return inputs.plan(ranks, common)


def _process(inputs: LaunchInputs, local_rank: int) -> ProcessPlan:
    roster = inputs.roster
    rank = roster.first_rank + local_rank
    address = f"{bracketed(inputs.master_address)}:{inputs.port('jax')}"
    settings = (
        *identity(inputs, local_rank),
        EnvSetting("JAX_COORDINATOR_ADDRESS", address, "rank 0's, on a port of its own"),
        EnvSetting("JAX_NUM_PROCESSES", str(roster.world_size), "ranks in all, for initialize()"),
        EnvSetting("JAX_PROCESS_ID", str(rank), "global rank, for initialize()"),
        *_devices(inputs, local_rank),
    )
    return rank_process(inputs.workspace, rank, settings, local_rank)


def _devices(inputs: LaunchInputs, local_rank: int) -> tuple[EnvSetting, ...]:
    """The GPUs of a slot: an equal share of this host's. Nothing where there is none, or the user chose."""
    share, rest = divmod(inputs.devices.gpus, inputs.roster.seat.slots)
    if not share or rest or "JAX_LOCAL_DEVICE_IDS" in inputs.environ:
        return ()
    ids = range(local_rank * share, (local_rank + 1) * share)
    return (EnvSetting("JAX_LOCAL_DEVICE_IDS", ",".join(map(str, ids)), "this slot's GPUs, as this host counts them"),)


LAUNCHER = Launcher(
    name="jax",
    summary="a rank per slot, with what jax.distributed.initialize() asks for",
    starts="us",
    talks_grpc=True,
    plan=plan_jax,
    asked_by={"jax": Asked("the job asks for JAX")},
    needs="jax",
    servers=("jax",),
    reads=("slots", "cpu_binding"),
    hides=(
        Hidden(
            (
                "OMPI_MCA_orte_hnp_uri",
                "OMPI_COMM_WORLD_RANK",
                "OMPI_COMM_WORLD_SIZE",
                "OMPI_COMM_WORLD_LOCAL_RANK",
                "SLURM_PROCID",
                "SLURM_LOCALID",
                "SLURM_NTASKS",
                "SLURM_STEP_NODELIST",
            ),
            "JAX would take each rank for a task of Open MPI's or Slurm's; all ranks of a host inherit the same value",
        ),
        Hidden(("JAX_COORDINATOR_PORT",), "it belongs to another job: the coordinator's port comes from the roll call"),
    ),
    startup=("jax_cluster",),
)
