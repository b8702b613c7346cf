"""Settings and notes that follow from :class:`musterpoint.core.fabric.fabric_facts.Fabric`, network by network.

Sources for EFA (what libfabric, its provider and NCCL's plugin need, by their versions):
``aws/aws-ofi-nccl:doc/efa-env-var.md``, libfabric's ``prov/efa/src``, and what each reason names. For InfiniBand:
NCCL's documentation ("Environment Variables"), ``Azure/azhpc-images:topology/`` and its scripts for each machine type,
Microsoft's "NCCL Performance Impact with PCIe Relaxed Ordering" and "Accelerated Networking on HB, HC, HBv2, HBv3 and
NDv2", ``Azure/azhpc-images`` issue 213.
"""

from typing import Iterator

from musterpoint.base.records import NamedTuple
from musterpoint.core.fabric.fabric_facts import Fabric
from musterpoint.core.fabric.inherited import warnings
from musterpoint.core.fabric.setting import EnvSetting

NEURON_PORT = 46820
"""The preferred port of Neuron's root communicator, as in AWS's examples for several hosts."""
_WITHOUT_DEFAULT = ("0xefa0", "0xefa1")
"""Devices with which libfabric doesn't use RDMA unless told so (libfabric pull request 8186)."""

_FEWEST_WITH_RDMA = 4
"""Of those devices, only machines with several cards have RDMA (p4d: 4, trn1: 8); on others libfabric would abort."""


class Advice(NamedTuple):
    """What is set on this host, and what is said about it.

    settings: variables, without those that are configured already.
    notes: sentences for the log and ``muster plan``.
    """

    settings: tuple[EnvSetting, ...] = ()
    notes: tuple[str, ...] = ()


def advise(fabric: Fabric, root_address: str = "", root_port: int = NEURON_PORT) -> Advice:
    """The settings for a group of several hosts; for a group of one, where ``root_address`` is empty, only NCCL's own.

    ``root_address`` is the leader's numeric address, ``root_port`` a free port there.
    """
    settings = []
    if fabric.uses_nccl:
        settings.append(EnvSetting("NCCL_DEBUG", "WARN", "NCCL says why it fails, and little else"))
    if root_address:
        settings += [*_efa_settings(fabric), *infiniband_settings(fabric)]
    if root_address and fabric.devices.neuron_cores:
        host = f"[{root_address}]" if ":" in root_address else root_address
        settings.append(
            EnvSetting("NEURON_RT_ROOT_COMM_ID", f"{host}:{root_port}", "where Neuron's runtimes meet: the leader")
        )
    kept = tuple(setting for setting in settings if setting.name not in fabric.configured)
    return Advice(kept, (*_network(fabric, root_address), *warnings(fabric, bool(root_address))))


def _network(fabric: Fabric, root_address: str) -> tuple[str, ...]:
    """What this host has, in one line: the first question about any slow job."""
    if not root_address or not fabric.rdma:
        return ()
    libraries = fabric.libraries
    direct = f"GPUDirect RDMA by {libraries.peermem}" if libraries.peermem else ""
    return (f"network: {'; '.join(filter(None, (_shown(fabric), libraries.shown, direct)))}",)


def _shown(fabric: Fabric) -> str:
    """The devices, those that are alike together: ``8 x InfiniBand, 200 Gb/s, virtual function (mlx5_ib0, …)``."""
    groups: dict[str, list[str]] = {}
    for device in fabric.rdma:
        groups.setdefault(device.described.partition(" (")[2].rstrip(")"), []).append(device.name)
    parts = []
    for what, names in groups.items():
        listed = ", ".join(names) if len(names) < 4 else f"{names[0]} to {names[-1]}"
        parts.append(f"{len(names)} x {what} ({listed})")
    return "; ".join(parts)


