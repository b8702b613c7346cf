"""Settings and notes that follow from :class:`musterpoint.core.fabric.facts.Fabric`, for all its networks together."""

from musterpoint.base.records import NamedTuple
from musterpoint.core.fabric.efa import efa_settings
from musterpoint.core.fabric.facts import Fabric
from musterpoint.core.fabric.infiniband import infiniband_settings
from musterpoint.core.fabric.inherited import warnings
from musterpoint.core.fabric.setting import EnvSetting

NEURON_PORT = 46820
"""The preferred port of Neuron's root communicator, as in AWS's examples for several hosts."""


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
        settings += [*efa_settings(fabric), *infiniband_settings(fabric)]
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
