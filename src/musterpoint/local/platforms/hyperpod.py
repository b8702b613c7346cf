"""HyperPod: the pods of a job called ``train`` of its training operator."""

from __future__ import annotations

from musterpoint.local.platforms import commands
from musterpoint.local.platforms.platform import PlayedHost


def environment(host: PlayedHost) -> dict[str, str]:
    """The variables of one pod."""
    return {
        "KUBERNETES_SERVICE_HOST": "10.96.0.1",
        "HOSTNAME": host.name,
        "PET_NNODES": str(len(host.job.hosts)),
        "PET_NODE_RANK": str(host.rank),
        "PET_MASTER_ADDR": host.job.hosts[0],
        "PET_MASTER_PORT": "23456",
    }


PLAYED = commands.launching(commands.called("train-pods-{}"), environment)
