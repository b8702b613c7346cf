"""Nomad: the allocations of a group, told how many there are and where the first is."""

from __future__ import annotations

from musterpoint.local.platforms import commands
from musterpoint.local.platforms.platform import PlayedHost


def environment(host: PlayedHost) -> dict[str, str]:
    """The variables of one allocation, and those of a task's ``env``."""
    return {
        "NOMAD_ALLOC_INDEX": str(host.rank),
        "NOMAD_JOB_NAME": host.job.name,
        "NOMAD_GROUP_NAME": "train",
        "MUSTER_NNODES": str(len(host.job.hosts)),
        "MUSTER_ROLLCALL_LEADER": host.job.hosts[0],
    }


PLAYED = commands.launching(commands.nodes, environment)
