"""What a host's devices and network add to its plan: variables, processors of ranks, and what there is to say."""

from typing import TYPE_CHECKING

from musterpoint.core.fabric.advice import NEURON_PORT, advise
from musterpoint.core.fabric.cuda import cuda_settings
from musterpoint.core.fabric.flight_recorder import flight_recorder_settings
from musterpoint.core.fabric.network_interface import missing_interface, network_settings, wrong_interfaces
from musterpoint.core.fabric.placement import cpu_sets
from musterpoint.core.fabric.setting import CpuSet, EnvSetting
from musterpoint.core.launch.counts import miscounted
from musterpoint.core.launch.inputs import LaunchInputs
from musterpoint.core.launch.launcher import Launcher

if TYPE_CHECKING:
    from musterpoint.core.fabric.devices import Devices
    from musterpoint.core.fabric.facts import Fabric

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
    if not wanted or inputs.kind.once or inputs.settings.numa_binding:
        return ()
    return cpu_sets(slots, how, inputs.environ)


def _miscounted(inputs: LaunchInputs) -> Notes:
    if inputs.devices.slots == 1 and not inputs.job.counted.variable:
        return ()
    warning = miscounted(inputs.job, inputs.settings, inputs.devices, inputs.kind)
    return (warning,) if warning else ()


def wanted_for_neuron(launcher: Launcher, devices: "Devices") -> tuple[int, ...]:
    """The port that this host offers for Neuron's runtimes, behind all others; empty where it needs none.

    A launcher with servers of its own uses every port that a host offers.
    """
    if not devices.neuron_cores or launcher.ports is not None:
        return ()
    return (NEURON_PORT,)


def _neuron_port(inputs: LaunchInputs) -> int:
    """The one that the leader offered."""
    ports = inputs.roster.group[0].ports
    return ports[-1] if ports and wanted_for_neuron(inputs.kind, inputs.devices) else NEURON_PORT
