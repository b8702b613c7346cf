"""The kernel's count of processes that it killed in this container because memory ran out."""

from __future__ import annotations

import os


def oom_kills(root: str = "/") -> int:
    """How often the OOM killer struck in our own control group so far; 0 where the kernel doesn't tell.

    Compare two readings. Sources: ``memory.events`` (cgroup v2), ``memory.oom_control`` (v1, Linux 4.13 and later). In
    a container the group's own directory is usually mounted as the root, so the plain path is tried too.
    """
    for path in _counters(root):
        try:
            with open(path) as file:
                counts = dict(line.split()[:2] for line in file if len(line.split()) >= 2)
            return int(counts["oom_kill"])
        except (OSError, KeyError, ValueError):
            continue
    return 0


def _counters(root: str) -> list[str]:
    mount = os.path.join(root, "sys/fs/cgroup")
    paths: list[str] = []
    try:
        with open(os.path.join(root, "proc/self/cgroup")) as file:
            groups = [line.rstrip("\n").split(":", 2) for line in file]
    except OSError:
        groups = []
    for _, controllers, group in (parts for parts in groups if len(parts) == 3):
        if not controllers:
            paths += [mount + group.rstrip("/") + "/memory.events", mount + "/unified" + group + "/memory.events"]
        elif "memory" in controllers.split(","):
            paths.append(mount + "/memory" + group.rstrip("/") + "/memory.oom_control")
    return [*paths, mount + "/memory.events", mount + "/memory/memory.oom_control"]
