"""Kubernetes: the pods of an Indexed Job with a headless Service, both called ``train``."""

from __future__ import annotations

from musterpoint.local.platforms import commands
from musterpoint.local.platforms.platform import PlayedHost


def pod(host: PlayedHost) -> dict[str, str]:
    """The variables of every pod with a completion index."""
    return {
        "KUBERNETES_SERVICE_HOST": "10.96.0.1",
        "KUBERNETES_SERVICE_PORT": "443",
        "HOSTNAME": host.name.partition(".")[0],
        "JOB_COMPLETION_INDEX": str(host.rank),
    }


def environment(host: PlayedHost) -> dict[str, str]:
    """The variables of a pod whose manifest says how many there are."""
    return {**pod(host), "MUSTER_NNODES": str(len(host.job.hosts))}


PLAYED = commands.launching(commands.called("train-{}.train"), environment)
