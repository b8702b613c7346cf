"""All that is known about this host's accelerators and RDMA network, as one value: what the settings follow from."""

import os
import re
from typing import Mapping

from musterpoint.base.records import NamedTuple
from musterpoint.core.fabric.configured import configured
from musterpoint.core.fabric.devices import Devices, Gpu, entries, named_values, read_text, survey_gpus
from musterpoint.core.fabric.libraries import Libraries, survey_libraries
from musterpoint.core.fabric.rdma import RdmaDevice, network_direct, survey_rdma


class Fabric(NamedTuple):
    """This host's accelerators and RDMA network.

    devices: how many of each device it has.
    gpus: its NVIDIA GPUs.
    rdma: its RDMA devices.
    libraries: the versions of what uses them.
    configured: the variables that are set already, each with its value and where.
    network_direct: whether it has RDMA without SR-IOV.
    topology: NCCL's topology file of the image that fits this machine; empty: none.
    missing: files that variables name and that aren't here, by variable.
    """

    devices: Devices = Devices()
    gpus: tuple[Gpu, ...] = ()
    rdma: tuple[RdmaDevice, ...] = ()
    libraries: Libraries = Libraries()
    configured: Mapping[str, tuple[str, str]] = {}
    network_direct: bool = False
    topology: str = ""
    missing: Mapping[str, str] = {}

    @property
    def uses_nccl(self) -> bool:
        """Whether programs use NCCL here, or RCCL, which reads the same variables for AMD's GPUs."""
        return bool(self.gpus or self.devices.amd_gpus)

    @property
    def efa(self) -> tuple[RdmaDevice, ...]:
        """EFA devices that programs of this container can use."""
        return tuple(device for device in self.rdma if device.kind == "efa" and device.reachable)

    @property
    def infiniband(self) -> tuple[RdmaDevice, ...]:
        """InfiniBand devices whose port is up and that programs of this container can use."""
        return tuple(device for device in self.rdma if device.kind == "infiniband" and device.usable)

    @property
    def roce(self) -> tuple[RdmaDevice, ...]:
        """RDMA devices whose port is Ethernet and up."""
        return tuple(device for device in self.rdma if device.kind == "roce" and device.usable)

    def value(self, name: str) -> str:
        """What the variable ``name`` is set to already; empty: it isn't set."""
        return self.configured.get(name, ("", ""))[0]


def survey_fabric(devices: Devices, environ: Mapping[str, str], interpreter: str = "", root: str = "/") -> Fabric:
    """This host's fabric, for a program of ``interpreter`` with these variables."""
    found = configured(environ, root)
    gpus = survey_gpus(root)
    named = (("NCCL_TOPO_FILE", found.get("NCCL_TOPO_FILE", ("", ""))[0]),)
    files = {name: path for name, path in named if path.startswith("/") and not os.path.exists(_below(root, path))}
    return Fabric(
        devices,
        gpus,
        survey_rdma(root),
        survey_libraries(environ, interpreter, root),
        found,
        network_direct(root),
        _topology(gpus, root),
        files,
    )


_FOLDERS = ("opt/microsoft", "etc/topology")
"""Where Azure's images have topology files (``Azure/azhpc-images:topology/``), and where containers mount them."""


def _topology(gpus: tuple[Gpu, ...], root: str) -> str:
    """The one topology file whose GPUs are exactly this machine's, on processors of its make.

    Images have the files of all machine types side by side, and files of several types name the same PCI addresses.
    """
    here = {gpu.address for gpu in gpus if gpu.address}
    if not here:
        return ""
    vendor = _processor(root)
    fitting = []
    for folder in _FOLDERS:
        base = os.path.join(root, folder)
        for name in sorted(entries(base)):
            if name.endswith("-topo.xml"):
                addresses, vendors = _described(read_text(os.path.join(base, name)))
                if addresses == here and (not vendor or vendor in vendors):
                    fitting.append(f"/{folder}/{name}")
    return fitting[0] if len({name.rpartition("/")[2] for name in fitting}) == 1 else ""


def _described(xml: str) -> tuple[set[str], set[str]]:
    """The addresses of the GPUs (PCI class 0x0302) in a topology file, and the makers of its processors."""
    tags = re.findall(r"<(pci|cpu)\b([^>]*)>", xml)
    rows = [(tag, dict(re.findall(r'(\w+)="([^"]*)"', text))) for tag, text in tags]
    gpus = {row.get("busid", "").lower() for tag, row in rows if tag == "pci" and row.get("class") == "0x030200"}
    return gpus, {row.get("vendor", "") for tag, row in rows if tag == "cpu"}


def _processor(root: str) -> str:
    return named_values(os.path.join(root, "proc/cpuinfo")).get("vendor_id", "")


def _below(root: str, path: str) -> str:
    return os.path.join(root, path.lstrip("/"))
