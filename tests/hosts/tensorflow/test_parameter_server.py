"""Parameter-server jobs of both generations: they train, end with their last rank, and a dead server ends them."""

from __future__ import annotations

import json
import os
import re
import signal
from pathlib import Path
from typing import Any

import pytest

from ..conftest import eventually, pids

EXAMPLE = Path(__file__).parents[3] / "examples" / "tensorflow" / "parameter_server.py"
SOON = 3.0
"""Seconds from the last rank's end to the job's."""

pytestmark = [pytest.mark.netns, pytest.mark.xdist_group("tensorflow")]


def lingered(ran: Any, hosts: int) -> float:
    """Seconds from the end of the last rank anywhere to the end of the last host."""
    events = [event for number in range(1, hosts + 1) for event in ran.events(f"algo-{number}")]
    ended = [event["at"] for event in events if event["event"] == "rank-ended"]
    over = [event["at"] for event in events if event["event"] == "job-ended"]
    assert len(over) == hosts
    return float(max(over) - max(ended))


def test_master_and_workers_with_a_server_beside_each(tensor: Any) -> None:
    """As SageMaker's own toolkit lays them out."""
    distribution = '{"parameter_server": {"enabled": true}}'
    ran = tensor.run(2, "auto", "master_and_workers.py", "--distribution", distribution)
    assert ran.code == 0, ran.stderr + ran.stdout
    configs = {}
    for host in ("algo-1", "algo-2"):
        (text,) = re.findall(r"CONFIG (\{.*\})", ran.log(host))
        configs[host] = json.loads(text)
        assert "PLACES /job:ps/task:0 /job:ps/task:1" in ran.log(host)
    assert configs["algo-1"]["task"] == {"type": "master", "index": 0}
    assert configs["algo-2"]["task"] == {"type": "worker", "index": 0}
    cluster = configs["algo-1"]["cluster"]
    assert configs["algo-2"]["cluster"] == cluster
    ports = {role: [place.rpartition(":")[2] for place in places] for role, places in cluster.items()}
    assert ports == {"master": ["2222"], "worker": ["2222"], "ps": ["2223", "2223"]}
    first, last = map(float, re.findall(r"master 0 losses ([\d.]+) ([\d.]+)", ran.stdout)[0])
    assert last < first < 2.4
    assert lingered(ran, 2) < ran.soon(SOON)
    assert "tasks: master 0 on algo-1, worker 0 on algo-2, ps 0 on algo-1, ps 1 on algo-2" in ran.log("algo-1")
    started = [(event["name"], event["event"]) for event in ran.events("algo-2") if "pid" in event]
    assert started == [("ps 1", "service-started"), ("rank 1", "rank-started")]
    assert "has no SavedModel" in ran.log("algo-1"), "a job that saved no model"


def test_the_example(tensor: Any) -> None:
    ran = tensor.run(2, "parameter-server", EXAMPLE, "--tf-roles", "worker=2,ps=1", "--", "--epochs", "3")
    assert ran.code == 0, ran.stderr + ran.stdout
    losses = [float(loss) for loss in re.findall(r"epoch=\d; train:loss=([\d.]+);", ran.log("algo-1"))]
    assert len(losses) == 3
    assert losses[-1] < losses[0]
    assert (ran.output / "hosts/algo-1/opt/ml/model/1/saved_model.pb").exists()
    assert lingered(ran, 2) < ran.soon(SOON)
    assert "chief 0 on algo-1, worker 0 on algo-1, worker 1 on algo-2, ps 0 on algo-2" in ran.log("algo-1")


def test_a_server_that_is_killed_ends_the_job_by_its_name(tensor: Any) -> None:
    words = tensor.words(2, "parameter-server", "master_and_workers.py", "--stop-grace", "3", "--", "--steps", "0")
    running = tensor.local.start(*words)
    models = [tensor.local.output / "hosts" / host / "opt/ml/model/training" for host in ("algo-1", "algo-2")]
    eventually(lambda: running.poll() is not None or all(model.exists() for model in models))
    (server,) = pids(tensor.local.token, '"task": {"type": "ps", "index": 1}')
    os.kill(server, signal.SIGKILL)
    ran = tensor.local.finish(running)
    assert ran.code == 72, ran.stderr + ran.stdout
    assert ran.reason.startswith("muster: ps 1 "), ran.reason
    assert "SIGKILL" in ran.reason
    assert "algo-2" in ran.reason
    assert {ran.outcome(host)["host"] for host in ("algo-1", "algo-2")} == {"algo-2"}
