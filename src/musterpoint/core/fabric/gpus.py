"""This host's NVIDIA GPUs one by one: their places on the PCI bus and in memory, and whether they are divided (MIG).

Sources: the driver's ``/proc/driver/nvidia`` (NVIDIA's README, chapter "Using the /proc Filesystem Interface"), the
MIG User Guide's "Device Nodes and Capabilities", the kernel's ``Documentation/ABI/testing/sysfs-bus-pci``.
"""

import os
from typing import Mapping, Sequence

from musterpoint.base.records import NamedTuple
from musterpoint.core.fabric.devices import entries, read

NVIDIA = "0x10de"


class Gpu(NamedTuple):
    """One GPU.

    number: of its node in /dev (``/dev/nvidia3``), by which the driver counts.
    address: its PCI address, in lower case, such as ``0000:10:1c.0``.
    model: such as ``NVIDIA A100-SXM4-40GB``.
    numa_node: the memory node that it is nearest to; -1: the machine doesn't say.
    instances: its MIG instances; 0: it isn't divided.
    """

    number: int
    address: str = ""
    model: str = ""
    numa_node: int = -1
    instances: int = 0


def survey_gpus(root: str = "/") -> tuple[Gpu, ...]:
    """The GPUs whose nodes are in this container, by number; those that the driver doesn't describe have no address."""
    here = {
        int(name[6:])
        for name in entries(os.path.join(root, "dev"))
        if name.startswith("nvidia") and name[6:].isdecimal()
    }
    described = {gpu.number: gpu for gpu in _described(root)}
    numbers = here or (set(described) if os.path.exists(os.path.join(root, "dev/nvidiactl")) else set())
    return tuple(described.get(number, Gpu(number)) for number in sorted(numbers))


def seen_gpus(gpus: Sequence[Gpu], environ: Mapping[str, str]) -> list[Gpu]:
    """The GPUs in CUDA's order, which for equal ones is that of the bus: those that CUDA_VISIBLE_DEVICES names."""
    ordered = sorted(gpus, key=lambda gpu: (gpu.address, gpu.number))
    visible = environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return ordered
    words = [word.strip() for word in visible.split(",")]
    if not all(word.isdecimal() and int(word) < len(ordered) for word in words):
        return []
    return [ordered[int(word)] for word in words]


def numa_node(address: str, root: str = "/") -> int:
    """The memory node that the PCI device at ``address`` is nearest to; -1: the machine doesn't say."""
    text = read(os.path.join(root, "sys/bus/pci/devices", address, "numa_node")).strip()
    return int(text) if text.isdecimal() else -1


def _described(root: str) -> list[Gpu]:
    folder = os.path.join(root, "proc/driver/nvidia/gpus")
    found = []
    for name in entries(folder):
        fields = _fields(read(os.path.join(folder, name, "information")))
        number = fields.get("Device Minor", "")
        if number.isdecimal():
            address = name.lower()
            found.append(
                Gpu(
                    int(number),
                    address,
                    fields.get("Model", ""),
                    numa_node(address, root),
                    _instances(int(number), root),
                )
            )
    return found


def _fields(text: str) -> dict[str, str]:
    rows = (line.partition(":") for line in text.splitlines())
    return {name.strip(): value.strip() for name, _, value in rows}


def _instances(number: int, root: str) -> int:
    """Compute instances of the GPU's MIG instances, each of which CUDA counts as a device."""
    folder = os.path.join(root, f"proc/driver/nvidia/capabilities/gpu{number}/mig")
    return sum(
        name.startswith("ci") and name[2:].isdecimal()
        for part in entries(folder)
        if part.startswith("gi")
        for name in entries(os.path.join(folder, part))
    )
