"""What launchers read off one host of one job."""

from __future__ import annotations

import os
from typing import Any, Mapping

import pytest

from musterpoint.code.workspace import Workspace
from musterpoint.fabric.devices import Devices
from musterpoint.fabric.setting import EnvSetting
from musterpoint.job.model import EntryPoint, Job
from musterpoint.launch.inputs import STANDINS, LaunchInputs
from musterpoint.rollcall.roster import Roster, Seat
from musterpoint.settings import Settings


def inputs(
    hosts: int = 2, environ: Mapping[str, str] = {}, paths: tuple[str, ...] = ("/code",), **changes: Any
) -> LaunchInputs:
    names = tuple(f"algo-{number}" for number in range(1, hosts + 1))
    seats = tuple(Seat(name, f"10.0.0.{number}", 2) for number, name in enumerate(names, 1))
    job = Job("plain", "j", names, names[-1], names, EntryPoint("t.py"))
    workspace = Workspace("python", "t.py", ("python", "t.py"), "/code", "python", paths)
    roster = Roster("j", "s", seats, "10.0.0.1", 7777, names[-1])
    common = (EnvSetting("OMP_NUM_THREADS", "4", "why"), EnvSetting("A", "1", "why"))
    return LaunchInputs(job, workspace, roster, Devices(), Settings(), environ, common, 2)._replace(**changes)


@pytest.mark.parametrize(
    ("hosts", "master", "own"),
    [(1, "127.0.0.1", "127.0.0.1"), (2, "10.0.0.1", "10.0.0.2"), (3, "10.0.0.1", "10.0.0.3")],
)
def test_a_host_alone_meets_itself_on_the_loopback(hosts: int, master: str, own: str) -> None:
    made = inputs(hosts)
    assert (made.hosts, made.master_address, made.own_address) == (hosts, master, own)


@pytest.mark.parametrize(
    ("paths", "own", "expected"),
    [
        ((), "", ""),
        (("/code",), "", "/code"),
        (("/code", "/lib"), "/mine", os.pathsep.join(["/code", "/lib", "/mine"])),
        ((), "/mine", "/mine"),
    ],
)
def test_the_code_comes_before_the_users_own_path(paths: tuple[str, ...], own: str, expected: str) -> None:
    assert inputs(environ={"PYTHONPATH": own} if own else {}, paths=paths).pythonpath == expected


@pytest.mark.parametrize(
    ("platform", "own", "expected"),
    [
        ("sagemaker", "", ["/code", STANDINS]),
        ("sagemaker", "/mine", ["/code", "/mine", STANDINS]),
        ("sagemaker", f"/mine:{STANDINS}", ["/code", "/mine", STANDINS]),
        ("plain", "/mine", ["/code", "/mine"]),
    ],
)
def test_what_stands_in_for_the_platforms_packages_comes_last(platform: str, own: str, expected: list[str]) -> None:
    made = inputs(environ={"PYTHONPATH": own} if own else {})
    made = made._replace(job=made.job._replace(platform=platform))
    assert made.pythonpath.split(os.pathsep) == expected


def test_the_environment_of_a_program() -> None:
    made = inputs(environ={"A": "mine", "PYTHONPATH": "/mine"})
    own = EnvSetting("OMP_NUM_THREADS", "7", "the launcher knows better")
    assert {name: value for name, value, *_ in made.environment_of(own)} == {
        "OMP_NUM_THREADS": "7",
        "PYTHONPATH": os.pathsep.join(["/code", "/mine"]),
    }


def test_a_path_without_additions_of_ours_is_left_alone() -> None:
    names = [setting.name for setting in inputs(environ={"PYTHONPATH": "/mine"}, paths=()).environment_of()]
    assert names == ["OMP_NUM_THREADS", "A"]
