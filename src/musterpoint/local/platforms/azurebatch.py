"""Azure Batch: the coordination command of a multi-instance task, on all its nodes."""

from __future__ import annotations

from musterpoint.local.platforms import commands
from musterpoint.local.platforms.platform import PlayedHost


def environment(host: PlayedHost) -> dict[str, str]:
    """The variables of one subtask."""
    addresses = [commands.address(host, name) for name in host.job.hosts]
    return {
        "AZ_BATCH_JOB_ID": host.job.name,
        "AZ_BATCH_TASK_ID": "train",
        "AZ_BATCH_NODE_ID": f"tvmps_{host.rank}_d",
        "AZ_BATCH_NODE_LIST": ";".join(addresses),
        "AZ_BATCH_HOST_LIST": ",".join(addresses),
        "AZ_BATCH_MASTER_NODE": f"{addresses[0]}:6000",
        "AZ_BATCH_IS_CURRENT_NODE_MASTER": "false" if host.rank else "true",
    }


PLAYED = commands.launching(commands.nodes, environment)
