"""Everything that a host looks at on itself, in one value that travels to the leader."""

import os
from typing import TYPE_CHECKING, Mapping, NamedTuple

from musterpoint.core.fabric.devices import Devices
from musterpoint.tools.check.data_places import DataPlace
from musterpoint.tools.check.gpus import Gpus, survey_gpus
from musterpoint.tools.check.links import Links, survey_links
from musterpoint.tools.check.machine import MachineState, survey_machine
from musterpoint.tools.check.system import System
from musterpoint.tools.check.versions import Version, survey_versions

if TYPE_CHECKING:
    from musterpoint.base.probe import Ask
    from musterpoint.core.job.model import Paths


class HostFacts(NamedTuple):
    """What a host found on itself.

    host: its name.
    slots: the ranks that it is to run; 0: not known yet.
    slots_asked: whether somebody asked for so many; else they follow from the devices.
    cpus, gpus, neuron_cores: as :class:`Devices`.
    rdma: the kernel's names of its RDMA devices.
    machine, links, health, versions: what the modules of these names looked at.
    own_addresses: those that its own name resolves to here.
    name_looked_up: whether its own name was looked up.
    places: of the job's data, where its options name any.
    """

    host: str
    slots: int = 0
    slots_asked: bool = False
    cpus: int = 1
    gpus: int = 0
    neuron_cores: int = 0
    rdma: tuple[str, ...] = ()
    machine: MachineState = MachineState()
    links: Links = Links()
    health: Gpus = Gpus()
    versions: tuple[Version, ...] = ()
    own_addresses: tuple[str, ...] = ()
    name_looked_up: bool = False
    places: tuple[DataPlace, ...] = ()


class Asked(NamedTuple):
    """About whom to ask. ``host``: this host's name; ``slots``: the ranks that were asked for (None: by its devices);
    ``toward``: the interface to the leader; ``interpreter``: the user's Python, empty: its versions aren't asked for.
    """

    host: str
    slots: int | None
    toward: str = ""
    interpreter: str = ""


def survey_host(
    asked: Asked, devices: Devices, paths: "Paths", environ: Mapping[str, str], ask: "Ask", system: System
) -> HostFacts:
    """This host's facts. It takes some milliseconds, and with an interpreter as long as that takes to start."""
    return HostFacts(
        host=asked.host,
        slots=asked.slots or devices.slots,
        slots_asked=asked.slots is not None,
        cpus=devices.cpus,
        gpus=devices.gpus,
        neuron_cores=devices.neuron_cores,
        rdma=devices.infiniband,
        machine=survey_machine(_places(paths, environ), system),
        links=survey_links(asked.toward, system.root),
        health=survey_gpus(devices.gpus, system),
        versions=survey_versions(asked.interpreter, environ, ask, system.root),
    )


def _places(paths: "Paths", environ: Mapping[str, str]) -> list[tuple[str, str]]:
    return [
        ("the working directory", paths.code or os.getcwd()),
        ("the model", paths.model),
        ("output", paths.output_data),
        ("checkpoints", paths.checkpoints),
        ("temporary files", environ.get("TMPDIR") or "/tmp"),
    ]
