"""The ports of a launcher's servers on this host: what it offers in the roll call."""

from musterpoint.base.settings import Settings
from musterpoint.core.job.model import Job
from musterpoint.core.launch.launcher import Launcher


def wanted_ports(launcher: Launcher, modules: frozenset[str], settings: Settings, job: Job) -> tuple[int, ...]:
    """The ports this host should offer in the roll call, each the preferred number; 0 stands for any free one.

    Raises:
        UsageError: a parameter-server job has more hosts than roles.
    """
    if launcher.ports is not None:
        return launcher.ports(job, settings)
    return (0,) * len(servers_of(launcher, modules))


def servers_of(launcher: Launcher, modules: frozenset[str]) -> tuple[str, ...]:
    """Modules, of those that are here, whose ranks meet at a server on the leader."""
    return tuple(name for name in launcher.servers if name in modules)


def option_for_ports(launcher: Launcher, settings: Settings) -> str:
    """The option that allows only the wanted ports; empty where any free ones will do."""
    return launcher.fixed_ports(settings) if launcher.fixed_ports is not None else ""
