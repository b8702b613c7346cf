"""This host's network interfaces and RDMA ports: state, speed and counters, from the kernel's files."""

import os
from typing import NamedTuple

from musterpoint.core.fabric.devices import entries, read
from musterpoint.core.fabric.rdma import survey_rdma

VIRTUAL = ("lo", "docker", "veth", "br-", "virbr", "cni", "flannel", "cali", "tunl", "dummy", "ifb")
"""How names of interfaces begin that lead to no other host."""
_RDMA_ERRORS = (
    "symbol_error",
    "port_rcv_errors",
    "port_rcv_remote_physical_errors",
    "port_xmit_discards",
    "local_link_integrity_errors",
    "excessive_buffer_overrun_errors",
    "link_error_recovery",
)
"""Counters of an InfiniBand port that count faults of the link, in ``ports/N/counters`` (Linux:
Documentation/ABI/stable/sysfs-class-infiniband)."""


ERRORS_PER_PACKET = 1e-4
"""More than so many errors and drops per packet are no accident."""


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
        state=read(os.path.join(here, "operstate")).strip(),
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
                    read(os.path.join(here, "state")).strip().rpartition(" ")[2],
                    read(os.path.join(here, "link_layer")).strip(),
                    read(os.path.join(here, "rate")).strip(),
                    sum(_number(os.path.join(counters, name)) for name in _RDMA_ERRORS),
                    _number(os.path.join(counters, "link_downed")),
                    reachable.get(device, True),
                )
            )
    return found


def _number(path: str) -> int:
    text = read(path).strip()
    return int(text) if text.removeprefix("-").isdecimal() else 0
