"""Counts this host's devices: processors, GPUs, Neuron cores, other accelerators, network interfaces; and its memory.

Sources: the kernel's ``drivers/gpu/drm/amd/amdkfd/kfd_topology.c`` (a node without a GPU has the ``gpu_id`` 0, and
those that this container may not use can't be read), torch's ``torch/cuda/__init__.py`` (ROCR_VISIBLE_DEVICES first,
then HIP_VISIBLE_DEVICES or CUDA_VISIBLE_DEVICES), the kernel's ``Documentation/accel/introduction.rst``. For
NVIDIA's GPUs one by one: the driver's ``/proc/driver/nvidia`` (NVIDIA's README, chapter "Using the /proc Filesystem
Interface"), the MIG User Guide's "Device Nodes and Capabilities", the kernel's
``Documentation/ABI/testing/sysfs-bus-pci``.
"""

import os
import sys
from typing import Iterator, Mapping, Sequence

from musterpoint.base.records import NamedTuple

NEURON_CORES_PER_DEVICE = 2
"""Used where the driver gives no number: what Inferentia2 and Trainium1 chips have."""

GROUPED_CORES = 8
"""A Neuron device with so many cores (Trainium2 and 3) groups two of them into one for programs, unless told otherwise
(NEURON_LOGICAL_NC_CONFIG; the Neuron documentation's "Logical NeuronCore configuration")."""


class Devices(NamedTuple):
    """What this host has, as this process may use it.

    cpus: processors that control groups and affinity leave to this process, at least 1.
    machine_cpus: processors of the machine.
    cores: cores among ``cpus``, where these are threads of fewer cores; 0: they aren't, or it isn't known.
    gpus: NVIDIA GPUs, as CUDA would count them.
    neuron_cores: cores of AWS's accelerators, as programs see them.
    amd_gpus, gaudis: AMD's GPUs, as HIP would count them, and Intel's Gaudis.
    interfaces: the kernel's names of network interfaces.
    infiniband: the kernel's names of RDMA devices of any kind, EFA included.
    cpu_only: whether a program can surely use no accelerator of any make here.
    hyperv: whether this is a virtual machine of Azure's, or of another Hyper-V.
    """

    cpus: int = 1
    machine_cpus: int = 1
    gpus: int = 0
    neuron_cores: int = 0
    interfaces: tuple[str, ...] = ()
    infiniband: tuple[str, ...] = ()
    cpu_only: bool = False
    hyperv: bool = False
    cores: int = 0
    amd_gpus: int = 0
    gaudis: int = 0

    @property
    def accelerated(self) -> bool:
        """Whether :func:`musterpoint.core.fabric.fabric_facts.survey_fabric` would tell more about this host."""
        return bool(self.gpus or self.neuron_cores or self.amd_gpus or self.infiniband or self.hyperv)

    @property
    def accelerators(self) -> tuple[int, str]:
        """What ranks are counted by, and what one is called: of the first make that is here; 0 GPUs where none is."""
        makes = (
            (self.gpus, "GPU"),
            (self.neuron_cores, "Neuron core"),
            (self.amd_gpus, "AMD GPU"),
            (self.gaudis, "Gaudi"),
        )
        return next((make for make in makes if make[0]), (0, "GPU"))

    @property
    def slots(self) -> int:
        """How many ranks this host can take: its accelerators, else 1."""
        return self.accelerators[0] or 1


