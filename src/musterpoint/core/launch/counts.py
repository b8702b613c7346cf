"""Warns where the ranks of a host are more or fewer than its devices."""

from musterpoint.base.settings import Settings
from musterpoint.core.fabric.devices import Devices
from musterpoint.core.job import platforms
from musterpoint.core.job.model import Job
from musterpoint.core.launch.choose import plural
from musterpoint.core.launch.inputs import capacity_of
from musterpoint.core.launch.launcher import Launcher


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
