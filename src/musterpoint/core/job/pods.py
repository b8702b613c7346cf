"""What jobs of pods have in common, on Kubernetes and with Kubeflow: their hosts' names and their directories."""

from __future__ import annotations

import os
from typing import Mapping

from musterpoint.base.settings import Settings
from musterpoint.core.job.fields import host, node_name, small_text
from musterpoint.core.job.model import Distribution, EntryPoint, Job, Paths
from musterpoint.core.job.opt_ml import base_of, can_be_made, paths_of

INDEX = "JOB_COMPLETION_INDEX"
HOSTS = "/etc/hosts"
"""Where the kubelet writes a pod's whole name."""


def pod_job(
    platform: str, environ: Mapping[str, str], names: tuple[str, ...], place: int, slots: int | None = None
) -> Job:
    """A job of the pods ``names``, of which this one is at ``place``; it has no program yet.

    ``slots``: ranks per pod, where that is said.

    Raises:
        UsageError: a name can't be one.
    """
    hosts = tuple(host(name, "the name of a pod") for name in names)
    return Job(
        platform=platform,
        name="",
        hosts=hosts,
        current_host=hosts[place],
        group_hosts=hosts,
        entry_point=EntryPoint(""),
        distribution=Distribution(processes_per_host=slots),
        paths=pod_paths(environ),
    )


def pod_paths(environ: Mapping[str, str]) -> Paths:
    """SageMaker's directories for reports and models, where they are or can be made: an earlier job in this pod may
    have made them.
    """
    base = base_of(environ)
    there = bool(environ.get("SAGEMAKER_BASE_DIR")) or os.path.isdir(base) or can_be_made(base)
    return paths_of(base) if there else Paths()


def pod_name(environ: Mapping[str, str]) -> str:
    """The pod's own name, without its domain."""
    return (environ.get("HOSTNAME") or node_name()).partition(".")[0]


def domain_of(name: str, settings: Settings) -> str:
    """``.train``, the first part of the domain of the pod ``name``; empty where it has none."""
    for path in filter(None, (settings.hosts_file, HOSTS)):
        for line in small_text(path).splitlines():
            for word in line.partition("#")[0].split()[1:]:
                own, _, domain = word.partition(".")
                if own == name and domain:
                    return "." + domain.partition(".")[0]
    return ""
