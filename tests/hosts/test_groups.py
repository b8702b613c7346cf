"""Jobs of several instance groups: the distribution on one of them, the program on the others."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from .by_hand import Processes, leaving_none, meeting
from .conftest import together

HOSTS = ["algo-1", "algo-2", "algo-3"]
GROUPS = [
    {"instance_group_name": "data", "instance_type": "ml.c5.xlarge", "hosts": ["algo-1"]},
    {"instance_group_name": "train", "instance_type": "ml.p4d.24xlarge", "hosts": ["algo-3", "algo-2"]},
]

PROGRAM = """
import json, os, sys, time

group = os.environ["SM_CURRENT_INSTANCE_GROUP"]
names = ["RANK", "WORLD_SIZE", "MASTER_ADDR", "NODE_RANK"]
print("I am", json.dumps([group, *(os.environ.get(name) for name in names)]), flush=True)
how = sys.argv[1] if len(sys.argv) > 1 else ""
if group == "data":
    if how == "fail":
        sys.exit(9)
    time.sleep(600 if how == "serve" else 3)
    print("the data host is done", flush=True)
elif how == "fail":
    time.sleep(600)
"""


class Cluster(Processes):
    """``train`` on three loopback addresses, with trees as the platform writes them."""

    def __init__(self, python: str, environ: dict[str, str], folder: Path, program: str = PROGRAM) -> None:
        super().__init__(python, environ, folder)
        (folder / "code").mkdir()
        (folder / "code" / "train.py").write_text(program)

    def base(self, host: str) -> Path:
        return self.folder / host

    def write(self, hyperparameters: dict[str, Any]) -> None:
        for host in HOSTS:
            config = self.base(host) / "input" / "config"
            config.mkdir(parents=True)
            group = next(group for group in GROUPS if host in group["hosts"])
            resources = {"current_host": host, "hosts": HOSTS, "instance_groups": GROUPS,
                         "current_group_name": group["instance_group_name"],
                         "current_instance_type": group["instance_type"], "network_interface_name": "lo"}  # fmt: skip
            program = {"sagemaker_program": "train.py", "sagemaker_submit_directory": str(self.folder / "code")}
            hyper = {name: json.dumps(value) for name, value in {**program, **hyperparameters}.items()}
            (config / "resourceconfig.json").write_text(json.dumps(resources))
            (config / "hyperparameters.json").write_text(json.dumps(hyper))
            (config / "inputdataconfig.json").write_text("{}")

    def run(self, *arguments: str, **environ: str) -> tuple[dict[str, int], dict[str, str]]:
        """Exit codes and logs by host."""
        addresses = {host: f"127.0.0.{place}" for place, host in enumerate(HOSTS, 1)}
        own = {**meeting(self.folder / "hosts", addresses), "MUSTER_PROGRAM_ARGS": json.dumps(arguments),
               "TRAINING_JOB_NAME": "hetero", **environ}  # fmt: skip
        codes, logs = together([
            self.popen(self.python, "-m", "musterpoint.cli.train",
                       environ={**own, "SAGEMAKER_BASE_DIR": str(self.base(host))})
            for host in HOSTS
        ])  # fmt: skip
        return dict(zip(HOSTS, codes)), dict(zip(HOSTS, logs))


cluster = leaving_none(Cluster)


TORCH = {"sagemaker_torch_distributed_enabled": True}


@pytest.mark.lane("suite")
def test_the_group_with_accelerators_is_taken_loudly(cluster: Cluster) -> None:
    cluster.write(TORCH)
    codes, logs = cluster.run(MUSTER_LAUNCHER="ranks", MUSTER_SLOTS="2")
    assert codes == dict.fromkeys(HOSTS, 0), logs
    assert "warning" in logs["algo-2"]
    assert "train" in logs["algo-2"].partition("warning")[2].partition("\n")[0]
    assert 'I am ["data", null, null, null, null]' in logs["algo-1"]
    for rank, host in enumerate(["algo-2", "algo-2", "algo-3", "algo-3"]):
        assert f'"train", "{rank}", "4", "127.0.0.2"' in logs[host], logs[host]


@pytest.mark.lane("suite")
def test_a_failure_outside_the_group_ends_the_job(cluster: Cluster) -> None:
    cluster.write({**TORCH, "sagemaker_distribution_instance_groups": ["train"]})
    codes, logs = cluster.run("fail", MUSTER_LAUNCHER="ranks")
    assert codes == dict.fromkeys(HOSTS, 9), logs
    assert "algo-1" in (cluster.base("algo-3") / "output" / "failure").read_text()
    assert "the program of data on algo-1, exit code 9" in logs["algo-1"], "it is no rank of the group's"
    assert not any("rank 2" in log for log in logs.values()), logs


@pytest.mark.lane("suite")
def test_hosts_outside_are_waited_for_or_stopped(cluster: Cluster) -> None:
    cluster.write({**TORCH, "sagemaker_distribution_instance_groups": ["train"]})
    codes, logs = cluster.run(MUSTER_LAUNCHER="ranks")
    assert codes == dict.fromkeys(HOSTS, 0)
    assert "the data host is done" in logs["algo-1"], "waited for"
    codes, logs = cluster.run("serve", MUSTER_LAUNCHER="ranks", MUSTER_OUTSIDE="stop")
    assert codes == dict.fromkeys(HOSTS, 0), logs
    assert "the data host is done" not in logs["algo-1"]
    assert "--outside stop" in logs["algo-1"]
    assert not os.path.exists(cluster.base("algo-1") / "output" / "failure")


@pytest.mark.lane("suite")
@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"MUSTER_OUTSIDE": "stop"}, "the job has no distribution, so its program runs on the hosts of all"),
        ({"MUSTER_GROUP": "nosuch"}, 'instance group "nosuch", expected one of data, train'),
    ],
)
def test_a_choice_that_can_t_have_an_effect_is_refused(cluster: Cluster, asked: dict[str, str], said: str) -> None:
    """Servers would be ranks of the training."""
    cluster.write({})
    codes, logs = cluster.run(MUSTER_LAUNCHER="ranks", **asked)
    assert codes == dict.fromkeys(HOSTS, 64), logs
    assert all(said in log for log in logs.values()), logs
