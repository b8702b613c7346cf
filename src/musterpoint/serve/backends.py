"""How the hosts of a job are made, as the server was asked."""

from __future__ import annotations

from musterpoint.base.errors import UsageError
from musterpoint.local.backend import Backend
from musterpoint.local.docker_hosts import DockerHosts
from musterpoint.local.job import LocalJob
from musterpoint.local.netns_hosts import NetnsHosts, why_unavailable
from musterpoint.local.process_hosts import ProcessHosts, can_have_own_tree
from musterpoint.local.tree import Layout
from musterpoint.local.way_out import MACHINE
from musterpoint.serve.relay import Relay
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
        return NetnsHosts(layout, job.hosts, internet=True, port=settings.port)
    if settings.backend == "docker":
        return DockerHosts(job, layout)
    return ProcessHosts(layout, job.hosts, own_tree=can_have_own_tree())


class Way:
    """How the hosts of one run reach the server. Used as :meth:`endpoint`, once the hosts are there, and ``close``."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.backend: Backend | None = None
        self._relay: Relay | None = None

    def endpoint(self) -> str:
        """The server's URL, as hosts see it; of hosts without a network this machine's own, which leads nowhere."""
        if isinstance(self.backend, NetnsHosts):
            return f"http://{MACHINE}:{self._settings.port}"
        if isinstance(self.backend, DockerHosts) and not self.backend.isolated:
            if self._relay is None:
                self._relay = Relay(self.backend.gateway, self._settings.port)
            return self._relay.url
        return self._settings.url

    def server_is_back(self, settings: Settings) -> None:
        if self._relay is not None:
            self._relay.move(settings.port)

    def close(self) -> None:
        if self._relay is not None:
            self._relay.close()
