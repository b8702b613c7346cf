"""Warnings about what is configured already: values that contradict this host's devices, and versions known to fail.

Nothing of it is changed. Every sentence names the variable, its value and where it is set.
"""

from typing import Callable, Iterator

from musterpoint.base.records import NamedTuple
from musterpoint.core.fabric.configured import fits_any
from musterpoint.core.fabric.fabric_facts import Fabric
from musterpoint.core.fabric.libraries import Libraries


def warnings(fabric: Fabric, several_hosts: bool = True) -> tuple[str, ...]:
    """Sentences about this host. Those about the network between hosts are left out for a job of one."""
    found = [*_between_gpus(fabric), *_msccl(fabric)]
    if several_hosts:
        found += [*_hardware(fabric), *_switched_off(fabric), *_named(fabric), *_of_efa(fabric), *_known(fabric)]
    return tuple(found)


def _set(fabric: Fabric, name: str) -> str:
    value, where = fabric.configured[name]
    return f"{name}={value} ({where})"


def _is(fabric: Fabric, name: str, *values: str) -> bool:
    return name in fabric.configured and fabric.value(name).strip().lower() in values


def _hardware(fabric: Fabric) -> Iterator[str]:
    """Devices that are here and can't be used, and why."""
    if fabric.network_direct and not fabric.rdma:
        yield (
            "this virtual machine has RDMA without SR-IOV (Hyper-V's Network Direct): there is no InfiniBand device "
            "for NCCL, Gloo, UCX or Open MPI here, so ranks talk over TCP; sizes with SR-IOV, such as NC24rs_v3, have "
            "one"
        )
    hidden = [device.name for device in fabric.rdma if not device.reachable and device.kind in ("efa", "infiniband")]
    used = [device.name for device in (*fabric.efa, *fabric.infiniband)]
    if hidden and used:
        yield (
            f"of the machine's RDMA devices this container has {_listed(used)}, and not {_listed(hidden)}: ranks use "
            "what is here; if the whole machine is meant, ask Kubernetes' device plugin for all"
        )
    elif hidden:
        yield (
            f"warning: {_listed(hidden)}: the machine has this RDMA network, but its nodes aren't in this container's "
            "/dev/infiniband, so ranks talk over TCP: pass them to the container (docker run "
            "--device=/dev/infiniband, Kubernetes' device plugin)"
        )
    down = [
        f"{device.name} {device.state or 'unknown'}"
        for device in fabric.rdma
        if device.kind == "infiniband" and device.reachable and not device.usable
    ]
    if down:
        yield f"warning: InfiniBand ports that aren't ACTIVE, and that NCCL leaves out: {_listed(down)}"
    divided = [gpu for gpu in fabric.gpus if gpu.instances]
    if divided:
        several = ", ".join(f"GPU {gpu.number}: {gpu.instances}" for gpu in divided)
        yield (
            f"GPUs are divided into MIG instances ({several}): a rank sees the one that CUDA_VISIBLE_DEVICES names, "
            "and NCCL can't join instances of one GPU"
        )


def _switched_off(fabric: Fabric) -> Iterator[str]:
    """RDMA that is here, and that a variable keeps NCCL from."""
    if fabric.infiniband and _is(fabric, "NCCL_IB_DISABLE", "1"):
        names = _listed([device.name for device in fabric.infiniband])
        yield (
            f"warning: {_set(fabric, 'NCCL_IB_DISABLE')} keeps NCCL from this host's InfiniBand ({names}), and ranks "
            "talk over TCP: unset it, or set it to 0, unless that is meant"
        )
    if (fabric.infiniband or fabric.efa) and _is(fabric, "NCCL_NET", "socket"):
        yield f"warning: {_set(fabric, 'NCCL_NET')} keeps NCCL from this host's RDMA network, and ranks talk over TCP"
    if fabric.efa and _is(fabric, "NCCL_NET_PLUGIN", "none"):
        yield f"warning: {_set(fabric, 'NCCL_NET_PLUGIN')} keeps NCCL from this host's EFA, and ranks talk over TCP"
    if not fabric.efa and _is(fabric, "NCCL_NET", "aws libfabric", "ofi", "libfabric"):
        yield f"warning: {_set(fabric, 'NCCL_NET')}, but there is no EFA device here: NCCL finds no such network"
    if not fabric.infiniband and not fabric.roce and _is(fabric, "NCCL_NET", "ib"):
        yield f"warning: {_set(fabric, 'NCCL_NET')}, but no InfiniBand or RoCE port is up here: NCCL fails"


