"""dstack: the commands of a distributed task, on all its nodes."""

from __future__ import annotations

from musterpoint.local.platforms import commands
from musterpoint.local.platforms.platform import PlayedHost


def environment(host: PlayedHost) -> dict[str, str]:
    """The variables of one node's job."""
    addresses = [commands.address(host, name) for name in host.job.hosts]
    return {
        "DSTACK_NODES_NUM": str(len(addresses)),
        "DSTACK_NODE_RANK": str(host.rank),
        "DSTACK_NODES_IPS": "\n".join(addresses),
        "DSTACK_MASTER_NODE_IP": addresses[0],
        "DSTACK_RUN_NAME": host.job.name,
    }


PLAYED = commands.launching(commands.nodes, environment)
