"""What a check asks of the system: sizes of file systems, limits, control groups, the clock, and the health of GPUs.

NVIDIA's library (NVML) is asked through ``nvidia-ml-py``, the extra ``gpu``; :attr:`Gpus.unlooked` says where it isn't
there.
"""

from __future__ import annotations

import os
import re
import time
from typing import Any, Callable, Iterable, Mapping, NamedTuple

from musterpoint.base.posix import resource
from musterpoint.core.fabric.devices import cgroup_folders, machine_memory, read_text

_NO_LIMIT = 1 << 60
"""Version 1 of control groups writes no limit as a number near 2**63."""


class Space(NamedTuple):
    """A file system: bytes, free inodes (-1: it doesn't count them), and whether it is mounted read-only."""

    total: int = 0
    free: int = 0
    inodes: int = -1
    read_only: bool = False


UNLIMITED = -1


class System:
    """This machine. ``root``: the folder that stands for ``/`` where files of the kernel are read."""

    def __init__(self, root: str = "/") -> None:
        self.root = root

    def path(self, path: str) -> str:
        """``path`` below the root."""
        return os.path.join(self.root, path.lstrip("/"))

    def space(self, path: str) -> Space | None:
        """The file system of ``path``; None where there is none."""
        try:
            found = os.statvfs(self.path(path))
        except (OSError, AttributeError):  # Windows has no statvfs
            return None
        inodes = found.f_favail if found.f_files else -1
        return Space(found.f_frsize * found.f_blocks, found.f_frsize * found.f_bavail, inodes, bool(found.f_flag & 1))

    def can_write(self, path: str) -> bool:
        return os.access(self.path(path), os.W_OK | os.X_OK)

    def limit(self, name: str) -> int:
        """The soft limit ``RLIMIT_<name>`` of this process; :data:`UNLIMITED` where there is none."""
        which = getattr(resource, "RLIMIT_" + name, None)
        if which is None:
            return UNLIMITED
        value = resource.getrlimit(which)[0]
        return UNLIMITED if value == resource.RLIM_INFINITY else int(value)

    def time(self) -> float:
        """Unix time."""
        return time.time()

    def is_root(self) -> bool:
        return hasattr(os, "geteuid") and os.geteuid() == 0


class Disk(NamedTuple):
    """A directory that the job uses. Sizes in bytes; ``inodes`` -1: not counted. ``used_for``: in a few words."""

    used_for: str
    path: str
    total: int = 0
    free: int = 0
    inodes: int = -1
    writable: bool = True


class MachineState(NamedTuple):
    """Sizes in bytes; -1: no limit; 0 for ``shm_total``: there is no /dev/shm.

    ``memory_free``: what this job's ranks may still take, by the machine and by control groups. ``memory_limit``: the
    tightest limit of a control group. ``processes_left``: how many processes and threads may still be started.
    """

    shm_total: int = 0
    shm_free: int = 0
    disks: tuple[Disk, ...] = ()
    memlock: int = UNLIMITED
    open_files: int = UNLIMITED
    processes_left: int = UNLIMITED
    memory_total: int = 0
    memory_limit: int = UNLIMITED
    memory_free: int = UNLIMITED


def survey_machine(places: Iterable[tuple[str, str]], system: System) -> MachineState:
    """This host's state. ``places``: what a directory is used for, and its path; empty paths are left out."""
    shm = system.space("/dev/shm")
    total, free = machine_memory(system.root, "MemTotal"), machine_memory(system.root, "MemAvailable", UNLIMITED)
    limit, left_in_limit = _memory_of_groups(system.root)
    known = [each for each in (free, left_in_limit) if each != UNLIMITED]
    return MachineState(
        shm_total=shm.total if shm else 0,
        shm_free=shm.free if shm else 0,
        disks=tuple(_disks(places, system)),
        memlock=system.limit("MEMLOCK"),
        open_files=system.limit("NOFILE"),
        processes_left=_processes_left(system),
        memory_total=total,
        memory_limit=limit,
        memory_free=min(known, default=UNLIMITED),
    )


def _disks(places: Iterable[tuple[str, str]], system: System) -> Iterable[Disk]:
    seen = set()
    for used_for, path in places:
        space = system.space(path) if path and path not in seen else None
        if space is not None:
            seen.add(path)
            writable = not space.read_only and system.can_write(path)
            yield Disk(used_for, path, space.total, space.free, space.inodes, writable)


