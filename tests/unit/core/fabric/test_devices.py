"""Counting devices in recorded trees, and how many ranks a host can take."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from musterpoint.core.fabric.devices import entries, read_text, survey, survey_memory

GPU_NODES = ("dev/nvidiactl", "dev/nvidia-uvm", "dev/nvidia-modeset", "dev/nvidia-caps/nvidia-cap1")


def tree(root: Path, files: dict[str, str]) -> str:
    """Makes ``files`` (contents by path) below ``root``."""
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return str(root)


def gpus(count: int) -> dict[str, str]:
    """What a container with ``count`` GPUs sees of them."""
    return dict.fromkeys((*GPU_NODES, *(f"dev/nvidia{number}" for number in range(count))), "")


CPUS = {
    # cgroup v2 in a container with its own cgroup namespace
    "v2 quota": ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "400000 100000\n"}, 4),
    "v2 no quota": ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "max 100000\n"}, 16),
    "v2 half a processor": ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "50000 100000\n"}, 1),
    "v2 rounded down": ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "250000 100000\n"}, 2),
    # a pod: the limit is on a group above ours
    "v2 parent": (
        {
            "proc/self/cgroup": "0::/kubepods.slice/pod1/c1\n",
            "sys/fs/cgroup/kubepods.slice/pod1/c1/cpu.max": "max 100000\n",
            "sys/fs/cgroup/kubepods.slice/pod1/cpu.max": "300000 100000\n",
        },
        3,
    ),
    # Docker with cgroup v1: the path is the machine's, the mount the container's own
    "v1 quota": (
        {
            "proc/self/cgroup": "4:memory:/docker/abc\n3:cpu,cpuacct:/docker/abc\n0::/\n",
            "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "200000\n",
            "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000\n",
        },
        2,
    ),
    "v1 no quota": (
        {
            "proc/self/cgroup": "1:cpu:/\n",
            "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n",
            "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
        },
        16,
    ),
    "nothing to read": ({}, 16),
    "garbage": ({"proc/self/cgroup": "what\n", "sys/fs/cgroup/cpu.max": "many some\n"}, 16),
}


@pytest.mark.parametrize(("files", "expected"), CPUS.values(), ids=CPUS)
def test_cpus(tmp_path: Path, files: dict[str, str], expected: int) -> None:
    assert survey({}, tree(tmp_path, files), affinity=16).cpus == expected


def test_affinity_below_the_quota(tmp_path: Path) -> None:
    files = {"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "400000 100000\n"}
    assert survey({}, tree(tmp_path, files), affinity=2).cpus == 2


LAZY = {"dev/nvidiactl": "", "proc/driver/nvidia/gpus/0000:00:1e.0/information": "", "dev/null": ""}
FOREIGN = {"proc/driver/nvidia/gpus/0000:00:1e.0/information": ""}


@pytest.mark.parametrize(
    ("files", "environ", "expected"),
    [
        ({}, {}, 0),
        (gpus(8), {}, 8),
        (gpus(0), {}, 0),
        (LAZY, {}, 1),
        (FOREIGN, {}, 0),
        (gpus(4), {"NVIDIA_VISIBLE_DEVICES": "void"}, 4),
        (gpus(4), {"CUDA_VISIBLE_DEVICES": ""}, 0),
        (gpus(4), {"CUDA_VISIBLE_DEVICES": "-1"}, 0),
        (gpus(4), {"CUDA_VISIBLE_DEVICES": "0, 2"}, 2),
        (gpus(4), {"CUDA_VISIBLE_DEVICES": "3,7,1"}, 1),
        (gpus(4), {"CUDA_VISIBLE_DEVICES": "0,-1,1"}, 1),
        (gpus(4), {"CUDA_VISIBLE_DEVICES": "GPU-8932f937,MIG-7089d0f3"}, 2),
        (gpus(4), {"CUDA_VISIBLE_DEVICES": "NoDevFiles"}, 0),
        ({}, {"CUDA_VISIBLE_DEVICES": "0,1"}, 0),
    ],
)
def test_gpus(tmp_path: Path, files: dict[str, str], environ: dict[str, str], expected: int) -> None:
    assert survey(environ, tree(tmp_path, files)).gpus == expected


NEURON = "sys/devices/virtual/neuron_device"


EIGHT = {"dev/neuron0": "", f"{NEURON}/neuron0/core_count": "8\n"}


@pytest.mark.parametrize(
    ("files", "environ", "cores"),
    [
        ({"dev/neuron0": "", "dev/neuron1": ""}, {}, 4),
        (EIGHT, {}, 4),
        ({"dev/neuron0": "", f"{NEURON}/neuron0/neuron_core0/x": "", f"{NEURON}/neuron0/neuron_core1/x": ""}, {}, 2),
        ({"dev/neuron": ""}, {}, 0),
        (EIGHT, {"NEURON_LOGICAL_NC_CONFIG": "1"}, 8),
        (EIGHT, {"NEURON_RT_VIRTUAL_CORE_SIZE": "1"}, 8),
        (EIGHT, {"NEURON_LOGICAL_NC_CONFIG": "2"}, 4),
        (EIGHT, {"NEURON_LOGICAL_NC_CONFIG": "many"}, 4),
    ],
)
def test_neuron(tmp_path: Path, files: dict[str, str], environ: dict[str, str], cores: int) -> None:
    assert survey(environ, tree(tmp_path, files)).neuron_cores == cores


AMD = {"dev/kfd": "", "dev/null": "", **{
    f"sys/class/kfd/kfd/topology/nodes/{node}/gpu_id": f"{0 if node < 2 else 40 + node}\n" for node in range(6)
}}  # fmt: skip


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, 4),
        ({"ROCR_VISIBLE_DEVICES": "0,1,2"}, 3),
        ({"ROCR_VISIBLE_DEVICES": "0,1,2", "HIP_VISIBLE_DEVICES": "2,3"}, 1),
        ({"HIP_VISIBLE_DEVICES": "0", "CUDA_VISIBLE_DEVICES": "0,1"}, 1),
        ({"CUDA_VISIBLE_DEVICES": "3,0"}, 2),
        ({"CUDA_VISIBLE_DEVICES": ""}, 0),
        ({"ROCR_VISIBLE_DEVICES": "GPU-4b2c1a9f,GPU-5"}, 2),
    ],
)
def test_gpus_of_amd(tmp_path: Path, environ: dict[str, str], expected: int) -> None:
    devices = survey(environ, tree(tmp_path, AMD))
    assert (devices.amd_gpus, devices.slots, devices.gpus) == (expected, expected or 1, 0)
    assert not devices.cpu_only
    assert devices.accelerators == ((expected, "AMD GPU") if expected else (0, "GPU"))


def test_gaudis_are_told_from_other_accelerators(tmp_path: Path) -> None:
    files = {"dev/accel/accel0": "", "dev/accel/accel1": "", "dev/accel/accel_controlD0": "", "dev/null": ""}
    vendors = {"sys/class/accel/accel0/device/vendor": "0x1da3\n", "sys/class/accel/accel1/device/vendor": "0x8086\n"}
    assert survey({}, tree(tmp_path / "new", {**files, **vendors})).gaudis == 1
    assert survey({}, tree(tmp_path / "old", {"dev/hl0": "", "dev/hl1": "", "dev/hl_controlD0": ""})).gaudis == 2
    assert survey({}, tree(tmp_path / "none", {"dev/accel/accel0": ""})).accelerators == (0, "GPU")


def test_interfaces(tmp_path: Path) -> None:
    root = tree(tmp_path, {"sys/class/net/lo/mtu": "", "sys/class/net/eth0/mtu": ""})
    assert survey({}, root).interfaces == ("eth0", "lo")


def test_what_is_there_and_what_is_not(tmp_path: Path) -> None:
    (tmp_path / "version").write_bytes(b"NVRM \xff\n")
    assert entries(str(tmp_path)) == ["version"]
    assert read_text(str(tmp_path / "version")) == "NVRM \ufffd\n"
    assert (entries(str(tmp_path / "none")), read_text(str(tmp_path / "none")), read_text(str(tmp_path))) == (
        [],
        "",
        "",
    )


@pytest.mark.parametrize(
    ("names", "hidden", "expected"),
    [
        (("null", "shm", "tty"), False, True),
        (("null", "nvidia0", "nvidiactl"), False, False),
        (("null", "nvidia0", "nvidiactl"), True, True),
        (("null", "kfd"), True, False),
        (("null", "dri/card0"), False, True),
        (("null", "dri/renderD128"), False, False),
        (("null", "accel/accel0"), False, False),
        (("null", "vfio/vfio"), False, True),
        (("null", "vfio/12"), False, False),
        (("null", "neuron0"), False, False),
        (("null", "dxg"), False, False),
        ((), False, False),
    ],
)
def test_a_host_without_any_accelerator(tmp_path: Path, names: tuple[str, ...], hidden: bool, expected: bool) -> None:
    environ = {"CUDA_VISIBLE_DEVICES": ""} if hidden else {}
    root = tree(tmp_path, dict.fromkeys((f"dev/{name}" for name in names), ""))
    assert survey(environ, root, 1).cpu_only is expected


@pytest.mark.parametrize(
    ("siblings", "quota", "expected"),
    [("0,8\n", "", (16, 8)), ("0-1\n", "", (16, 8)), ("0,8\n", "1200000 100000\n", (12, 8)),
     ("0,8\n", "400000 100000\n", (4, 4)), ("0\n", "", (16, 0)), ("", "", (16, 0)), ("what\n", "", (16, 0))],
)  # fmt: skip
def test_cores(tmp_path: Path, siblings: str, quota: str, expected: tuple[int, int]) -> None:
    files = {"sys/devices/system/cpu/cpu0/topology/thread_siblings_list": siblings}
    files |= {"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": quota} if quota else {}
    found = survey({}, tree(tmp_path, files), affinity=16)
    assert (found.cpus, found.cores) == expected


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
    assert survey_memory(tree(tmp_path, {**MACHINE, **files})).total == gigabytes * GIB


def test_nothing_to_read(tmp_path: Path) -> None:
    assert survey_memory(str(tmp_path)) == (0, 0)
    (tmp_path / "dev/shm").mkdir(parents=True)
    found = os.statvfs(tmp_path / "dev/shm")
    assert survey_memory(str(tmp_path)).shared == pytest.approx(found.f_frsize * found.f_bavail, rel=0.1)
