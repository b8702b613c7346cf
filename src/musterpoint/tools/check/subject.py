"""What is checked: this host as one of its job's, and what was asked for."""

import sys
from typing import Mapping, NamedTuple

from musterpoint.base.probe import Ask
from musterpoint.base.settings import PYTHON, Settings
from musterpoint.core.fabric.devices import Devices, survey
from musterpoint.core.fabric.network_interface import interface_toward
from musterpoint.core.job.model import Job
from musterpoint.core.prepare import user_environment
from musterpoint.tools.check.data_places import survey_places
from musterpoint.tools.check.facts import Asked, HostFacts, survey_host
from musterpoint.tools.check.system import System


class Wanted(NamedTuple):
    """What to check beside the ordinary.

    bandwidth: measure collectives between hosts.
    expected: GB/s that all-reduce should reach; 0: hosts are compared with one another only.
    ports: more ports to call on every host.
    """

    bandwidth: bool = False
    expected: float = 0.0
    ports: tuple[int, ...] = ()


class Subject(NamedTuple):
    """``environ``: as the user's program sees it; ``ask`` asks programs of this host. ``named``: whether the platform
    names the hosts, so that their names should resolve.
    """

    job: Job
    options: Settings
    environ: Mapping[str, str]
    devices: Devices
    ask: Ask
    wanted: Wanted = Wanted()
    system: System = System()
    named: bool = True

    @property
    def slots_asked(self) -> int | None:
        """The ranks per host that somebody asked for."""
        return self.options.slots or self.job.distribution.processes_per_host

    @property
    def slots(self) -> int:
        return self.slots_asked or self.devices.slots

    @property
    def interpreter(self) -> str:
        """The user's Python."""
        return self.environ.get(PYTHON) or sys.executable

    def facts(self, host: str, leader: str, whole: bool = True) -> HostFacts:
        """This host's facts; ``leader`` is the leader's address. ``whole``: with the versions of the user's Python,
        which take as long as that takes to start.
        """
        toward = interface_toward(leader, self.system.root)
        asked = Asked(host, self.slots_asked, toward, self.interpreter if whole else "")
        found = survey_host(asked, self.devices, self.job.paths, self.environ, self.ask, self.system)
        if not whole:
            return found
        return found._replace(places=survey_places(self.job, self.options, self.environ, self.interpreter))


def subject_of(
    job: Job,
    options: Settings,
    environ: Mapping[str, str],
    ask: Ask,
    wanted: Wanted | None = None,
    system: System | None = None,
) -> Subject:
    """The subject with this host's devices.

    Raises:
        UsageError: there is no such conda environment.
    """
    system = system or System()
    environ = user_environment(environ, options.python)
    return Subject(
        job, options, environ, survey(environ, system.root), ask, wanted or Wanted(), system, job.unnamed is None
    )
