"""Kubernetes: the pods of an Indexed Job with a headless Service, both called ``train``."""

from __future__ import annotations

from musterpoint.local.job import HostNaming
from musterpoint.local.platforms import commands
from musterpoint.local.platforms.platform import LocalPlatform, PlayedHost


def host_names(number: int, _naming: HostNaming) -> tuple[str, ...]:
    """``train-0.train``, ``train-1.train``, …"""
    return tuple(f"train-{place}.train" for place in range(number))


def pod(host: PlayedHost) -> dict[str, str]:
    """The variables of every pod with a completion index."""
    return {
        "KUBERNETES_SERVICE_HOST": "10.96.0.1",
        "KUBERNETES_SERVICE_PORT": "443",
        "HOSTNAME": host.name.partition(".")[0],
        "JOB_COMPLETION_INDEX": str(host.rank),
        "SAGEMAKER_BASE_DIR": host.tree,
    }


def environment(host: PlayedHost) -> dict[str, str]:
    """The variables of a pod whose manifest says how many there are."""
    return {**pod(host), "MUSTER_NNODES": str(len(host.job.hosts))}


PLAYED = LocalPlatform(
    host_names=host_names,
    read_distribution=commands.no_distribution,
    check=commands.check,
    prepare=commands.prepare,
    environment=environment,
    processes=commands.launched,
)