def _named(fabric: Fabric) -> Iterator[str]:
    """Devices and files that variables name and that aren't here."""
    ports = [device.name for device in fabric.rdma if device.kind != "efa"]
    if ports and fabric.value("NCCL_IB_HCA") and not fits_any(fabric.value("NCCL_IB_HCA"), ports):
        yield (
            f"warning: {_set(fabric, 'NCCL_IB_HCA')} names no RDMA device of this host, which has {_listed(ports)}: "
            "NCCL will use TCP"
        )
    known = {device.name for device in fabric.rdma} | set(fabric.devices.interfaces)
    words = [word.strip().partition(":")[0] for word in fabric.value("UCX_NET_DEVICES").split(",") if word.strip()]
    strange = [word for word in words if word != "all" and word not in known]
    if words and strange and known:
        yield (
            f"warning: {_set(fabric, 'UCX_NET_DEVICES')}: this host has no {_listed(strange)}, and UCX fails without "
            "the devices it is told"
        )
    for name, path in fabric.missing.items():
        yield f"warning: {_set(fabric, name)}: there is no {path} in this container"


_FORK_SAFE = ("RDMAV_FORK_SAFE", "IBV_FORK_SAFE")
_COPIES_ON_FORK = (5, 15)


def _of_efa(fabric: Fabric) -> Iterator[str]:
    kernel = fabric.libraries.number("kernel")
    for name in _FORK_SAFE:
        if name in fabric.configured and (fabric.efa or (fabric.rdma and kernel >= _COPIES_ON_FORK)):
            why = (
                "with EFA it can break ranks that fork"
                if fabric.efa
                else (f"Linux {'.'.join(map(str, kernel))} needs no such help, and it can crash the ranks")
            )
            yield f"warning: {_set(fabric, name)}: {why}; unset it" + (
                " (libfabric's own is FI_EFA_FORK_SAFE)" if fabric.efa else ""
            )
    if _is(fabric, "FI_PROVIDER", "efa") and not fabric.efa:
        yield (
            f"warning: {_set(fabric, 'FI_PROVIDER')}, but this host has no EFA device: libfabric finds no network, "
            "and jobs hang at their start; unset it"
        )
    elif fabric.efa and fabric.value("FI_PROVIDER") and "efa" not in fabric.value("FI_PROVIDER"):
        yield f"warning: {_set(fabric, 'FI_PROVIDER')} keeps libfabric from this host's EFA"
    if _is(fabric, "NCCL_PROTO", "simple") and fabric.gpus and not fabric.efa:
        yield (
            f"warning: {_set(fabric, 'NCCL_PROTO')} is for EFA with an old plugin, and there is no EFA here: NCCL's "
            "other protocols are faster for small messages"
        )
    if fabric.efa and fabric.gpus and not fabric.libraries.ofi_nccl:
        yield (
            "warning: this host has EFA, but NCCL's plugin for it (aws-ofi-nccl) was not found in "
            "/opt/amazon/ofi-nccl, in /opt/aws-ofi-nccl or on LD_LIBRARY_PATH: without it NCCL uses TCP"
        )


def _between_gpus(fabric: Fabric) -> Iterator[str]:
    if len(fabric.gpus) > 1 and _is(fabric, "NCCL_P2P_DISABLE", "1"):
        yield (
            f"warning: {_set(fabric, 'NCCL_P2P_DISABLE')}: this host's {len(fabric.gpus)} GPUs exchange data through "
            "memory, not directly"
        )


def _msccl(fabric: Fabric) -> Iterator[str]:
    """Microsoft's NCCL with schedules of its own, where it is set up: a fact about the job, and no fault."""
    names = [name for name in ("NCCL_ALGO", "MSCCL_XML_FILES") if name in fabric.configured]
    if "msccl" in fabric.value("NCCL_ALGO").lower() or "MSCCL_XML_FILES" in names:
        yield f"MSCCL is set up, and kept: {', '.join(_set(fabric, name) for name in names)}"


class KnownVersion(NamedTuple):
    """Versions that are known to fail or to be slow.

    found: whether a host has them.
    sentence: what happens, and what mends it.
    source: where that was found.
    """

    found: Callable[[Libraries], bool]
    sentence: str
    source: str


KNOWN = (
    KnownVersion(
        lambda libraries: libraries.number("ofi_nccl")[:2] == (1, 18),
        "aws-ofi-nccl 1.18.0 (EFA installer 1.47.0) hangs in large broadcasts between hosts; 1.20.0 (EFA installer "
        "1.49.0) doesn't",
        "aws/deep-learning-containers pull requests 6551 and 6668",
    ),
    KnownVersion(
        lambda libraries: (
            libraries.number("ofi_nccl") == (1, 12, 0) and libraries.number("efa_installer")[:2] == (1, 35)
        ),
        "aws-ofi-nccl 1.12.0 with EFA installer 1.35.0 is slow; the plugin's 1.12.1 isn't",
        "awslabs/awsome-distributed-ai pull request 466",
    ),
)


def _known(fabric: Fabric) -> Iterator[str]:
    if not fabric.efa:
        return
    for known in KNOWN:
        if known.found(fabric.libraries):
            yield f"warning: {known.sentence} ({known.source})"


def _listed(names: list[str]) -> str:
    return ", ".join(names) if len(names) <= 8 else f"{', '.join(names[:7])} and {len(names) - 7} more"
