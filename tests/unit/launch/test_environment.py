"""What every launcher adds, and what it leaves alone."""

from __future__ import annotations

import pytest

from musterpoint.fabric.devices import Devices
from musterpoint.fabric.setting import EnvSetting
from musterpoint.launch.inputs import common_environment, unless_set


@pytest.mark.parametrize(
    ("cpus", "room", "threads", "reason"),
    [
        (8, 1, "8", "8 processors of this container over 1 slot"),
        (8, 3, "2", "8 processors of this container over 3 slots"),
        (1, 1, "1", "1 processor of this container over 1 slot"),
        (2, 8, "1", "2 processors of this container over 8 slots"),
    ],
)
def test_threads_are_the_containers_processors_over_the_slots(cpus: int, room: int, threads: str, reason: str) -> None:
    settings = common_environment((), Devices(cpus=cpus, machine_cpus=96), room, (), {}, 25.0)
    assert [(name, value) for name, value, *_ in settings if name.startswith("PYTHON")] == [
        ("PYTHONUNBUFFERED", "1"),
        ("PYTHONFAULTHANDLER", "1"),
    ]
    assert EnvSetting("OMP_NUM_THREADS", threads, reason) in settings


def test_the_users_values_stay_even_when_empty() -> None:
    environ = {
        "PYTHONUNBUFFERED": "", "OMP_NUM_THREADS": "1", "SM_HOSTS": "mine", "NCCL_SOCKET_IFNAME": "ib0",
        "TORCH_ELASTIC_SHUTDOWN_TIMEOUT": "7",
    }  # fmt: skip
    network = [EnvSetting("NCCL_SOCKET_IFNAME", "eth0", "r"), EnvSetting("GLOO_SOCKET_IFNAME", "eth0", "r")]
    exports = [("SM_HOSTS", "[]"), ("SM_MODEL_DIR", "/opt/ml/model")]
    settings = common_environment(exports, Devices(), 1, network, environ, 25.0)
    assert [setting.name for setting in settings] == ["PYTHONFAULTHANDLER", "GLOO_SOCKET_IFNAME", "SM_MODEL_DIR"]


@pytest.mark.parametrize(("grace", "seconds"), [(105.0, "105"), (25.0, "25"), (0.5, "1"), (0.0, "0")])
def test_a_torchrun_of_the_programs_own_gives_its_ranks_the_time_that_ours_have(grace: float, seconds: str) -> None:
    found = {setting.name: setting.value for setting in common_environment((), Devices(), 1, (), {}, grace)}
    assert found["TORCH_ELASTIC_SHUTDOWN_TIMEOUT"] == seconds


def test_the_first_setting_of_a_variable_counts() -> None:
    settings = (EnvSetting("A", "1", ""), EnvSetting("A", "2", ""), EnvSetting("B", "3", ""))
    assert unless_set(settings, {"B": ""}) == (EnvSetting("A", "1", ""),)


def test_a_search_path_goes_on_with_the_users() -> None:
    longer = EnvSetting("LD_LIBRARY_PATH", "/compat:/mine", "r")
    assert unless_set((longer,), {"LD_LIBRARY_PATH": "/mine"}) == (longer,)
