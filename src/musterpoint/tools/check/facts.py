"""The host that is checked, and everything that it finds on itself, in one value that travels to the leader.

Interfaces and RDMA ports (state, speed, counters) are read from the kernel's files.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Iterator, Mapping, NamedTuple

from musterpoint import __version__
from musterpoint.base.errors import FetchError
from musterpoint.base.probe import Ask
from musterpoint.base.settings import Settings
from musterpoint.base.stop_budget import whole_grace
from musterpoint.core.code.interpreter import user_environment
from musterpoint.core.data.mover_process import Access
from musterpoint.core.data.moves import speed
from musterpoint.core.fabric.devices import Devices, entries, read_text, survey
from musterpoint.core.fabric.libraries import SHOWN, survey_libraries
from musterpoint.core.fabric.network_interface import interface_toward
from musterpoint.core.fabric.rdma import survey_rdma
from musterpoint.core.job.model import Job, Paths
from musterpoint.core.job_data.data_plan import plan_data
from musterpoint.tools.check.machine import Gpus, MachineState, System, survey_gpus, survey_machine

VIRTUAL = ("lo", "docker", "veth", "br-", "virbr", "cni", "flannel", "cali", "tunl", "dummy", "ifb")
"""How names of interfaces begin that lead to no other host."""
_RDMA_ERRORS = (
    "symbol_error", "port_rcv_errors", "port_rcv_remote_physical_errors", "port_xmit_discards",
    "local_link_integrity_errors", "excessive_buffer_overrun_errors", "link_error_recovery",
)  # fmt: skip
"""Counters of an InfiniBand port that count faults of the link, in ``ports/N/counters`` (Linux:
Documentation/ABI/stable/sysfs-class-infiniband)."""
ERRORS_PER_PACKET = 1e-4
"""More than so many errors and drops per packet are no accident."""
_DISTRIBUTIONS = ("torch", "tensorflow", "jax", "deepspeed", "mpi4py")
_ASK = (
    "import importlib.metadata as m,json,platform,sys\n"
    "found={'python':platform.python_version()}\n"
    "for d in m.distributions():\n"
    " n=(d.metadata['Name'] or '').lower()\n"
    " for w in sys.argv[1:]:\n"
    "  if n==w: found[w]=d.version\n"
    "print(json.dumps(found))"
)
"""Reads the metadata of packages: importing torch would take seconds."""


class Interface(NamedTuple):
    """A network interface. ``speed`` in Mbit/s, 0: not known; counters since it came up."""

    name: str
    state: str = ""
    speed: int = 0
    mtu: int = 0
    packets: int = 0
    errors: int = 0
    dropped: int = 0
    carrier_changes: int = 0


class RdmaPort(NamedTuple):
    """A port of an RDMA device, such as ``mlx5_0/1``. ``layer``: InfiniBand, Ethernet or Unspecified (EFA).
    ``reachable``: whether this container has the device's node in /dev/infiniband.
    """

    name: str
    state: str
    layer: str = ""
    rate: str = ""
    errors: int = 0
    link_downed: int = 0
    reachable: bool = True


class Links(NamedTuple):
    """All of a host. ``toward``: the interface on the route to the leader; empty: not known."""

    toward: str = ""
    interfaces: tuple[Interface, ...] = ()
    rdma: tuple[RdmaPort, ...] = ()

    @property
    def used(self) -> Interface | None:
        """The interface toward the leader."""
        return next((each for each in self.interfaces if each.name == self.toward), None)


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
    asked: Asked, devices: Devices, paths: Paths, environ: Mapping[str, str], ask: Ask, system: System
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


def _places(paths: Paths, environ: Mapping[str, str]) -> list[tuple[str, str]]:
    return [
        ("the working directory", paths.code or os.getcwd()),
        ("the model", paths.model),
        ("output", paths.output_data),
        ("checkpoints", paths.checkpoints),
        ("temporary files", environ.get("TMPDIR") or "/tmp"),
    ]


def survey_links(toward: str = "", root: str = "/") -> Links:
    """This host's links."""
    folder = os.path.join(root, "sys/class/net")
    names = sorted(name for name in entries(folder) if not name.startswith(VIRTUAL) or name == toward)
    return Links(toward, tuple(_interface(folder, name) for name in names), tuple(_rdma_ports(root)))


def _interface(folder: str, name: str) -> Interface:
    here = os.path.join(folder, name)

    def count(*files: str) -> int:
        return sum(_number(os.path.join(here, file)) for file in files)

    return Interface(
        name=name,
        state=read_text(os.path.join(here, "operstate")).strip(),
        speed=max(0, count("speed")),
        mtu=count("mtu"),
        packets=count("statistics/rx_packets", "statistics/tx_packets"),
        errors=count("statistics/rx_errors", "statistics/tx_errors"),
        dropped=count("statistics/tx_dropped", "statistics/rx_missed_errors", "statistics/rx_fifo_errors"),
        carrier_changes=count("carrier_changes"),
    )


