"""LeaderWorkerSet: the pods of the first group of a set called ``train``."""

from __future__ import annotations

from musterpoint.local.job import HostNaming
from musterpoint.local.platforms import commands
from musterpoint.local.platforms.platform import PlayedHost


def host_names(number: int, _naming: HostNaming) -> tuple[str, ...]:
    """``train-0.train`` leads, ``train-0-1.train``, ``train-0-2.train`` and so on are workers."""
    return tuple(f"train-0-{place}.train" if place else "train-0.train" for place in range(number))


def environment(host: PlayedHost) -> dict[str, str]:
    """The variables of one pod."""
    return {
        "KUBERNETES_SERVICE_HOST": "10.96.0.1",
        "HOSTNAME": host.name.partition(".")[0],
        "LWS_LEADER_ADDRESS": host.job.hosts[0],
        "LWS_GROUP_SIZE": str(len(host.job.hosts)),
        "LWS_WORKER_INDEX": str(host.rank),
    }


PLAYED = commands.launching(host_names, environment)
