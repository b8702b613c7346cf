"""This host's devices, counted once."""

from typing import NamedTuple


class Devices(NamedTuple):
    """``cpus`` is what this process may use (cgroup quota and affinity), at least 1; ``machine_cpus`` the machine's.

    ``interfaces`` and ``infiniband`` are the kernel's names; the latter are RDMA devices of any kind, EFA's included.
    """

    cpus: int = 1
    machine_cpus: int = 1
    gpus: int = 0
    neuron_cores: int = 0
    neuron_devices: int = 0
    interfaces: tuple[str, ...] = ()
    infiniband: tuple[str, ...] = ()

    @property
    def slots(self) -> int:
        """Ranks this host has room for: GPUs, else Neuron cores, else 1."""
        return self.gpus or self.neuron_cores or 1
