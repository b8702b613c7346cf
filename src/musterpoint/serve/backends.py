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


def backend_of(settings: Settings, job: LocalJob, layout: Layout, port: int) -> Backend:
    """The hosts of one run; nothing is made yet. ``port``: of loopback, which leads to the server.

    Raises:
        UsageError: they can't be had on this machine.
    """
    if settings.backend == "netns":
        why_not = why_unavailable()
        if why_not:
            raise UsageError(f"--backend netns can't be had on this machine: {why_not}")
        return NetnsHosts(layout, job.hosts, internet=True, port=port)
    if settings.backend == "docker":
        return DockerHosts(job, layout)
    return ProcessHosts(layout, job.hosts, own_tree=can_have_own_tree())


class Way:
    """How the hosts of one run reach the server. Used as :meth:`endpoint`, once the hosts are there, and ``close``."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.backend: Backend | None = None
        self._relays = [Relay("127.0.0.1", settings.port)]

    @property
    def url(self) -> str:
        """The server's URL for programs of this machine."""
        return self._relays[0].url

    @property
    def port(self) -> int:
        """A port of loopback that leads to the server."""
        return self._relays[0].port

    def endpoint(self) -> str:
        """The server's URL, as hosts see it; of hosts without a network this machine's own, which leads nowhere."""
        if isinstance(self.backend, NetnsHosts):
            return f"http://{MACHINE}:{self.port}"
        if isinstance(self.backend, DockerHosts) and not self.backend.isolated:
            if len(self._relays) == 1:
                self._relays.append(Relay(self.backend.gateway, self._settings.port))
            return self._relays[1].url
        return self._relays[0].url

    def server_is_back(self, settings: Settings) -> None:
        for relay in self._relays:
            relay.move(settings.port)

    def close(self) -> None:
        for relay in self._relays:
            relay.close()
