"""Settings for AWS's Elastic Fabric Adapter: what libfabric, its provider and NCCL's plugin need, by their versions.

Sources: ``aws/aws-ofi-nccl:doc/efa-env-var.md``, libfabric's ``prov/efa/src``, and what each reason names.
"""

from typing import Iterator

from musterpoint.core.fabric.facts import Fabric
from musterpoint.core.fabric.setting import EnvSetting

_WITHOUT_DEFAULT = ("0xefa0", "0xefa1")
"""Devices with which libfabric doesn't use RDMA unless told so (libfabric pull request 8186)."""

_FEWEST_WITH_RDMA = 4
"""Of those devices, only machines with several cards have RDMA (p4d: 4, trn1: 8); on others libfabric would abort."""


def efa_settings(fabric: Fabric) -> Iterator[EnvSetting]:
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