def survey(environ: Mapping[str, str], root: str = "/", affinity: int | None = None) -> Devices:
    """This host's devices, as a process with ``environ`` may use them.

    ``affinity`` is the number of processors this process may run on (asked of the system if None).
    """
    machine = os.cpu_count() or 1
    allowed = affinity or allowed_processors() or machine
    quota = _cpu_quota(root)
    neuron_devices = _numbered(os.path.join(root, "dev"), "neuron")
    gpus = _gpus(environ.get("CUDA_VISIBLE_DEVICES"), root)
    cpus = max(1, allowed if quota is None else min(allowed, int(quota)))
    threads = _threads_per_core(root)
    cpu_only = not gpus and _is_cpu_only("CUDA_VISIBLE_DEVICES" in environ, root)
    amd, gaudis = (0, 0) if cpu_only or gpus or neuron_devices else (_amd_gpus(environ, root), _gaudis(root))
    return Devices(
        cpus=cpus,
        machine_cpus=machine,
        gpus=gpus,
        neuron_cores=sum(_neuron_cores(device, environ, root) for device in neuron_devices),
        interfaces=tuple(sorted(entries(os.path.join(root, "sys/class/net")))),
        infiniband=tuple(sorted(entries(os.path.join(root, "sys/class/infiniband")))),
        cpu_only=cpu_only,
        cores=min(cpus, max(1, allowed // threads)) if threads > 1 else 0,
        hyperv=os.path.isdir(os.path.join(root, "sys/bus/vmbus/devices")),
        amd_gpus=amd,
        gaudis=gaudis,
    )


HABANA = "0x1da3"
"""The PCI vendor of Gaudis; other makes have nodes in ``/dev/accel``, too."""

ACCELERATORS = (
    "accel",
    "davinci",
    "dri/render",
    "dxg",
    "hl",
    "kfd",
    "mlu",
    "mtgpu",
    "neuron",
    "nvgpu",
    "nvhost",
    "vfio/",
)
"""How names below /dev begin where there is an accelerator of another make than NVIDIA's, or NVIDIA's own on Tegra and
WSL: TPUs and Gaudi, Ascend, AMD and Intel, WSL, Gaudi before Linux 6.8, AMD, Cambricon, Moore Threads, AWS."""


def _is_cpu_only(hidden: bool, root: str) -> bool:
    """Whether no accelerator's device is here but NVIDIA's that are ``hidden`` by CUDA_VISIBLE_DEVICES.

    False on systems other than Linux, and for devices that may be no accelerators, such as a display's.
    """
    dev = os.path.join(root, "dev")
    names = entries(dev)
    for folder in ("dri", "vfio"):
        names += [f"{folder}/{name}" for name in entries(os.path.join(dev, folder)) if name != "vfio"]
    others = ACCELERATORS if hidden else (*ACCELERATORS, "nvidia")
    return "null" in names and sys.platform == "linux" and not any(name.startswith(others) for name in names)


def _threads_per_core(root: str) -> int:
    """Of the first core, which stands for all; 1 where the machine doesn't say."""
    siblings = read_text(os.path.join(root, "sys/devices/system/cpu/cpu0/topology/thread_siblings_list")).strip()
    first, _, last = siblings.partition("-")
    if last.isdecimal() and first.isdecimal() and int(last) > int(first):
        return int(last) - int(first) + 1
    return siblings.count(",") + 1


def allowed_processors() -> int | None:
    """The processors that this process may use; None: the system doesn't say."""
    ask = getattr(os, "sched_getaffinity", None)
    return len(ask(0)) if ask else None


def _gpus(visible: str | None, root: str) -> int:
    """NVIDIA GPUs, as CUDA counts them: CUDA stops at the first entry of CUDA_VISIBLE_DEVICES that names no GPU."""
    dev = os.path.join(root, "dev")
    present = len(_numbered(dev, "nvidia"))
    if not present and os.path.exists(os.path.join(dev, "nvidiactl")):
        # the driver makes the nodes on first use
        present = len(entries(os.path.join(root, "proc/driver/nvidia/gpus")))
    return present if visible is None or not present else _visible(visible, present, ("GPU-", "MIG-"))


def _neuron_cores(device: str, environ: Mapping[str, str], root: str) -> int:
    """Cores of one Neuron device (``neuron0``), from the driver's sysfs tree, as programs see them."""
    cores = _physical_cores(device, root)
    grouped = environ.get("NEURON_LOGICAL_NC_CONFIG") or environ.get("NEURON_RT_VIRTUAL_CORE_SIZE") or ""
    size = int(grouped) if grouped in ("1", "2") else 2 if cores == GROUPED_CORES else 1
    return max(1, cores // size)


def _physical_cores(device: str, root: str) -> int:
    for where in ("sys/devices/virtual/neuron_device", "sys/class/neuron_device"):
        folder = os.path.join(root, where, device)
        count = read_text(os.path.join(folder, "core_count")).strip()
        if count.isdecimal() and int(count):
            return int(count)
        cores = _numbered(folder, "neuron_core")
        if cores:
            return len(cores)
    return NEURON_CORES_PER_DEVICE


def _amd_gpus(environ: Mapping[str, str], root: str) -> int:
    """AMD's GPUs, as HIP would count them."""
    if not os.path.exists(os.path.join(root, "dev/kfd")):
        return 0
    nodes = os.path.join(root, "sys/class/kfd/kfd/topology/nodes")
    ids = (read_text(os.path.join(nodes, node, "gpu_id")).strip() for node in entries(nodes))
    count = sum(text.isdecimal() and int(text) > 0 for text in ids)
    for names in (("ROCR_VISIBLE_DEVICES",), ("HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES")):
        named = next((environ[name] for name in names if name in environ), None)
        if named is not None:
            count = _visible(named, count)
    return count


def _visible(named: str, present: int, uuids: tuple[str, ...] = ("GPU-",)) -> int:
    """How many of ``present`` GPUs a list names, by numbers or by what ``uuids`` begin with: it ends at the first entry
    that names none.
    """
    for at, word in enumerate(named.split(",")):
        text = word.strip()
        if not (text.startswith(uuids) or (text.isdecimal() and int(text) < present)):
            return at
    return named.count(",") + 1


def _gaudis(root: str) -> int:
    """Gaudis: by their nodes in ``/dev/accel``, before Linux 6.8 ``/dev/hl0``."""
    older = [name for name in entries(os.path.join(root, "dev")) if name.startswith("hl") and name[2:].isdecimal()]
    newer = [
        name
        for name in entries(os.path.join(root, "dev/accel"))
        if name.startswith("accel")
        and name[5:].isdecimal()
        and read_text(os.path.join(root, "sys/class/accel", name, "device/vendor")).strip() == HABANA
    ]
    return len(newer) or len(older)


def _cpu_quota(root: str) -> float | None:
    """The tightest processor quota of this process's control groups (v1 or v2), in processors; None: no limit."""
    limits = []
    for folder in cgroup_folders(root, "cpu"):
        quota, _, period = read_text(os.path.join(folder, "cpu.max")).strip().partition(" ")
        if not quota:
            quota = read_text(os.path.join(folder, "cpu.cfs_quota_us")).strip()
            period = read_text(os.path.join(folder, "cpu.cfs_period_us")).strip()
        if quota.isdecimal() and period.isdecimal() and int(period):
            limits.append(int(quota) / int(period))
    return min(limits) if limits else None


def cgroup_folders(root: str, kind: str) -> Iterator[str]:
    """This process's control group and all above it that it can see, in each hierarchy that limits ``kind``.

    ``kind``: ``cpu`` or ``memory``.
    """
    mount = os.path.join(root, "sys/fs/cgroup")
    for line in read_text(os.path.join(root, "proc/self/cgroup")).splitlines():
        _, controllers, path = (line.split(":", 2) + ["", ""])[:3]
        if controllers and kind not in controllers.split(","):
            continue
        hierarchies = (controllers, kind) if controllers else ("", "unified")
        for hierarchy in dict.fromkeys(hierarchies):
            parts = [part for part in path.split("/") if part]
            for depth in range(len(parts), -1, -1):
                yield os.path.join(mount, hierarchy, *parts[:depth])


def _numbered(folder: str, prefix: str) -> list[str]:
    """The entries of ``folder`` that are ``prefix`` and a number (``nvidia0``, not ``nvidia-uvm``)."""
    return [name for name in entries(folder) if name.startswith(prefix) and name[len(prefix) :].isdecimal()]


def entries(folder: str) -> list[str]:
    """The names in ``folder``; empty where it can't be read."""
    try:
        return os.listdir(folder)
    except OSError:
        return []


def named_values(path: str) -> dict[str, str]:
    """The lines ``name: value`` of a file of the kernel's; of a name that is there again, the first."""
    rows = (line.partition(":") for line in reversed(read_text(path).splitlines()))
    return {name.strip(): value.strip() for name, _, value in rows}


def read_text(path: str) -> str:
    """The text of the file at ``path``; empty where it can't be read."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


class Memory(NamedTuple):
    """Bytes; 0: not known.

    total: the machine's memory, or less where a control group limits it.
    shared: what is free in /dev/shm.
    """

    total: int = 0
    shared: int = 0


def survey_memory(root: str = "/") -> Memory:
    """This host's memory."""
    limits = [machine_memory(root, "MemTotal")]
    for folder in cgroup_folders(root, "memory"):
        for name in ("memory.max", "memory.limit_in_bytes"):
            text = read_text(os.path.join(folder, name)).strip()
            limits += [int(text)] if text.isdecimal() else []
    return Memory(min((limit for limit in limits if limit), default=0), _free(os.path.join(root, "dev/shm")))


def machine_memory(root: str, name: str, otherwise: int = 0) -> int:
    """Bytes of the whole machine that the kernel calls ``name`` (``MemTotal``, ``MemAvailable``)."""
    words = named_values(os.path.join(root, "proc/meminfo")).get(name, "").split()
    return int(words[0]) * 1024 if words and words[0].isdecimal() else otherwise


def _free(folder: str) -> int:
    if not hasattr(os, "statvfs"):  # Windows, where jobs are planned only
        return 0
    try:
        found = os.statvfs(folder)
    except OSError:
        return 0
    return found.f_frsize * found.f_bavail


class Gpu(NamedTuple):
    """One GPU.

    number: of its node in /dev (``/dev/nvidia3``), by which the driver counts.
    address: its PCI address, in lower case, such as ``0000:10:1c.0``.
    model: such as ``NVIDIA A100-SXM4-40GB``.
    numa_node: the memory node that it is nearest to; -1: the machine doesn't say.
    instances: its MIG instances; 0: it isn't divided.
    """

    number: int
    address: str = ""
    model: str = ""
    numa_node: int = -1
    instances: int = 0


def survey_gpus(root: str = "/") -> tuple[Gpu, ...]:
    """The GPUs whose nodes are in this container, by number; those that the driver doesn't describe have no address."""
    here = {
        int(name[6:])
        for name in entries(os.path.join(root, "dev"))
        if name.startswith("nvidia") and name[6:].isdecimal()
    }
    described = {gpu.number: gpu for gpu in _described(root)}
    numbers = here or (set(described) if os.path.exists(os.path.join(root, "dev/nvidiactl")) else set())
    return tuple(described.get(number, Gpu(number)) for number in sorted(numbers))


def seen_gpus(gpus: Sequence[Gpu], environ: Mapping[str, str]) -> list[Gpu]:
    """The GPUs in CUDA's order, which for equal ones is that of the bus: those that CUDA_VISIBLE_DEVICES names."""
    ordered = sorted(gpus, key=lambda gpu: (gpu.address, gpu.number))
    visible = environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return ordered
    words = [word.strip() for word in visible.split(",")]
    if not all(word.isdecimal() and int(word) < len(ordered) for word in words):
        return []
    return [ordered[int(word)] for word in words]


def _numa_node(address: str, root: str = "/") -> int:
    """The memory node that the PCI device at ``address`` is nearest to; -1: the machine doesn't say."""
    text = read_text(os.path.join(root, "sys/bus/pci/devices", address, "numa_node")).strip()
    return int(text) if text.isdecimal() else -1


def _described(root: str) -> list[Gpu]:
    folder = os.path.join(root, "proc/driver/nvidia/gpus")
    found = []
    for name in entries(folder):
        fields = _fields(read_text(os.path.join(folder, name, "information")))
        number = fields.get("Device Minor", "")
        if number.isdecimal():
            address = name.lower()
            found.append(
                Gpu(
                    int(number),
                    address,
                    fields.get("Model", ""),
                    _numa_node(address, root),
                    _instances(int(number), root),
                )
            )
    return found


def _fields(text: str) -> dict[str, str]:
    rows = (line.partition(":") for line in text.splitlines())
    return {name.strip(): value.strip() for name, _, value in rows}


def _instances(number: int, root: str) -> int:
    """Compute instances of the GPU's MIG instances, each of which CUDA counts as a device."""
    folder = os.path.join(root, f"proc/driver/nvidia/capabilities/gpu{number}/mig")
    return sum(
        name.startswith("ci") and name[2:].isdecimal()
        for part in entries(folder)
        if part.startswith("gi")
        for name in entries(os.path.join(folder, part))
    )
