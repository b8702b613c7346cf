"""What launchers read off one host of one job, what every launcher adds, and that each plan is complete."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any, Mapping

import pytest

from musterpoint.base.settings import Settings
from musterpoint.core.code.workspace import Workspace
from musterpoint.core.fabric.devices import Devices
from musterpoint.core.fabric.setting import EnvSetting
from musterpoint.core.job.model import EntryPoint, Job
from musterpoint.core.launch.inputs import STANDINS, STARTUP, TASKS, LaunchInputs
from musterpoint.core.launch.launch_plan import Argument, LaunchPlan, ProcessPlan, stub_arguments, through_stub
from musterpoint.core.launch.launchers import LAUNCHERS, every, find_launcher
from musterpoint.core.rollcall.roster import Roster, Seat

from ...running import result_of
from .conftest import Planner


def inputs(
    hosts: int = 2, environ: Mapping[str, str] = {}, paths: tuple[str, ...] = ("/code",), slots: int = 2, **changes: Any
) -> LaunchInputs:
    names = tuple(f"algo-{number}" for number in range(1, hosts + 1))
    seats = tuple(Seat(name, f"10.0.0.{number}", slots) for number, name in enumerate(names, 1))
    job = Job("plain", "j", names, names[-1], names, EntryPoint("t.py"))
    workspace = Workspace("python", "t.py", ("python", "t.py"), "/code", "python", paths)
    roster = Roster("j", "s", seats, "10.0.0.1", 7777, names[-1])
    return LaunchInputs(find_launcher("ranks"), job, workspace, roster, Devices(), Settings(), environ)._replace(
        **changes
    )


@pytest.mark.parametrize(
    ("hosts", "master", "own"),
    [(1, "127.0.0.1", "127.0.0.1"), (2, "10.0.0.1", "10.0.0.2"), (3, "10.0.0.1", "10.0.0.3")],
)
def test_a_host_alone_meets_itself_on_the_loopback(hosts: int, master: str, own: str) -> None:
    made = inputs(hosts)
    assert (made.hosts, made.master_address, made.own_address) == (hosts, master, own)


@pytest.mark.parametrize(
    ("platform", "paths", "own", "expected"),
    [
        ("plain", (), "", [STARTUP]),
        ("plain", ("/code",), "", [STARTUP, "/code"]),
        ("plain", ("/code", "/lib"), "/mine", [STARTUP, "/code", "/lib", "/mine"]),
        ("plain", (), "/mine", [STARTUP, "/mine"]),
        ("plain", (), f"/mine:{STARTUP}", ["/mine", STARTUP]),
        ("sagemaker", ("/code",), "", [STARTUP, "/code", STANDINS]),
        ("sagemaker", ("/code",), "/mine", [STARTUP, "/code", "/mine", STANDINS]),
        ("sagemaker", ("/code",), f"/mine:{STANDINS}", [STARTUP, "/code", "/mine", STANDINS]),
    ],
)
def test_the_code_comes_before_the_users_own_path_and_stand_ins_come_last(
    platform: str, paths: tuple[str, ...], own: str, expected: list[str]
) -> None:
    made = inputs(environ={"PYTHONPATH": own} if own else {}, paths=paths)
    assert made._replace(job=made.job._replace(platform=platform)).pythonpath.split(os.pathsep) == expected


A_AND_B = (EnvSetting("A", "1", "why"), EnvSetting("B", "1", "why"))
ATTEMPT = {"MUSTER_ATTEMPT": "0", "TORCHELASTIC_RESTART_COUNT": "0"}
ALL_LAUNCHERS = [
    "PYTHONUNBUFFERED", "PYTHONFAULTHANDLER", "OMP_NUM_THREADS", "TORCH_ELASTIC_SHUTDOWN_TIMEOUT", *ATTEMPT, TASKS,
]  # fmt: skip


def test_the_environment_of_a_program() -> None:
    made = inputs(environ=dict.fromkeys(["A", *ALL_LAUNCHERS[:2]], "mine") | {"PYTHONPATH": "/mine"}, network=A_AND_B)
    own = EnvSetting("OMP_NUM_THREADS", "7", "the launcher knows better")
    found = {name: value for name, value, *_ in made.program_environment(own)}
    assert found == {
        "OMP_NUM_THREADS": "7", "TORCH_ELASTIC_SHUTDOWN_TIMEOUT": "25", **ATTEMPT, TASKS: "exceptions", "B": "1",
        "PYTHONPATH": os.pathsep.join([STARTUP, "/code", "/mine"]),
    }  # fmt: skip
    del found["PYTHONPATH"]
    assert {name: value for name, value, *_ in made.environment(own)} == found


def test_a_path_without_additions_of_ours_is_left_alone() -> None:
    made = inputs(environ={"PYTHONPATH": f"{STARTUP}:/mine"}, paths=(), network=A_AND_B)
    assert [setting.name for setting in made.program_environment()] == [*ALL_LAUNCHERS, "A", "B"]


@pytest.mark.parametrize(
    ("cpus", "slots", "threads", "reason"),
    [
        (8, 1, "8", "8 processors of this container over 1 slot"),
        (8, 3, "2", "8 processors of this container over 3 slots"),
        (1, 1, "1", "1 processor of this container over 1 slot"),
        (2, 8, "1", "2 processors of this container over 8 slots"),
    ],
)
def test_threads_are_the_containers_processors_over_the_slots(cpus: int, slots: int, threads: str, reason: str) -> None:
    settings = inputs(slots=slots, devices=Devices(cpus=cpus, machine_cpus=96)).environment()
    assert [(name, value) for name, value, *_ in settings if name.startswith("PYTHON")] == [
        ("PYTHONUNBUFFERED", "1"),
        ("PYTHONFAULTHANDLER", "1"),
    ]
    assert EnvSetting("OMP_NUM_THREADS", threads, reason) in settings


@pytest.mark.parametrize("launcher", [each.name for each in every() if each.once])
def test_a_program_that_runs_once_on_a_host_has_all_its_processors(launcher: str) -> None:
    names = [setting.name for setting in inputs(launcher=find_launcher(launcher)).environment()]
    assert "OMP_NUM_THREADS" not in names


def test_the_users_values_stay_even_when_empty() -> None:
    environ = {
        "PYTHONUNBUFFERED": "", "OMP_NUM_THREADS": "1", "SM_HOSTS": "mine", "NCCL_SOCKET_IFNAME": "ib0",
        "TORCH_ELASTIC_SHUTDOWN_TIMEOUT": "7",
    }  # fmt: skip
    network = (EnvSetting("NCCL_SOCKET_IFNAME", "eth0", "r"), EnvSetting("GLOO_SOCKET_IFNAME", "eth0", "r"))
    exports = (("SM_HOSTS", "[]"), ("SM_MODEL_DIR", "/opt/ml/model"))
    settings = inputs(environ=environ, exports=exports, network=network).environment()
    expected = ["PYTHONFAULTHANDLER", *ATTEMPT, TASKS, "GLOO_SOCKET_IFNAME", "SM_MODEL_DIR"]
    assert [setting.name for setting in settings] == expected


@pytest.mark.parametrize(("grace", "seconds"), [(105.0, "105"), (25.0, "25"), (0.5, "1"), (0.0, "0")])
def test_a_torchrun_of_the_programs_own_gives_its_ranks_the_time_that_ours_have(grace: float, seconds: str) -> None:
    settings = inputs(settings=Settings(stop_grace=grace)).environment()
    found = {setting.name: setting.value for setting in settings}
    assert found["TORCH_ELASTIC_SHUTDOWN_TIMEOUT"] == seconds


@pytest.mark.parametrize(
    ("own", "network", "interface"),
    [("", "", ""), ("", "eth1", "eth1"), ("ib0", "", "ib0"), ("ib0,ib1", "eth1", "ib0,ib1")],
)
def test_gloos_interface_is_the_users_or_the_one_towards_the_leader(own: str, network: str, interface: str) -> None:
    found = (EnvSetting("GLOO_SOCKET_IFNAME", network, "why"),) if network else ()
    assert inputs(environ={"GLOO_SOCKET_IFNAME": own}, network=found).gloo_interface == interface


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_every_plan_is_complete(plan: Planner, launcher: str) -> None:
    network = (EnvSetting("GLOO_SOCKET_IFNAME", "eth0", "a reason"),)
    slots = {"a": 1, "b": 1 if find_launcher(launcher).once else 2}
    made = plan(launcher, slots, "b", network=network, exports=(("SM_HOSTS", "[]"),))
    assert made.host == "b"
    assert made.launcher == launcher
    assert made.user_cwd == "/opt/ml/code"
    assert {"GLOO_SOCKET_IFNAME", "SM_HOSTS"} <= {setting.name for setting in made.environment}
    assert all(setting.reason for setting in made.environment)
    assert made.processes or made.daemons or made.ssh
    own = {setting.value for setting in made.environment if setting.name == "PYTHONPATH"}
    assert made.user_pythonpath == f"{STARTUP}:/opt/ml/code:{STANDINS}"
    by_itself = launcher == "ray"  # its workers get the sys.path of the program, on the leader
    assert own == (set() if made.foreign or by_itself else {made.user_pythonpath})
    assert made.foreign == (launcher in ("torchrun", "mpi", "deepspeed"))


PLAN = LaunchPlan(
    "ranks", "algo-1",
    (ProcessPlan("rank", "rank 0", (Argument("python", "why"),), (EnvSetting("RANK", "0", "why"),), "/", 0, 0),),
    (EnvSetting("A", "1", "why"),), 1, 2, 0, "/code",
)  # fmt: skip


@pytest.mark.parametrize(
    ("role", "daemons", "foreign"), [("rank", (), False), ("launcher", (), True), ("rank", ("orted",), True)]
)
def test_ranks_are_foreign_where_a_launcher_or_a_daemon_brings_them_up(
    role: str, daemons: tuple[str, ...], foreign: bool
) -> None:
    process = PLAN.processes[0]._replace(role=role)
    assert PLAN._replace(processes=(process,), daemons=daemons).foreign == foreign


def test_the_stub_is_read_from_where_the_variable_says(tmp_path: Path) -> None:
    stub = tmp_path / "stub"
    stub.write_text("import sys\nprint(sys.argv, sys.flags.isolated, sys.flags.no_site)\n")
    argv = through_stub(sys.executable, ["train.py", "--lr", "a b"])
    done = result_of(argv, {**os.environ, "MUSTER_STUB": str(stub)})
    assert (done.returncode, done.stdout) == (0, "['-c', '--', 'train.py', '--lr', 'a b'] 1 1\n"), done.stderr


def test_words_and_arguments_are_the_same() -> None:
    words = tuple(argument.text for argument in stub_arguments("python3", ["a", "b"]))
    assert words == through_stub("python3", ["a", "b"])
