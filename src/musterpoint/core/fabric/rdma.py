"""This host's RDMA devices: EFA, InfiniBand and RoCE, as ``/sys/class/infiniband`` has them.

Sources: the kernel's ``Documentation/ABI/stable/sysfs-class-infiniband``; PCI ids of the driver tables in
``drivers/infiniband/hw/efa/efa_main.c`` and ``drivers/net/ethernet/mellanox/mlx{4,5}/core/main.c``.
"""

import os
import re
from typing import Literal

from musterpoint.base.records import NamedTuple
from musterpoint.core.fabric.devices import entries, read_text

RdmaKind = Literal["efa", "infiniband", "roce", "unknown"]

AMAZON, MELLANOX, MICROSOFT = "0x1d0f", "0x15b3", "0x1414"

VIRTUAL_FUNCTIONS = frozenset(
    {"0x1002", "0x1004", "0x1012", "0x1014", "0x1016", "0x1018", "0x101a", "0x101c", "0x101e", "0xa2d3"}
)
"""Mellanox's PCI devices that are virtual functions (SR-IOV): inside a virtual machine nothing else tells."""

NETWORK_DIRECT = "8c2eaf3d-32a7-4b09-ab99-bd1f1c86b501"
"""The class of Hyper-V's RDMA without SR-IOV on its bus (HV_ND_GUID in the kernel's ``include/linux/hyperv.h``)."""

ACTIVE = "ACTIVE"


class RdmaDevice(NamedTuple):
    """One RDMA device. One port stands for it: the first that is ACTIVE, else the first. NCCL uses every ACTIVE port
    (``NVIDIA/nccl: src/transport/net_ib/init.cc``).

    name: the kernel's, such as ``mlx5_ib0`` or ``rdmap16s27``.
    kind: EFA, InfiniBand, or RoCE, which is RDMA over Ethernet.
    vendor, device: PCI ids, such as ``0x15b3`` and ``0x101c``.
    address: its PCI address; empty where it has none.
    virtual: whether it is a virtual function (SR-IOV).
    state: of the port, such as ``ACTIVE``, ``INIT`` or ``DOWN``.
    rate: of the port, in Gb/s; 0: unknown.
    firmware: its version.
    reachable: whether its node in ``/dev/infiniband`` is here, by which programs use it.
    interfaces: its network interfaces, such as ``ib0``.
    port: the number of the port that stands for it.
    """

    name: str
    kind: RdmaKind
    vendor: str = ""
    device: str = ""
    address: str = ""
    virtual: bool = False
    state: str = ""
    rate: int = 0
    firmware: str = ""
    reachable: bool = True
    interfaces: tuple[str, ...] = ()
    port: int = 1

    @property
    def usable(self) -> bool:
        """Whether a program of this host could send through it now."""
        return self.reachable and self.state == ACTIVE

    @property
    def described(self) -> str:
        """For people: ``mlx5_ib0 (InfiniBand, 200 Gb/s, virtual function)``."""
        words = [_NAMES[self.kind], *([f"{self.rate} Gb/s"] if self.rate else [])]
        words += ["virtual function"] if self.virtual else []
        words += [f"port {self.state or 'unknown'}"] if self.state != ACTIVE else []
        words += [] if self.reachable else ["no node in /dev/infiniband"]
        return f"{self.name} ({', '.join(words)})"


_NAMES: dict[RdmaKind, str] = {"efa": "EFA", "infiniband": "InfiniBand", "roce": "RoCE", "unknown": "unknown link"}


def survey_rdma(root: str = "/") -> tuple[RdmaDevice, ...]:
    """All RDMA devices, in natural order of their names."""
    nodes = _nodes(root)
    devices = (_device(name, nodes, root) for name in entries(os.path.join(root, "sys/class/infiniband")))
    return tuple(sorted(devices, key=lambda device: _natural(device.name)))


def network_direct(root: str = "/") -> bool:
    """Whether this is a virtual machine with RDMA but without SR-IOV: Hyper-V's Network Direct, which has no verbs."""
    bus = os.path.join(root, "sys/bus/vmbus/devices")
    return any(
        read_text(os.path.join(bus, name, "class_id")).strip(" {}\n").lower() == NETWORK_DIRECT for name in entries(bus)
    )


def _device(name: str, nodes: dict[str, bool], root: str) -> RdmaDevice:
    folder = os.path.join(root, "sys/class/infiniband", name)
    pci = os.path.join(folder, "device")
    number = _port(os.path.join(folder, "ports"))
    port = os.path.join(folder, "ports", number)
    vendor, device = (read_text(os.path.join(pci, part)).strip() for part in ("vendor", "device"))
    rate = read_text(os.path.join(port, "rate")).split()
    return RdmaDevice(
        name,
        _kind(vendor, device, os.path.basename(os.path.realpath(os.path.join(pci, "driver"))), port),
        vendor,
        device,
        _address(pci),
        os.path.lexists(os.path.join(pci, "physfn")) or (vendor == MELLANOX and device in VIRTUAL_FUNCTIONS),
        _state(port),
        int(float(rate[0])) if rate and _is_number(rate[0]) else 0,
        read_text(os.path.join(folder, "fw_ver")).strip(),
        nodes.get(name, not nodes),
        tuple(sorted(entries(os.path.join(pci, "net")))),
        int(number) if number.isdecimal() else 1,
    )


def _port(folder: str) -> str:
    """The first port that is ACTIVE, else the first."""
    ports = sorted(entries(folder), key=_natural)
    return next((port for port in ports if _state(os.path.join(folder, port)) == ACTIVE), ports[0] if ports else "1")


def _state(port: str) -> str:
    return read_text(os.path.join(port, "state")).rpartition(":")[2].strip()


def _kind(vendor: str, device: str, driver: str, port: str) -> RdmaKind:
    if driver == "efa" or (vendor == AMAZON and device.startswith("0xefa")):
        return "efa"
    layer = read_text(os.path.join(port, "link_layer")).strip()
    return "infiniband" if layer == "InfiniBand" else "roce" if layer == "Ethernet" else "unknown"


def _address(pci: str) -> str:
    name = os.path.basename(os.path.realpath(pci))
    return name if name.count(":") == 2 else ""


def _nodes(root: str) -> dict[str, bool]:
    """For each device that has a node for programs, whether it is in this container's /dev; empty: none are known."""
    verbs = os.path.join(root, "sys/class/infiniband_verbs")
    here = set(entries(os.path.join(root, "dev/infiniband")))
    names = {node: read_text(os.path.join(verbs, node, "ibdev")).strip() for node in entries(verbs)}
    return {name: node in here for node, name in names.items() if name}


def _is_number(text: str) -> bool:
    return text.replace(".", "", 1).isdecimal()


def _natural(name: str) -> tuple[tuple[str, int], ...]:
    return tuple((text, int(digits or 0)) for text, digits in re.findall(r"(\D*)(\d*)", name))