def _rdma_ports(root: str) -> list[RdmaPort]:
    folder = os.path.join(root, "sys/class/infiniband")
    reachable = {device.name: device.reachable for device in survey_rdma(root)}
    found = []
    for device in sorted(entries(folder)):
        for port in sorted(entries(os.path.join(folder, device, "ports"))):
            here = os.path.join(folder, device, "ports", port)
            counters = os.path.join(here, "counters")
            found.append(
                RdmaPort(
                    f"{device}/{port}",
                    read_text(os.path.join(here, "state")).strip().rpartition(" ")[2],
                    read_text(os.path.join(here, "link_layer")).strip(),
                    read_text(os.path.join(here, "rate")).strip(),
                    sum(_number(os.path.join(counters, name)) for name in _RDMA_ERRORS),
                    _number(os.path.join(counters, "link_downed")),
                    reachable.get(device, True),
                )
            )
    return found


def _number(path: str) -> int:
    text = read_text(path).strip()
    return int(text) if text.removeprefix("-").isdecimal() else 0


class Subject(NamedTuple):
    """``environ``: as the user's program sees it; ``ask`` asks programs of this host. ``named``: whether the platform
    names the hosts, so that their names should resolve. ``ports``: more ports to call on every host.
    ``interpreter``: the program's Python.
    """

    job: Job
    options: Settings
    environ: Mapping[str, str]
    devices: Devices
    ask: Ask
    ports: tuple[int, ...] = ()
    system: System = System()
    named: bool = True
    interpreter: str = sys.executable

    @property
    def slots_asked(self) -> int | None:
        """The ranks per host that somebody asked for."""
        return self.options.slots or self.job.distribution.processes_per_host

    @property
    def slots(self) -> int:
        return self.slots_asked or self.devices.slots

    def facts(self, host: str, leader: str, whole: bool = True) -> HostFacts:
        """This host's facts; ``leader`` is the leader's address. ``whole``: with the versions of the user's Python,
        which take as long as that takes to start.
        """
        toward = interface_toward(leader, self.system.root)
        asked = Asked(host, self.slots_asked, toward, self.interpreter if whole else "")
        found = survey_host(asked, self.devices, self.job.paths, self.environ, self.ask, self.system)
        if not whole:
            return found
        return found._replace(places=_survey_places(self.job, self.options, self.environ, self.interpreter))


def subject_of(
    job: Job,
    options: Settings,
    environ: Mapping[str, str],
    ask: Ask,
    ports: tuple[int, ...] = (),
    system: System | None = None,
) -> Subject:
    """The subject with this host's devices.

    Raises:
        UsageError: there is no such conda environment.
    """
    system = system or System()
    environ, python, _note = user_environment(environ, options.python)
    devices, named = survey(environ, system.root), job.unnamed is None
    return Subject(job, options, environ, devices, ask, ports, system, named, python)


class DataPlace(NamedTuple):
    """``used_for``, such as "channel train". ``problem``: why it can't be used; empty: it can. ``write`` and ``read``:
    MiB per second, 0: not measured. ``newest``: MiB of the newest checkpoint. ``grace``: seconds that a stop leaves.
    """

    uri: str
    used_for: str
    problem: str = ""
    write: float = 0.0
    read: float = 0.0
    newest: float = 0.0
    grace: float = 0.0


def _survey_places(job: Job, options: Settings, environ: Mapping[str, str], interpreter: str) -> tuple[DataPlace, ...]:
    """Every place of the options of data. It takes some seconds for each."""
    if not options.has_data:
        return ()
    plan = plan_data(job, options, os.getcwd())
    access = Access(environ, (interpreter,), job.region)
    wanted = [(channel.uri, f"channel {channel.name}", False) for channel, _ in plan.channels]
    if plan.target is not None:
        wanted.append((plan.target.uri, "checkpoints", True))
    if plan.upload is not None:
        wanted.append((plan.upload.uri, "results", True))
    return tuple(_survey(wanted, access, whole_grace(job.grace, options.stop_grace)))


def _survey(wanted: list[tuple[str, str, bool]], access: Access, grace: float) -> Iterator[DataPlace]:
    for uri, what, writes in wanted:
        try:
            found = speed(uri, access, writes, what == "checkpoints")
        except FetchError as error:
            yield DataPlace(uri, what, str(error).removeprefix(f"{uri}: "))
        else:
            mib = 1024**2
            yield DataPlace(uri, what, "", (found.write or 0) / mib, (found.read or 0) / mib, found.newest / mib, grace)


class Version(NamedTuple):
    """``name``: what it is the version of."""

    name: str
    version: str


def survey_versions(interpreter: str, environ: Mapping[str, str], ask: Ask, root: str = "/") -> tuple[Version, ...]:
    """Every version that is found of what should be the same on all hosts. ``interpreter``: the user's Python, which is
    asked through ``ask``; empty: it isn't asked, which takes as long as it takes to start.
    """
    found = {"musterpoint": __version__, **(_of_python(interpreter, environ, ask) if interpreter else {})}
    libraries = survey_libraries(environ, interpreter, root)
    found.update((what, getattr(libraries, name)) for name, what in SHOWN.items())
    found["the NVIDIA driver"] = read_text(os.path.join(root, "sys/module/nvidia/version")).strip()
    found["Linux"] = libraries.kernel
    return tuple(Version(name, version) for name, version in found.items() if version)


def _of_python(interpreter: str, environ: Mapping[str, str], ask: Ask) -> dict[str, str]:
    try:
        answer = ask((interpreter, "-c", _ASK, *_DISTRIBUTIONS), environ, "/", False)
        found = json.loads(answer.text)
    except (OSError, ValueError):
        return {}
    if not isinstance(found, dict):
        return {}
    return {str(name): str(version) for name, version in found.items()}
