"""Plans without a network: the job as its other hosts see it, and the roster they would have."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from musterpoint.base.settings import Settings
from musterpoint.core.job.model import EntryPoint, InstanceGroup, Job
from musterpoint.core.job.read import read_job
from musterpoint.core.runtime import Request
from musterpoint.tools.plans.preview import assumed_roster, preview, preview_request, seen_from, views_of

GROUPS = (InstanceGroup("gpu", "ml.p4d.24xlarge", ("algo-1",)), InstanceGroup("data", "ml.c5.xlarge", ("algo-2",)))


def test_another_host_has_its_own_name_group_and_type() -> None:
    files = {"resourceconfig.json": {"current_host": "algo-1", "current_group_name": "gpu", "extra": 1}}
    job = Job(
        "sagemaker", "j", ("algo-1", "algo-2"), "algo-1", ("algo-1",), EntryPoint("t.py"), groups=GROUPS,
        current_group="gpu", instance_type="ml.p4d.24xlarge", files=files,
    )  # fmt: skip
    other = seen_from(job, "algo-2")
    assert (other.current_host, other.current_group, other.instance_type) == ("algo-2", "data", "ml.c5.xlarge")
    data = {"current_host": "algo-2", "current_group_name": "data", "current_instance_type": "ml.c5.xlarge", "extra": 1}
    assert other.files["resourceconfig.json"] == data
    assert not other.in_group
    assert job.files["resourceconfig.json"]["current_host"] == "algo-1"
    assert seen_from(job, "algo-1") is job


def test_a_plan_names_the_python_of_the_conda_environment(tmp_path: Path) -> None:
    python = tmp_path / "envs/training/bin/python"
    python.parent.mkdir(parents=True)
    python.symlink_to(sys.executable)
    (tmp_path / "train.py").write_text("")
    environ = {"SAGEMAKER_JOB_CONDA_ENV": "training", "CONDA_ENVS_DIRS": f"{tmp_path}/envs", "PATH": "/usr/bin:/bin"}
    options = Settings(launcher="script")
    job = read_job(environ, options, str(tmp_path / "none"), str(tmp_path / "train.py"))
    shown = preview(views_of(job, options, environ), typed=True)
    assert shown.plans[0].processes[0].words[0] == str(python)


HOSTS = ("algo-1", "algo-2", "algo-3")


def test_known_addresses_names_and_groups() -> None:
    job = Job("sagemaker", "j", HOSTS, "algo-3", ("algo-2", "algo-3"), EntryPoint("t.py"))
    roster = assumed_roster(job, Settings(master_port=29400), lambda host: 4, {"algo-2": "10.0.0.2"}, "1.0")
    assert [seat.address for seat in roster.seats] == ["algo-1", "10.0.0.2", "algo-3"]
    assert [seat.slots for seat in roster.seats] == [0, 4, 4]
    assert (roster.master_address, roster.master_port) == ("10.0.0.2", 29400)
    assert (roster.node_rank, roster.first_rank, roster.world_size) == (1, 4, 8)


def test_one_host_is_on_the_loopback() -> None:
    job = Job("plain", "j", ("laptop",), "laptop", ("laptop",), EntryPoint("t.py"))
    roster = assumed_roster(job, Settings(), lambda host: 1, {"laptop": "192.0.2.7"})
    assert roster.master_address == roster.seat.address == "127.0.0.1"
    assert roster.master_port == 7777


def test_every_host_of_tf_config_has_its_own_task(tmp_path: Path) -> None:
    (tmp_path / "train.py").touch()
    cluster = '{"cluster": {"worker": ["b:1"], "chief": ["a:1"]}, "task": {"type": "worker", "index": 0}}'
    shown = preview_request(Request({"TF_CONFIG": cluster}, {}, str(tmp_path / "train.py"), typed=True))
    assert [(plan.host, plan.first_rank) for plan in shown.plans] == [("a", 0), ("b", 1)]
    assert [note.partition(": ")[2] for plan in shown.plans for note in plan.notes] == ["a is chief 0", "b is worker 0"]


@pytest.mark.parametrize("node_rank", ["1", ""])
def test_hosts_without_names_have_placeholders(tmp_path: Path, node_rank: str) -> None:
    (tmp_path / "train.py").touch()
    given = {"nnodes": 3, "rollcall_leader": "node-a:99", "launcher": "ranks", "slots": 2}
    if node_rank:
        given["node_rank"] = int(node_rank)
    shown = preview_request(Request({}, given, str(tmp_path / "train.py"), typed=True))
    assert [plan.host for plan in shown.plans] == ["node-0", "node-1", "node-2"]
    assert [plan.first_rank for plan in shown.plans] == [0, 2, 4]
    assert {roster.master_address for roster in shown.rosters} == {"node-a"}
    note = "node-0 to node-2 stand for names that the hosts say in the roll call, at node-a port 99"
    assert note + ("" if node_rank else "; which of them this host is, too") in shown.notes
