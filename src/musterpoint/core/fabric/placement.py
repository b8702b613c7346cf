"""Which processors each rank of a host runs on: disjoint sets, each near its rank's GPU.

A rank that wanders to the other socket reads its memory, and feeds its GPU, over the link between them. Sources: the
kernel's ``Documentation/admin-guide/cputopology.rst`` and ``ABI/stable/sysfs-devices-node``; CUDA's Programming Guide
(CUDA_VISIBLE_DEVICES, CUDA_DEVICE_ORDER).
"""

import os
from typing import Mapping, Sequence

from musterpoint.base.records import NamedTuple
from musterpoint.core.fabric.devices import entries, named_values, read_text, seen_gpus, survey_gpus
from musterpoint.core.fabric.setting import CpuSet, cpu_numbers

BOUND_BY_USER = ("GOMP_CPU_AFFINITY", "KMP_AFFINITY", "KMP_HW_SUBSET", "OMP_PLACES", "OMP_PROC_BIND", "SLURM_CPU_BIND")
"""Variables by which the user, or Slurm, says where threads run."""


class Processors(NamedTuple):
    """The processors that this process may use.

    cores: the threads of each core, by number; what control groups and affinity forbid is left out.
    nodes: the memory node of each processor; empty where the machine doesn't say.
    near: for each memory node all nodes, the nearest first.
    """

    cores: tuple[tuple[int, ...], ...] = ()
    nodes: Mapping[int, int] = {}
    near: Mapping[int, tuple[int, ...]] = {}


def cpu_sets(slots: int, how: str, environ: Mapping[str, str], root: str = "/") -> tuple[CpuSet, ...]:
    """A set of processors for each of ``slots`` ranks; empty where ranks run where the system puts them.

    ``how``: ``auto`` binds only where there are GPUs at several memory nodes and nobody else has bound threads,
    ``slots`` always.
    """
    if slots < 2 or how not in ("auto", "slots"):
        return ()
    if how == "auto" and any(name in environ for name in BOUND_BY_USER):
        return ()
    gpus = seen_gpus(survey_gpus(root), environ)
    of_slots = [gpus[slot].numa_node if slot < len(gpus) else -1 for slot in range(slots)]
    if how == "auto" and (len(set(of_slots)) < 2 or -1 in of_slots):
        return ()
    return divide(survey_processors(root), of_slots)


def divide(processors: Processors, of_slots: Sequence[int]) -> tuple[CpuSet, ...]:
    """Divides all cores among slots whose GPUs are at these memory nodes (-1: unknown).

    Each node's cores go to its slots; those of a node without slots to the slots of the nearest node that has some.
    Empty where there are fewer cores than slots.
    """
    pools = _pools(processors, of_slots)
    if any(len(pools.get(node, ())) < of_slots.count(node) for node in of_slots):
        pools = {-1: processors.cores}  # a node has too few cores here: nearness can't be had
        of_slots = [-1] * len(of_slots)
    if len(pools[of_slots[0]]) < of_slots.count(of_slots[0]):
        return ()
    taken = dict.fromkeys(pools, 0)
    sets = []
    for node in of_slots:
        count = of_slots.count(node)
        cores = pools[node]
        place = taken[node]
        taken[node] += 1
        mine = cores[place * len(cores) // count : (place + 1) * len(cores) // count]
        where = f"of memory node {node}, where its GPU is" if node >= 0 else "of this host"
        shared = f", with {count - 1} other rank{'s' if count > 2 else ''} on the rest" if count > 1 else ""
        number = f"{len(mine)} core{'s' if len(mine) > 1 else ''}"
        sets.append(CpuSet(listed([cpu for core in mine for cpu in core]), f"{number} {where}{shared}"))
    return tuple(sets)


def _pools(processors: Processors, of_slots: Sequence[int]) -> dict[int, tuple[tuple[int, ...], ...]]:
    """The cores of each node that has slots."""
    if -1 in of_slots or not processors.nodes:
        return {node: () if node >= 0 else processors.cores for node in set(of_slots)}
    wanted = set(of_slots)
    pools: dict[int, list[tuple[int, ...]]] = {node: [] for node in sorted(wanted)}
    for core in processors.cores:
        node = processors.nodes.get(core[0], -1)
        nearest = next((other for other in processors.near.get(node, (node,)) if other in wanted), min(wanted))
        pools[node if node in wanted else nearest].append(core)
    return {node: tuple(cores) for node, cores in pools.items()}


def survey_processors(root: str = "/") -> Processors:
    """The processors that this process may use, read from /proc and /sys."""
    allowed = _allowed(root)
    cpu_folder = os.path.join(root, "sys/devices/system/cpu")
    cores: dict[int, tuple[int, ...]] = {}
    for cpu in allowed:
        siblings = cpu_numbers(read_text(os.path.join(cpu_folder, f"cpu{cpu}/topology/thread_siblings_list"))) or [cpu]
        cores.setdefault(min(siblings), tuple(sorted(set(siblings).intersection(allowed) or {cpu})))
    folder = os.path.join(root, "sys/devices/system/node")
    nodes, near = {}, {}
    for name in entries(folder):
        if name.startswith("node") and name[4:].isdecimal():
            node = int(name[4:])
            nodes.update(dict.fromkeys(cpu_numbers(read_text(os.path.join(folder, name, "cpulist"))), node))
            distances = read_text(os.path.join(folder, name, "distance")).split()
            if all(map(str.isdecimal, distances)):
                near[node] = tuple(sorted(range(len(distances)), key=lambda other: int(distances[other])))
    return Processors(tuple(cores[first] for first in sorted(cores)), nodes, near)


def _allowed(root: str) -> list[int]:
    return cpu_numbers(named_values(os.path.join(root, "proc/self/status")).get("Cpus_allowed_list", ""))


def listed(cpus: Sequence[int]) -> str:
    """The opposite of :func:`cpu_numbers`."""
    parts: list[str] = []
    ordered = sorted(cpus)
    start = 0
    for at in range(1, len(ordered) + 1):
        if at == len(ordered) or ordered[at] != ordered[at - 1] + 1:
            first, last = ordered[start], ordered[at - 1]
            parts.append(str(first) if first == last else f"{first}-{last}")
            start = at
    return ",".join(parts)
