"""What a host's devices and network add to its plan: variables, processors of ranks, and what there is to say."""

from typing import TYPE_CHECKING

from musterpoint.base.settings import Settings
from musterpoint.core.fabric.cuda_compat import cuda_settings
from musterpoint.core.fabric.devices import Devices
from musterpoint.core.fabric.nccl_recorder import flight_recorder_settings
from musterpoint.core.fabric.network_interface import missing_interface, network_settings, wrong_interfaces
from musterpoint.core.fabric.network_settings import NEURON_PORT, advise
from musterpoint.core.fabric.placement import cpu_sets
from musterpoint.core.fabric.setting import CpuSet, EnvSetting
from musterpoint.core.job import platforms
from musterpoint.core.job.model import Job
from musterpoint.core.launch.choose import plural
from musterpoint.core.launch.inputs import LaunchInputs, capacity_of
from musterpoint.core.launch.launcher import Launcher

if TYPE_CHECKING:
    from musterpoint.core.fabric.fabric_facts import Fabric

Notes = tuple[str, ...]


def with_fabric(inputs: LaunchInputs, fabric: "Fabric | None") -> tuple[LaunchInputs, Notes]:
    """``inputs`` with the settings and processors that follow from this host's devices, and sentences about them."""
    devices, slots, several = inputs.devices, inputs.roster.seat.slots, inputs.hosts > 1
    settings: tuple[EnvSetting, ...] = ()
    notes: Notes = ()
    if devices.gpus and inputs.settings.cuda_compat == "auto":
        settings, note = cuda_settings(inputs.environ)
        notes += (note,) if note else ()
    if devices.gpus and inputs.job.in_group:
        settings += flight_recorder_settings(devices, inputs.roster.session, inputs.roster.me, inputs.environ)
    if several or slots > 1:
        leader = inputs.roster.master_address
        settings += network_settings(devices, leader, inputs.hosts, inputs.environ)
        missing = missing_interface(devices, inputs.job.network_interface, leader) if several else ""
        notes += (missing,) if missing else ()
        notes += wrong_interfaces(devices, leader, inputs.environ) if several else ()
    if fabric is not None and inputs.job.in_group:
        advice = advise(fabric, *((inputs.roster.master_address, _neuron_port(inputs)) if several else ()))
        settings += advice.settings
        notes += advice.notes
    return inputs._replace(network=settings, cpu_sets=_cpu_sets(inputs, slots)), notes + _miscounted(inputs)


def _cpu_sets(inputs: LaunchInputs, slots: int) -> tuple[CpuSet, ...]:
    """The processors of this host's slots; torchrun's own option, where it was given, settles that."""
    how = inputs.settings.cpu_binding
    wanted = how == "slots" or (how == "auto" and inputs.devices.gpus > 1)
    if not wanted or inputs.launcher.once or inputs.settings.numa_binding:
        return ()
    return cpu_sets(slots, how, inputs.environ)


def _miscounted(inputs: LaunchInputs) -> Notes:
    if inputs.devices.slots == 1 and not inputs.job.counted.variable:
        return ()
    warning = miscounted(inputs.job, inputs.settings, inputs.devices, inputs.launcher)
    return (warning,) if warning else ()


def wanted_for_neuron(launcher: Launcher, devices: Devices) -> tuple[int, ...]:
    """The port that this host offers for Neuron's runtimes, behind all others; empty where it needs none.

    A launcher with servers of its own uses every port that a host offers.
    """
    if not devices.neuron_cores or launcher.ports is not None:
        return ()
    return (NEURON_PORT,)


def _neuron_port(inputs: LaunchInputs) -> int:
    """The one that the leader offered."""
    ports = inputs.roster.group[0].ports
    return ports[-1] if ports and wanted_for_neuron(inputs.launcher, inputs.devices) else NEURON_PORT


def miscounted(job: Job, settings: Settings, devices: Devices, launcher: Launcher) -> str:
    """A warning where this host's slots differ from its GPUs or Neuron cores; else empty."""
    key = platforms.load(job.platform).slots_key
    if key and not settings.slots and devices.slots > capacity_of(job, settings, devices):
        room = capacity_of(job, settings, devices)
        unused = devices.accelerators[1]
        return (
            f"warning: this host has {plural(devices.slots, unused)}, and the job asks for {plural(room, 'process')} "
            f"on it: --slots {devices.slots} uses all (in MPI and per-process jobs: {key})"
        )
    slots, variable = job.counted
    here, noun = (devices.neuron_cores, "Neuron core") if "NEURON" in variable else (devices.gpus, "GPU")
    if not variable or settings.slots or job.distribution.processes_per_host:
        return _unequal(job, settings, devices, launcher)
    if slots == here:
        return ""
    capacity = plural(capacity_of(job, settings, devices), "slot")
    return (
        f"warning: {variable} is {slots}, but {plural(here, noun)} can be seen on this host: it has {capacity} all "
        "the same (--slots or MUSTER_SLOTS says how many)"
    )


def _unequal(job: Job, settings: Settings, devices: Devices, launcher: Launcher) -> str:
    """A warning where slots were asked for that aren't as many as the devices that this host has."""
    here, noun = devices.accelerators
    slots = capacity_of(job, settings, devices)
    if not here or slots in (0, here) or launcher.once or not job.in_group:
        return ""
    ranks = f"{plural(slots, 'rank')} run{'s' if slots == 1 else ''} on this host, which has {plural(here, noun)}"
    if slots < here:
        return f"warning: {ranks}: the others stay unused unless a rank takes several (--slots {here} uses all)"
    refused = ", and NCCL refuses two ranks on one GPU" if noun.endswith("GPU") else ""
    return f"warning: {ranks}: several ranks share one{refused} (--slots {here})"
