"""Volcano: the pods of a job called ``train`` with one task, ``worker``, and the plugins ``svc`` and ``env``."""

from __future__ import annotations

from musterpoint.local.platforms import commands
from musterpoint.local.platforms.platform import PlayedHost


def environment(host: PlayedHost) -> dict[str, str]:
    """The variables of one pod."""
    return {
        "KUBERNETES_SERVICE_HOST": "10.96.0.1",
        "HOSTNAME": host.name.partition(".")[0],
        "VC_WORKER_HOSTS": ",".join(host.job.hosts),
        "VC_WORKER_NUM": str(len(host.job.hosts)),
        "VC_TASK_INDEX": str(host.rank),
        "VK_TASK_INDEX": str(host.rank),
    }


PLAYED = commands.launching(commands.called("train-worker-{}.train"), environment)
