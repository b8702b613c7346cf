"""Flux: one task on every host of a job, told where the first is as ``flux hostlist`` says it."""

from __future__ import annotations

from musterpoint.local.platforms import commands
from musterpoint.local.platforms.platform import PlayedHost


def environment(host: PlayedHost) -> dict[str, str]:
    """The variables of one task."""
    number = str(len(host.job.hosts))
    return {
        "FLUX_JOB_ID": "1",
        "FLUX_JOB_NNODES": number,
        "FLUX_JOB_SIZE": number,
        "FLUX_TASK_RANK": str(host.rank),
        "FLUX_TASK_LOCAL_ID": "0",
        "MUSTER_ROLLCALL_LEADER": host.job.hosts[0],
    }


PLAYED = commands.launching(commands.nodes, environment)