def _memory_of_groups(root: str) -> tuple[int, int]:
    """The tightest limit, and the least that a limit leaves: its limit less what can't be given back."""
    limits, left = [], []
    for folder in cgroup_folders(root, "memory"):
        for most, used in (("memory.max", "memory.current"), ("memory.limit_in_bytes", "memory.usage_in_bytes")):
            limit = _number(folder, most)
            if limit is None or limit >= _NO_LIMIT:
                continue
            limits.append(limit)
            usage = _number(folder, used)
            if usage is not None:
                left.append(max(0, limit - max(0, usage - _file_cache(folder))))
    return min(limits, default=UNLIMITED), min(left, default=UNLIMITED)


def _file_cache(folder: str) -> int:
    """Bytes that a control group's files take in memory and that the kernel gives back when they are needed."""
    names = {"inactive_file", "active_file", "total_inactive_file", "total_active_file"}
    lines = [line.split() for line in read_text(os.path.join(folder, "memory.stat")).splitlines()]
    found = {
        words[0]: int(words[1]) for words in lines if len(words) == 2 and words[0] in names and words[1].isdecimal()
    }
    whole = [found[name] for name in found if name.startswith("total_")]  # version 1: with the groups below
    return sum(whole or found.values())


def _processes_left(system: System) -> int:
    left = []
    for folder in cgroup_folders(system.root, "pids"):
        limit, used = _number(folder, "pids.max"), _number(folder, "pids.current")
        if limit is not None and used is not None:
            left.append(max(0, limit - used))
    if (
        not system.is_root()
    ):  # the limit of a user holds for all of its processes, which can't be counted in a container
        limit = system.limit("NPROC")
        left += [limit] if limit != UNLIMITED else []
    return min(left, default=UNLIMITED)


def _number(folder: str, name: str) -> int | None:
    text = read_text(os.path.join(folder, name)).strip()
    return int(text) if text.isdecimal() else None


RECOVERY = (
    "none", "reset of the GPU", "reboot", "drain of its peers", "drain and reset", "recovery of its IMEX domain",
    "reset of its bus", "reboot of the system",
)  # fmt: skip
"""NVML's recovery actions (``nvmlDeviceGpuRecoveryAction_t``, nvml.h), by number."""
THROTTLES: Mapping[int, str] = {
    0x8: "hardware slowdown", 0x20: "heat, by the driver", 0x40: "heat, by the hardware", 0x80: "power brake",
}  # fmt: skip
"""Reasons for lower clocks that are faults (``nvmlClocksEventReasons``, nvml.h); idle and power caps are none."""
XIDS: Mapping[int, str] = {
    **dict.fromkeys((48, 64, 95, 109, 110, 119, 120, 136, 140, 143, 155, 156, 158), "reset"),
    **dict.fromkeys((79, 151, 168), "reboot"), 54: "replace", 74: "look at NVLink",
}  # fmt: skip
"""What NVIDIA's catalogue of Xids asks for where it isn't the application's fault (docs.nvidia.com/deploy/xid-errors;
the buckets of driver r590 as AWS's gpu-cluster-healthcheck has them)."""
_XID = re.compile(r"NVRM: Xid \((?:PCI:)?([0-9a-fA-F:.]+)[^)]*\): (\d+)")
_LOGGED = 1 << 20
LARGE = 512 << 20
"""Bytes of a GPU's memory: more than the driver itself takes."""


class Gpu(NamedTuple):
    """One GPU.

    number: as nvidia-smi counts.
    recovery: what the driver asks for; empty for nothing.
    uncorrected: errors of its memory since the driver was loaded; -1: no ECC.
    repair: the repair of its memory that is due or failed; empty for none.
    throttled: reasons for low clocks that are faults.
    lanes, most_lanes: of PCI Express.
    used: bytes of its memory.
    """

    number: int
    name: str = ""
    recovery: str = ""
    uncorrected: int = -1
    repair: str = ""
    throttled: tuple[str, ...] = ()
    lanes: int = 0
    most_lanes: int = 0
    used: int = 0


class Xid(NamedTuple):
    """An error number of a GPU in the kernel's log. ``bus``: the GPU's PCI address."""

    bus: str
    number: int


class Gpus(NamedTuple):
    """``unlooked``: why NVML wasn't asked; empty: it was. ``driver``: its version."""

    unlooked: str = ""
    driver: str = ""
    all: tuple[Gpu, ...] = ()
    xids: tuple[Xid, ...] = ()


