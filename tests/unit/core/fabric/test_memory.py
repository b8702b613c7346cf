"""How much memory a host has for this process."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from musterpoint.core.fabric.devices import survey_memory

GIB = 1 << 30
MACHINE = {"proc/meminfo": f"MemFree: 1 kB\nMemTotal:       {16 << 20} kB\n"}
CASES = {
    "the machine's": ({}, 16),
    "v2": ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": f"{4 * GIB}\n"}, 4),
    "v2, no limit": ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "max\n"}, 16),
    "v2, of the pod": (
        {"proc/self/cgroup": "0::/pod/c1\n", "sys/fs/cgroup/pod/c1/memory.max": "max\n",
         "sys/fs/cgroup/pod/memory.max": f"{2 * GIB}\n"},
        2,
    ),
    "v1": (
        {"proc/self/cgroup": "4:memory:/docker/a\n3:cpu:/docker/a\n",
         "sys/fs/cgroup/memory/memory.limit_in_bytes": f"{3 * GIB}\n"},
        3,
    ),
    "v1, no limit": (
        {"proc/self/cgroup": "4:memory:/\n", "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n"}, 16,
    ),
}  # fmt: skip


@pytest.mark.parametrize(("files", "gigabytes"), CASES.values(), ids=CASES)
def test_total(tmp_path: Path, files: dict[str, str], gigabytes: int) -> None:
    for name, text in {**MACHINE, **files}.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert survey_memory(str(tmp_path)).total == gigabytes * GIB


def test_nothing_to_read(tmp_path: Path) -> None:
    assert survey_memory(str(tmp_path)) == (0, 0)
    (tmp_path / "dev/shm").mkdir(parents=True)
    found = os.statvfs(tmp_path / "dev/shm")
    assert survey_memory(str(tmp_path)).shared == pytest.approx(found.f_frsize * found.f_bavail, rel=0.1)
