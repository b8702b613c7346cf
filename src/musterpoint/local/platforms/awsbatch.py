"""AWS Batch: the nodes of a multi-node parallel job; node 0 is the main one."""

from __future__ import annotations

from musterpoint.local.platforms import commands
from musterpoint.local.platforms.platform import PlayedHost


def environment(host: PlayedHost) -> dict[str, str]:
    """The variables of one node; the main node isn't told its own address."""
    first = {"AWS_BATCH_JOB_MAIN_NODE_PRIVATE_IPV4_ADDRESS": commands.address(host, host.job.hosts[0])}
    return {
        "AWS_BATCH_JOB_ID": f"{host.job.name}#{host.rank}",
        "AWS_BATCH_JOB_NUM_NODES": str(len(host.job.hosts)),
        "AWS_BATCH_JOB_NODE_INDEX": str(host.rank),
        "AWS_BATCH_JOB_MAIN_NODE_INDEX": "0",
        **(first if host.rank else {}),
    }


PLAYED = commands.launching(commands.nodes, environment)
