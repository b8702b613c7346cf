"""What a host has, from recorded trees of the kernel's files; control groups of both versions."""

from __future__ import annotations

from pathlib import Path

import pytest

from musterpoint.tools.check.machine import UNLIMITED, Space, System, survey_machine

GIB = 1 << 30
MEMINFO = "MemTotal:       16777216 kB\nMemFree:  1 kB\nMemAvailable:    8388608 kB\n"
V1 = {
    "proc/self/cgroup": "9:memory:/docker/abc\n8:pids:/docker/abc\n0::/\n",
    "sys/fs/cgroup/memory/docker/abc/memory.limit_in_bytes": str(4 * GIB),
    "sys/fs/cgroup/memory/docker/abc/memory.usage_in_bytes": str(3 * GIB),
    "sys/fs/cgroup/memory/docker/abc/memory.stat": f"cache 5\ninactive_file 1\ntotal_inactive_file {GIB}\n",
    "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712",
    "sys/fs/cgroup/pids/docker/abc/pids.max": "500",
    "sys/fs/cgroup/pids/docker/abc/pids.current": "100",
    "sys/fs/cgroup/pids/pids.max": "max",
}
V2 = {
    "proc/self/cgroup": "0::/kubepods/pod1\n",
    "sys/fs/cgroup/kubepods/pod1/memory.max": "max",
    "sys/fs/cgroup/kubepods/memory.max": str(4 * GIB),
    "sys/fs/cgroup/kubepods/memory.current": str(3 * GIB),
    "sys/fs/cgroup/kubepods/memory.stat": f"anon 7\ninactive_file {GIB // 2}\nactive_file {GIB // 2}\n",
    "sys/fs/cgroup/kubepods/pod1/pids.max": "500",
    "sys/fs/cgroup/kubepods/pod1/pids.current": "100",
}


class Recorded(System):
    """A recorded tree, with what no file tells."""

    def __init__(
        self, root: Path, limits: dict[str, int] | None = None, spaces: dict[str, Space] | None = None
    ) -> None:
        super().__init__(str(root))
        self.limits, self.spaces = limits or {}, spaces or {}

    def limit(self, name: str) -> int:
        return self.limits.get(name, UNLIMITED)

    def space(self, path: str) -> Space | None:
        return self.spaces.get(path)

    def can_write(self, path: str) -> bool:
        return not path.startswith("/sealed")

    def is_root(self) -> bool:
        return False


def tree(root: Path, files: dict[str, str]) -> Path:
    for name, text in {"proc/meminfo": MEMINFO, **files}.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


@pytest.mark.parametrize("files", [V1, V2], ids=["v1", "v2"])
def test_control_groups_limit_memory_and_processes(tmp_path: Path, files: dict[str, str]) -> None:
    found = survey_machine((), Recorded(tree(tmp_path, files)))
    assert found.memory_limit == 4 * GIB
    assert found.memory_free == 2 * GIB, "what files take in memory can be given back"
    assert (found.memory_total, found.processes_left) == (16 * GIB, 400)


def test_without_limits_the_machine_counts(tmp_path: Path) -> None:
    found = survey_machine((), Recorded(tree(tmp_path, {}), {"NPROC": 300, "NOFILE": 1024, "MEMLOCK": 65536}))
    assert (found.memory_limit, found.memory_free) == (UNLIMITED, 8 * GIB)
    assert (found.processes_left, found.open_files, found.memlock) == (300, 1024, 65536)


def test_places_are_looked_at_once_and_only_where_they_are(tmp_path: Path) -> None:
    spaces = {"/w": Space(9, 4, 7), "/sealed": Space(9, 4, -1), "/ro": Space(9, 4, 7, True), "/dev/shm": Space(64, 60)}
    places = [("here", "/w"), ("output", "/w"), ("x", "/sealed"), ("y", "/ro"), ("z", "/none"), ("", "")]
    found = survey_machine(places, Recorded(tmp_path, {}, spaces))
    assert [(disk.path, disk.inodes, disk.writable) for disk in found.disks] == [
        ("/w", 7, True), ("/sealed", -1, False), ("/ro", 7, False),
    ]  # fmt: skip
    assert (found.shm_total, found.shm_free) == (64, 60)


def test_this_machine_can_be_asked() -> None:
    found = survey_machine([("temporary files", "/tmp")], System())
    assert found.memory_total > 0 and found.memory_free > 0 and found.shm_total > 0
    assert found.disks[0].writable and found.disks[0].total > 0
