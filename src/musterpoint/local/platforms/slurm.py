"""Slurm: ``srun --ntasks-per-node=1 muster launch …`` on all nodes of a job."""

from __future__ import annotations

from musterpoint.local.platforms import commands
from musterpoint.local.platforms.platform import PlayedHost


def environment(host: PlayedHost) -> dict[str, str]:
    """The variables of one task of a step, as Slurm 22.05 sets them."""
    nodes, number = len(host.job.hosts), str(len(host.job.hosts))
    names = f"node[1-{nodes}]" if nodes > 1 else "node1"
    each = f"1(x{nodes})" if nodes > 1 else "1"
    return {
        "SLURM_JOB_ID": "1",
        "SLURM_JOBID": "1",
        "SLURM_JOB_NAME": host.job.name,
        "SLURM_JOB_NODELIST": names,
        "SLURM_NODELIST": names,
        "SLURM_JOB_NUM_NODES": number,
        "SLURM_NNODES": number,
        "SLURM_NTASKS": number,
        "SLURM_NPROCS": number,
        "SLURM_NTASKS_PER_NODE": "1",
        "SLURM_TASKS_PER_NODE": each,
        "SLURM_STEP_ID": "0",
        "SLURM_STEPID": "0",
        "SLURM_STEP_NODELIST": names,
        "SLURM_STEP_NUM_NODES": number,
        "SLURM_STEP_NUM_TASKS": number,
        "SLURM_STEP_TASKS_PER_NODE": each,
        "SLURMD_NODENAME": host.name,
        "SLURM_NODEID": str(host.rank),
        "SLURM_PROCID": str(host.rank),
        "SLURM_LOCALID": "0",
        "SLURM_GTIDS": str(host.rank),
        "SLURM_SUBMIT_DIR": host.job.source_dir,
        "SLURM_CLUSTER_NAME": "local",
    }


PLAYED = commands.launching(commands.nodes, environment)
