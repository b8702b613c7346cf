"""This host's memory: what control groups leave to this process, and what shared memory it can take."""

import os

from musterpoint.base.records import NamedTuple
from musterpoint.core.fabric.devices import cgroup_folders, named_values, read


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
            text = read(os.path.join(folder, name)).strip()
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
