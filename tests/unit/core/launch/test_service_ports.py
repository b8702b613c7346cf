"""What each launcher's framework asks of a host."""

from __future__ import annotations

from typing import Any

import pytest

from musterpoint.base.settings import Settings
from musterpoint.core.job.model import EntryPoint, Job
from musterpoint.core.launch.launcher import option_for_ports, wanted_ports
from musterpoint.core.launch.launchers import find_launcher
from musterpoint.core.launch.tensorflow.tasks import default_port

NONE: frozenset[str] = frozenset()


def job(hosts: int, me: int = 1) -> Job:
    names = tuple(f"algo-{number}" for number in range(1, hosts + 1))
    return Job("sagemaker", "j", names, f"algo-{me}", names, EntryPoint("t.py"))


WANTED: list[tuple[str, dict[str, Any], Job, tuple[int, ...]]] = [
    ("script", {}, job(2), ()),
    ("torchrun", {"tf_port": 4000}, job(2), ()),
    ("ranks", {}, job(2), ()),
    ("tensorflow", {}, job(2), (7777,)),
    ("tensorflow", {"tf_port": 4000}, job(2), (4000,)),
    ("tensorflow", {"tf_port": 0}, job(2), (0,)),
    ("tensorflow", {}, job(1), ()),
    ("tensorflow", {"tf_port": 4000}, job(1), (4000,)),
    ("parameter-server", {}, job(2), (2222, 2223)),
    ("parameter-server", {"tf_port": 0}, job(2), (0, 0)),
    ("parameter-server", {"tf_port": 65535}, job(2), (65535, 65536)),
    ("parameter-server", {}, job(1), ()),
    ("parameter-server", {"tf_roles": "worker=2,ps=1"}, job(3), (2222, 2223)),
    ("parameter-server", {"tf_roles": "worker=2,ps=1"}, job(3, me=2), (2222,)),
    ("parameter-server", {"tf_roles": "worker=2,ps=1"}, job(1), (2222, 2223, 2224, 2225)),
    # an evaluator serves nobody
    ("parameter-server", {"tf_roles": "worker=1,ps=1,evaluator=1"}, job(4, me=4), ()),
]


@pytest.mark.parametrize(("launcher", "settings", "job", "ports"), WANTED)
def test_wanted(launcher: str, settings: dict[str, Any], job: Job, ports: tuple[int, ...]) -> None:
    assert wanted_ports(find_launcher(launcher), NONE, Settings(**settings), job) == ports


def test_azureml_has_another_first_port() -> None:
    there, here = job(2)._replace(platform="azureml"), job(2)._replace(platform="plain")
    assert wanted_ports(find_launcher("tensorflow"), NONE, Settings(), there) == (2222,)
    assert (
        default_port(find_launcher("tensorflow"), there)
        == default_port(find_launcher("parameter-server"), here)
        == 2222
    )


def test_horovod_has_a_server_on_the_leader() -> None:
    assert wanted_ports(find_launcher("ranks"), frozenset({"horovod"}), Settings(), job(2)) == (0,)
    assert wanted_ports(find_launcher("ranks"), NONE, Settings(), job(2)) == ()


@pytest.mark.parametrize(
    ("launcher", "settings", "words"),
    [
        ("tensorflow", {}, ""),
        ("tensorflow", {"tf_port": 0}, ""),
        ("tensorflow", {"tf_port": 4000}, "--tf-port 4000"),
        ("parameter-server", {"tf_port": 4000}, "--tf-port 4000"),
        ("ranks", {"tf_port": 4000}, ""),
    ],
)
def test_where_only_the_wanted_ports_will_do(launcher: str, settings: dict[str, Any], words: str) -> None:
    assert option_for_ports(find_launcher(launcher), Settings(**settings)) == words
