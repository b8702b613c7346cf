"""The OOM killer's counter in every layout a container may have."""

from __future__ import annotations

from pathlib import Path

import pytest

from musterpoint.processes.oom import oom_kills

V2 = "low 0\nhigh 0\nmax 31\noom 4\noom_kill 3\noom_group_kill 0\n"
V1 = "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n"
V1_GROUPS = "12:cpu,cpuacct:/docker/abc\n5:memory:/docker/abc\n0::/system.slice\n"

LAYOUTS = {
    "v2": ("0::/\n", {"sys/fs/cgroup/memory.events": V2}, 3),
    "v2 seen from the host": ("0::/kubepods/pod1\n", {"sys/fs/cgroup/kubepods/pod1/memory.events": V2}, 3),
    "v2 namespaced": ("0::/../../docker/abc\n", {"sys/fs/cgroup/memory.events": V2}, 3),
    "v1 seen from the host": (V1_GROUPS, {"sys/fs/cgroup/memory/docker/abc/memory.oom_control": V1}, 3),
    "v1 namespaced": (V1_GROUPS, {"sys/fs/cgroup/memory/memory.oom_control": V1}, 3),
    "v1 before Linux 4.13": (V1_GROUPS, {"sys/fs/cgroup/memory/memory.oom_control": "under_oom 0\n"}, 0),
    "garbage": ("x\n", {"sys/fs/cgroup/memory.events": "oom_kill many\n\n"}, 0),
    "nothing mounted": ("0::/\n", {}, 0),
    "no proc": (None, {"sys/fs/cgroup/memory.events": V2}, 3),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts(layout: str, tmp_path: Path) -> None:
    groups, files, kills = LAYOUTS[layout]
    if groups is not None:
        files = {**files, "proc/self/cgroup": groups}
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert oom_kills(str(tmp_path)) == kills


def test_this_machine_is_readable() -> None:
    assert oom_kills() >= 0
