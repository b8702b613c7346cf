"""Settings for InfiniBand: which ports are meant, and what Azure's virtual machines need besides.

Sources: NCCL's documentation ("Environment Variables"), ``Azure/azhpc-images:topology/`` and its scripts for each
machine type, Microsoft's "NCCL Performance Impact with PCIe Relaxed Ordering" and "Accelerated Networking on HB, HC,
HBv2, HBv3 and NDv2", ``Azure/azhpc-images`` issue 213.
"""

from typing import Iterator

from musterpoint.core.fabric.facts import Fabric
from musterpoint.core.fabric.setting import EnvSetting


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
