"""How the hosts of a job are made, as the server was asked."""

from __future__ import annotations

from musterpoint.base.errors import UsageError
from musterpoint.local.backend import Backend
from musterpoint.local.job import LocalJob
from musterpoint.local.netns_hosts import NetnsHosts, why_unavailable
from musterpoint.local.process_hosts import ProcessHosts, can_have_own_tree
from musterpoint.local.tree import Layout
from musterpoint.serve.settings import Settings


def backend_of(settings: Settings, job: LocalJob, layout: Layout) -> Backend:
    """The hosts of one run; nothing is made yet.

    Raises:
        UsageError: they can't be had on this machine.
    """
    if settings.backend == "netns":
        why_not = why_unavailable()
        if why_not:
            raise UsageError(f"--backend netns can't be had on this machine: {why_not}")
        return NetnsHosts(layout, job.hosts, internet=True)
    return ProcessHosts(layout, job.hosts, own_tree=can_have_own_tree())
