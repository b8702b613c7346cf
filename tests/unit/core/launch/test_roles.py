"""A job with roles on one host: its options, its GPUs, and what each program is told."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from musterpoint.core.launch.roles import (
    OF_LOCAL,
    VISIBLE,
    OfRole,
    devices_of,
    digest,
    gpu_sets,
    of_this_host,
    with_roles,
)

from musterpoint.base.errors import UsageError
from musterpoint.base.settings import BY_FIELD, Settings, from_environ
from musterpoint.core.fabric.devices import Devices
from musterpoint.core.job.model import EntryPoint, InstanceGroup, Job
from musterpoint.core.launch.host_plan import build_plan
from musterpoint.core.launch.inputs import LaunchInputs
from musterpoint.core.launch.launch_plan import LaunchPlan
from musterpoint.core.launch.launchers import find_launcher
from musterpoint.core.rollcall.roster import Roster, Seat
from musterpoint.local.options import LOCAL

from .conftest import WORKSPACE

HOSTS = "algo-1", "algo-2", "algo-3"
TABLES: list[dict[str, Any]] = [
    {"name": "trainer", "hosts": 2, "launcher": "ranks", "slots": 2, "env": {"A": 1}, "after": ["policy", "reward"]},
    {"name": "policy", "program": "serve.sh", "ready": "port 8000"},
    {"name": "reward", "beside": "trainer", "gpus": 1, "program": "reward.py", "ends": "never", "env": {"B": "2"}},
]


def job(me: str = "algo-1", **more: Any) -> Job:
    return Job("sagemaker", "digits", HOSTS, me, HOSTS, EntryPoint("train.py"), **more)


def of_file(folder: Path, text: str, environ: dict[str, str], given: dict[str, Any], me: str = "algo-1") -> OfRole:
    (folder / "job.toml").write_text(text)
    options = from_environ(environ, given)._replace(job_file="job.toml")
    return of_this_host(job(me), options, environ, given, str(folder))


def made(me: str = "algo-1", tables: list[dict[str, Any]] = TABLES) -> OfRole:
    return of_this_host(job(me), Settings(job_file=json.dumps({"roles": tables})), {}, {})


def test_what_muster_local_alone_has_is_what_its_table_says() -> None:
    """Its other rows are options of every job, which it reads itself."""
    rows = {option.name for option in LOCAL}
    assert rows >= OF_LOCAL and rows - OF_LOCAL <= BY_FIELD.keys()


FILE = """\
stall-timeout = 60
launcher = "script"
hosts = 3
slots = 4
wrap = "nice"

