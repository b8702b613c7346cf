"""MultiWorkerMirroredStrategy on real hosts: who sets TF_CONFIG, that workers agree; and what a failed job reports."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

EXAMPLE = Path(__file__).parents[3] / "examples" / "tensorflow" / "mirrored.py"
LEGACY = ("--env", "TF_USE_LEGACY_KERAS=1")

pytestmark = [pytest.mark.netns, pytest.mark.xdist_group("tensorflow")]


def losses(ran: Any, hosts: int) -> list[float]:
    """What each worker printed of its losses, checked to be the same everywhere, and falling."""
    assert ran.code == 0, ran.stderr + ran.stdout
    printed = {host: re.findall(r"worker \d losses (\[.*\])", ran.log(f"algo-{host}")) for host in range(1, hosts + 1)}
    assert all(len(each) == 1 for each in printed.values()), printed
    assert len({each[0] for each in printed.values()}) == 1, printed
    found: list[float] = json.loads(printed[1][0])
    assert found[-1] < found[0] < 3
    return found


def test_a_script_that_makes_its_own_tf_config(tensor: Any) -> None:
    ran = tensor.run(2, "tensorflow", "book_style.py", *LEGACY, "--", "--epochs", "2")
    assert len(losses(ran, 2)) == 2
    assert "worker 1 of 2" in ran.log("algo-2")
    for host in ("algo-1", "algo-2"):
        assert (ran.output / "hosts" / host / "opt/ml/model/saved_model.pb").exists()
    assert "has no SavedModel" not in ran.log("algo-1")


def test_three_hosts_with_the_tf_config_of_ours(tensor: Any) -> None:
    ran = tensor.run(3, "tensorflow", "training_loop.py")
    assert len(losses(ran, 3)) == 20
    for number in (1, 2, 3):
        (text,) = re.findall(r"CONFIG (\{.*\}) keras 3", ran.log(f"algo-{number}"))
        config = json.loads(text)
        assert config["task"] == {"type": "worker", "index": number - 1}
        assert config["environment"] == "cloud"
        assert [place.rpartition(":")[2] for place in config["cluster"].pop("worker")] == ["7777"] * 3
        assert config["cluster"] == {}, "a role without a task"
    assert (ran.output / "hosts/algo-1/opt/ml/model/digits.keras").exists()


def test_the_example(tensor: Any) -> None:
    distribution = '{"multi_worker_mirrored_strategy": {"enabled": true}}'
    ran = tensor.run(2, "auto", EXAMPLE, "--distribution", distribution, "--", "--epochs", "2")
    assert ran.code == 0, ran.stderr + ran.stdout
    losses = re.findall(r"worker (\d): train:loss=([\d.]+);", ran.stdout)
    assert sorted(worker for worker, _ in losses) == ["0", "1"]
    assert len({loss for _, loss in losses}) == 1
    models = [ran.output / "hosts" / host / "opt/ml/model" for host in ("algo-1", "algo-2")]
    assert [sorted(path.name for path in model.iterdir()) for model in models] == [["1"], []]
    assert (models[0] / "1" / "saved_model.pb").exists()


def test_a_program_that_drops_the_tf_config_is_told_that_it_is_alone(tensor: Any) -> None:
    ran = tensor.run(2, "tensorflow", "sum_of_ones.py", "--", "--alone")
    assert ran.code == 0, ran.stderr + ran.stdout
    for host in ("algo-1", "algo-2"):
        assert "sum 1.0" in ran.log(host)
    (warning,) = [line for line in ran.log("algo-1").splitlines() if "as a world of one" in line]
    assert "of algo-1" in warning and "TF_CONFIG" in warning, warning


def test_servers_on_the_hosts_talk_past_a_proxy(tensor: Any) -> None:
    nowhere = "http://10.77.1.99:3128"
    proxies = [word for name in ("http_proxy", "https_proxy", "grpc_proxy") for word in ("--env", f"{name}={nowhere}")]
    ran = tensor.run(2, "tensorflow", "sum_of_ones.py", *proxies)
    assert ran.code == 0, ran.stderr + ran.stdout
    for host in ("algo-1", "algo-2"):
        assert "sum 2.0" in ran.log(host)