def survey_gpus(expected: int, system: System) -> Gpus:
    """The GPUs of this host. Where none is ``expected`` NVML isn't asked."""
    driver = read_text(os.path.join(system.root, "sys/module/nvidia/version")).strip()
    if not expected:
        return Gpus(driver=driver)
    xids = kernel_xids(system.root)
    try:
        import pynvml  # the extra gpu
    except ImportError:
        return Gpus("nvidia-ml-py isn't installed for musterpoint's Python", driver, (), xids)
    return ask_nvml(pynvml, driver, xids)


def ask_nvml(nvml: Any, driver: str = "", xids: tuple[Xid, ...] = ()) -> Gpus:
    """What the library says. ``nvml``: the module ``pynvml``."""
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        return Gpus(f"NVML doesn't answer: {error}", driver, (), xids)
    try:
        driver = _text(_tried(nvml, nvml.nvmlSystemGetDriverVersion)) or driver
        found = tuple(_gpu(nvml, index) for index in range(_tried(nvml, nvml.nvmlDeviceGetCount) or 0))
    finally:
        _tried(nvml, nvml.nvmlShutdown)
    return Gpus("", driver, found, xids)


def _gpu(nvml: Any, index: int) -> Gpu:
    handle = _tried(nvml, nvml.nvmlDeviceGetHandleByIndex, index)
    if handle is None:
        return Gpu(index, recovery="an answer at all: it is lost")

    def ask(name: str, *arguments: Any) -> Any:
        call = getattr(nvml, name, None)  # older releases lack some
        return _tried(nvml, call, handle, *arguments) if call else None

    reasons = ask("nvmlDeviceGetCurrentClocksThrottleReasons") or 0
    uncorrected = ask("nvmlDeviceGetTotalEccErrors", nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nvml.NVML_VOLATILE_ECC)
    memory = ask("nvmlDeviceGetMemoryInfo")
    return Gpu(
        number=index,
        name=_text(ask("nvmlDeviceGetName")),
        recovery=_recovery(nvml, handle),
        uncorrected=-1 if uncorrected is None else uncorrected,
        repair=_repair(ask("nvmlDeviceGetRemappedRows"), ask("nvmlDeviceGetRetiredPagesPendingStatus")),
        throttled=tuple(words for bit, words in THROTTLES.items() if reasons & bit),
        lanes=ask("nvmlDeviceGetCurrPcieLinkWidth") or 0,
        most_lanes=ask("nvmlDeviceGetMaxPcieLinkWidth") or 0,
        used=memory.used if memory is not None else 0,
    )


def _recovery(nvml: Any, handle: Any) -> str:
    field = getattr(nvml, "NVML_FI_DEV_GET_GPU_RECOVERY_ACTION", None)
    values = _tried(nvml, nvml.nvmlDeviceGetFieldValues, handle, [field]) if field is not None else None
    if not values or values[0].nvmlReturn:
        return ""
    action = int(values[0].value.uiVal)
    return "" if not action else RECOVERY[action] if action < len(RECOVERY) else f"recovery action {action}"


def _repair(rows: Any, pages: Any) -> str:
    """``rows``: corrected, uncorrected, whether a remapping is pending, and whether one failed."""
    if rows is not None and rows[3]:
        return "rows of its memory couldn't be remapped"
    if rows is not None and rows[2]:
        return "rows of its memory are to be remapped at the next reset"
    return "pages of its memory are to be retired at the next reset" if pages else ""


def _tried(nvml: Any, call: Callable[..., Any], *arguments: Any) -> Any:
    """What ``call`` gives; None where the driver or GPU doesn't know it."""
    try:
        return call(*arguments)
    except nvml.NVMLError:
        return None


def _text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value or "")


def kernel_xids(root: str = "/") -> tuple[Xid, ...]:
    """The Xids in the kernel's log; none where this process may not read it, as in most containers."""
    try:
        fd = os.open(os.path.join(root, "dev/kmsg"), os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    except OSError:
        return ()
    text, size = [], 0
    try:
        while size < _LOGGED and (piece := os.read(fd, 8192)):  # one record of the log each
            text.append(piece.decode("utf-8", "replace"))
            size += len(piece)
    except OSError:
        pass  # the log's end, or records that were overwritten meanwhile
    finally:
        os.close(fd)
    found = [Xid(bus, int(number)) for bus, number in _XID.findall("".join(text))]
    return tuple(dict.fromkeys(found))