[[roles]]
name = "trainer"
"""


def test_options_of_the_file_come_after_variables_and_the_command_line(tmp_path: Path) -> None:
    file = FILE.replace('wrap = "nice"\n', "log_prefix = 'host'\n")
    found = of_file(tmp_path, file, {"MUSTER_SLOTS": "2"}, {"log_prefix": "none"}).options
    assert (found.stall_timeout, found.slots, found.log_prefix) == (60.0, 2, "none")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("stall-timeuot = 60", "job.toml: stall-timeuot is no option of a job: did you mean stall_timeout"),
        ("slots = 'x'", "job.toml: slots"),
        ("secret = 'of all hosts, long enough'", "secret is needed before hosts have this file: set MUSTER_SECRET"),
        ("roles = 3", "expected a .*roles.* table for each role"),
        ("[[roles]]\nname = 'a'\nlauncher = 'torchrum'", "job.toml, line 3: launcher: "),
    ],
)
def test_wrong_options_of_the_file_are_named_with_it(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        of_file(tmp_path, text, {}, {})


def test_a_file_that_is_not_there_is_told_with_where_it_was_looked_for(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=f"no such file in {tmp_path} or "):
        of_this_host(job(), Settings(job_file="jobs.toml"), {}, {}, str(tmp_path))


def test_a_host_has_its_roles_launcher_slots_and_variables() -> None:
    trainer, policy = made(), made("algo-3")
    assert (trainer.options.launcher, trainer.options.slots, trainer.environ) == ("ranks", 2, {"A": "1"})
    assert (policy.options.launcher, policy.environ) == ("script", {})
    assert policy.job.group_hosts == ("algo-3",) and policy.job.entry_point.program == "serve.sh"


def test_the_short_form_makes_the_program_the_first_role() -> None:
    found = of_this_host(job(), Settings(more_roles="policy:1:serve.sh\nreward:1:r.sh", slots=3), {}, {})
    assert [(role.name, role.hosts, role.ends) for role in found.job.roles] == [
        ("train", ("algo-1",), "job"), ("policy", ("algo-2",), "with"), ("reward", ("algo-3",), "with"),
    ]  # fmt: skip
    assert found.options.slots == 3


@pytest.mark.parametrize(("outside", "ends"), [("stop", "never"), ("wait", "job")])
def test_a_group_is_a_role_and_the_others_run_the_program_on_their_own(outside: str, ends: str) -> None:
    groups = InstanceGroup("gpu", "p4", HOSTS[1:]), InstanceGroup("cpu", "c5", HOSTS[:1])
    found = of_this_host(job("algo-1", groups=groups), Settings(group="gpu", outside=outside), {}, {})
    assert [(role.name, role.hosts, role.ends) for role in found.job.roles] == [
        ("gpu", HOSTS[1:], "job"), ("cpu", HOSTS[:1], ends)]  # fmt: skip
    assert found.options.launcher == "script" and found.job.first_host == "algo-2"


def test_a_job_without_roles_stays_as_it_is() -> None:
    plain = job()
    assert of_this_host(plain, Settings(), {"A": "1"}, {}) == (plain, Settings(), {"A": "1"})


def test_all_hosts_that_have_read_the_same_roles_say_so() -> None:
    other = [{**TABLES[0], "slots": 3}, *TABLES[1:]]
    assert digest(job()) == ""
    assert digest(made().job) == digest(made("algo-3").job) != digest(made(tables=other).job)


@pytest.mark.parametrize(
    ("gpus", "environ", "sets"),
    [
        (4, {}, {"trainer": "0,1,2", "reward": "3"}),
        (3, {VISIBLE: "5,7,GPU-9"}, {"trainer": "5,7", "reward": "GPU-9"}),
        (0, {}, {}),
    ],
)
def test_gpus_of_a_host_are_parted_among_its_roles(gpus: int, environ: dict[str, str], sets: dict[str, str]) -> None:
    own = devices_of(made().job, Devices(cpus=8, gpus=gpus))
    assert gpu_sets(made().job, own, environ) == sets
    assert own.gpus == max(gpus - 1, 0)


def test_the_trainer_keeps_a_gpu() -> None:
    with pytest.raises(UsageError, match="algo-1 has 1 GPUs: reward 1 leave none for trainer"):
        devices_of(made().job, Devices(cpus=8, gpus=1))


def plan_of(me: str) -> LaunchPlan:
    of_role = made(me)
    seats = tuple(
        Seat(host, f"10.0.0.{number}", slots, role=role, role_ports=ports)
        for number, (host, slots, role, ports) in enumerate(
            [("algo-1", 2, "trainer", ("reward=7900",)), ("algo-2", 2, "trainer", ()),
             ("algo-3", 1, "policy", ("policy=7800",))], 1)
    )  # fmt: skip
    roster = Roster("digits", "s1", seats, "10.0.0.1", 7777, "algo-1", leading_host="algo-1", leading_port=7777)
    own = of_role.job.role
    assert own is not None
    roster = roster.seen_by(own.name)._replace(me=me)
    inputs = LaunchInputs(
        find_launcher(of_role.options.launcher), of_role.job, roster=roster, settings=of_role.options,
        workspace=WORKSPACE, devices=devices_of(of_role.job, Devices(cpus=8, gpus=4)), environ=of_role.environ,
    )  # fmt: skip
    return with_roles(inputs, build_plan(inputs), tuple((role, WORKSPACE) for role in of_role.job.beside))


def variables(plan: LaunchPlan, process: int) -> dict[str, str]:
    return {setting.name: setting.value for setting in (*plan.environment, *plan.processes[process].environment)}


def test_each_role_is_a_world_of_its_own_that_knows_the_others() -> None:
    plan = plan_of("algo-2")
    rank, reward = variables(plan, 0), variables(plan, -1)
    assert (rank["RANK"], rank["WORLD_SIZE"], rank["MASTER_ADDR"], rank["MASTER_PORT"]) == (
        "2",
        "4",
        "10.0.0.1",
        "7777",
    )
    assert (reward["RANK"], reward["WORLD_SIZE"], reward["MASTER_PORT"]) == ("1", "2", "7900")
    assert (rank["MUSTER_ROLE"], reward["MUSTER_ROLE"]) == ("trainer", "reward")
    assert (rank[VISIBLE], reward[VISIBLE], reward["B"]) == ("0,1,2", "3", "2")
    for told in (rank, reward, variables(plan_of("algo-3"), 0)):
        assert told["MUSTER_ROLE_HOSTS_TRAINER"] == "10.0.0.1,10.0.0.2"
        assert told["MUSTER_ROLE_HOSTS_POLICY"] == "10.0.0.3"
        assert json.loads(told["MUSTER_ROLES"]) == [
            {"name": "trainer", "hosts": ["algo-1", "algo-2"], "addresses": ["10.0.0.1", "10.0.0.2"],
             "master_port": 7777, "ends": "job"},
            {"name": "policy", "hosts": ["algo-3"], "addresses": ["10.0.0.3"], "master_port": 7800, "ends": "with",
             "ready": "port 8000"},
            {"name": "reward", "hosts": ["algo-1", "algo-2"], "addresses": ["10.0.0.1", "10.0.0.2"],
             "master_port": 7900, "ends": "never", "beside": "trainer"},
        ]  # fmt: skip


def test_a_plan_has_a_gate_for_each_role_of_its_host_its_own_first() -> None:
    trainer, policy = plan_of("algo-1"), plan_of("algo-3")
    assert [(gate.role, gate.after, gate.ends, gate.needed) for gate in trainer.gates] == [
        ("trainer", ("policy", "reward"), "job", False), ("reward", (), "never", True)]  # fmt: skip
    assert [(gate.role, str(gate.ready)) for gate in policy.gates] == [("policy", "port 8000")]
    assert trainer.processes[-1].of_role == "reward" and trainer.ends_of(trainer.processes[-1]) == "never"
    assert (trainer.own_ends, policy.own_ends) == ("job", "with")