def _efa_settings(fabric: Fabric) -> Iterator[EnvSetting]:
    """None where there is no EFA device: with the provider set, jobs on such machines hang at their start."""
    if not fabric.efa:
        return
    libraries = fabric.libraries
    count = len(fabric.efa)
    here = f"{count} EFA device{'s' if count > 1 else ''} here"
    plugin, nccl = libraries.number("ofi_nccl"), libraries.number("nccl")
    libfabric, installer = libraries.number("libfabric"), libraries.number("efa_installer")
    yield EnvSetting("FI_PROVIDER", "efa", f"{here}: libfabric takes no other network without a word")
    if _needs_rdma_told(fabric, plugin, libfabric):
        yield EnvSetting("FI_EFA_USE_DEVICE_RDMA", "1", _why_rdma(fabric))
    if plugin and plugin < (1, 6) and fabric.gpus:
        yield EnvSetting(
            "NCCL_PROTO",
            "simple",
            f"aws-ofi-nccl {libraries.ofi_nccl} is older than 1.6: EFA delivers out of order, "
            "and NCCL's other protocols count on the order",
        )
    if fabric.gpus and nccl >= (2, 19) and installer and installer < (1, 29, 1):
        yield EnvSetting(
            "FI_EFA_SET_CUDA_SYNC_MEMOPS",
            "0",
            f"NCCL {libraries.nccl} with EFA installer {libraries.efa_installer}, "
            "older than 1.29.1: libfabric would fail on NCCL's memory",
        )
    kernel = libraries.number("kernel")
    if kernel and kernel < (5, 15):
        yield EnvSetting(
            "FI_EFA_FORK_SAFE",
            "1",
            f"Linux {'.'.join(map(str, kernel))} is older than 5.15: memory of EFA's isn't "
            "safe in processes that fork, such as for DataLoader's workers",
        )
    yield EnvSetting(
        "FI_EFA_USE_HUGE_PAGE", "0", "huge pages run out when ranks fork (DataLoader's workers): Cannot allocate memory"
    )


def _needs_rdma_told(fabric: Fabric, plugin: tuple[int, ...], libfabric: tuple[int, ...]) -> bool:
    if any(device.device not in _WITHOUT_DEFAULT for device in fabric.efa) or len(fabric.efa) < _FEWEST_WITH_RDMA:
        return False
    if fabric.devices.neuron_cores:
        return True
    old = (plugin and plugin < (1, 7)) or (libfabric and libfabric < (1, 18))
    return bool(fabric.gpus and old)


def _why_rdma(fabric: Fabric) -> str:
    if fabric.devices.neuron_cores:
        return "Neuron's runtime on this generation of EFA: libfabric uses its RDMA only when told so"
    versions = f"libfabric {fabric.libraries.libfabric or '?'}, aws-ofi-nccl {fabric.libraries.ofi_nccl or '?'}"
    return f"{versions}: before 1.18 and 1.7 RDMA of this generation of EFA is used only when told so"


def infiniband_settings(fabric: Fabric) -> Iterator[EnvSetting]:
    """None where no InfiniBand port is up."""
    if not fabric.infiniband:
        return
    if fabric.roce:
        yield from _ports(fabric)
    if not fabric.devices.hyperv:
        return
    if fabric.gpus:
        if any(device.virtual for device in fabric.infiniband):
            yield EnvSetting(
                "NCCL_IB_PCI_RELAXED_ORDERING",
                "1",
                "InfiniBand of a virtual machine: without relaxed ordering the PCI bus holds GPUDirect RDMA back",
            )
        yield EnvSetting("CUDA_DEVICE_ORDER", "PCI_BUS_ID", "GPUs are numbered as Azure's topology files count them")
        yield EnvSetting(
            "OMPI_MCA_coll_hcoll_enable",
            "0",
            "under Open MPI: NCCL does the collectives, and hcoll would open every "
            "port for them at the start; Azure's own scripts switch it off",
        )
        if fabric.topology:
            yield EnvSetting(
                "NCCL_TOPO_FILE",
                fabric.topology,
                "the image's file for this machine's GPUs: a virtual machine "
                "doesn't show NCCL which GPU is near which port",
            )


def _ports(fabric: Fabric) -> Iterator[EnvSetting]:
    """The InfiniBand ports by name, beside Ethernet ports that NCCL and UCX would use as well."""
    names = [device.name for device in fabric.infiniband]
    others = ", ".join(device.name for device in fabric.roce)
    reason = f"the InfiniBand ports; {others} is Ethernet, and would be used with them"
    if fabric.uses_nccl:
        yield EnvSetting("NCCL_IB_HCA", "=" + ",".join(names), reason)
    ports = ",".join(f"{device.name}:{device.port}" for device in fabric.infiniband)
    yield EnvSetting("UCX_NET_DEVICES", ports, reason)
