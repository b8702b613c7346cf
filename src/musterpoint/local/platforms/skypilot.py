"""SkyPilot: the ``run`` commands of a task, on all nodes of its cluster."""

from __future__ import annotations

from musterpoint.local.platforms import commands
from musterpoint.local.platforms.platform import PlayedHost


def environment(host: PlayedHost) -> dict[str, str]:
    """The variables of a task on one node."""
    return {
        "SKYPILOT_NUM_NODES": str(len(host.job.hosts)),
        "SKYPILOT_NODE_RANK": str(host.rank),
        "SKYPILOT_NODE_IPS": "\n".join(commands.address(host, name) for name in host.job.hosts),
        "SKYPILOT_TASK_ID": host.job.name,
    }


PLAYED = commands.launching(commands.nodes, environment)
