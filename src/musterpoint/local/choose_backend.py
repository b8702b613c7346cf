"""Which way of making hosts a run takes."""

from __future__ import annotations

from musterpoint.errors import UsageError
from musterpoint.local.backend import Backend, BackendName
from musterpoint.local.job import LocalJob
from musterpoint.local.netns_hosts import NetnsHosts, why_unavailable
from musterpoint.local.process_hosts import ProcessHosts
from musterpoint.local.tree import Layout


def choose_backend(name: BackendName | None, layout: Layout, job: LocalJob, one_address: bool = False) -> Backend:
    """The backend called ``name``; None: ``docker`` for a job with an image, else ``netns`` where a namespace can
    really be made, else ``process``. Nothing is made yet.

    Raises:
        UsageError: what is asked for can't be had; the message says why.
    """
    if job.container is not None:
        from musterpoint.local.docker_hosts import DockerHosts

        return DockerHosts(job, layout)
    why_not = ""
    if name != "process" and not (one_address and name is None):
        why_not = why_unavailable()
        if not why_not:
            return NetnsHosts(layout, job.hosts)
    if name == "netns":
        raise UsageError(f"--backend netns can't be had on this machine: {why_not}; use --backend process")
    return ProcessHosts(layout, job.hosts, one_address=one_address)
