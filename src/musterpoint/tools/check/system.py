"""What a check asks of the system beside files: sizes of file systems, limits of the process, the clock; and
what this host has beside devices: shared memory, disks, what control groups leave, processors.
"""

from __future__ import annotations

import os
import time
from typing import Iterable, NamedTuple

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
    total, free = _memory(system.root)
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


def _memory(root: str) -> tuple[int, int]:
    return machine_memory(root, "MemTotal"), machine_memory(root, "MemAvailable", UNLIMITED)


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
