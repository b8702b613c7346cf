"""Hosts that are network namespaces, ranks by the instance's type, and a queue that is longer than the machine."""

from __future__ import annotations

import fcntl
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from musterpoint.serve import Server
from musterpoint.serve.settings import Settings
from musterpoint.serve.training_request import slots

from .jobs import Account, entry, hosts

RANKS = """
import json, os, pathlib, torch, torch.distributed as dist
dist.init_process_group("gloo")
total = torch.ones(1)
dist.all_reduce(total)
seen = [int(total), os.environ["LOCAL_WORLD_SIZE"], os.environ["SM_NUM_GPUS"], os.uname().nodename]
pathlib.Path(os.environ["SM_MODEL_DIR"], os.environ["RANK"]).write_text(json.dumps(seen))
dist.destroy_process_group()
"""


@pytest.mark.lane("sdk")
@pytest.mark.netns
@pytest.mark.torch
def test_two_namespaces_with_as_many_ranks_as_their_type_has_gpus(environ: Mapping[str, str], tmp_path: Path) -> None:
    with Server(tmp_path / "data", backend="netns", gpus="as-type", environ=environ) as server:
        account = Account(server)
        launched = {"sagemaker_torch_distributed_enabled": "true", "sagemaker_instance_type": '"ml.g4dn.12xlarge"'}
        done = account.run("ranks", RANKS, **hosts(2, "ml.g4dn.12xlarge"), HyperParameters=launched)
        assert done["TrainingJobStatus"] == "Completed", account.log("ranks")
        left = account.archive("out/ranks/output/model.tar.gz")
    assert sorted(map(int, left)) == list(range(8))
    assert [json.loads(left[str(rank)]) for rank in (0, 7)] == [[8, "4", "4", "algo-1"], [8, "4", "4", "algo-2"]]


@pytest.mark.parametrize(
    ("kind", "more", "ranks"),
    [
        ("ml.m5.xlarge", {}, ()), ("ml.g4dn.12xlarge", {}, ()),
        ("ml.g4dn.12xlarge", {"Environment": {"MUSTER_LAUNCHER": "script"}}, ()),
        ("ml.g4dn.12xlarge", {"Environment": {"MUSTER_LAUNCHER": "ranks"}}, (4,)),
        ("ml.g4dn.12xlarge", {"HyperParameters": {"sagemaker_torch_distributed_enabled": "true"}}, (4,)),
        ("ml.g4dn.12xlarge", {"HyperParameters": {"sagemaker_torch_distributed_enabled": '"maybe"'}}, ()),
        ("ml.g4dn.12xlarge", {"HyperParameters": {"sagemaker_parameter_server_enabled": "true"}}, ()),
    ],
)  # fmt: skip
def test_only_who_starts_ranks_is_told_how_many(kind: str, more: Mapping[str, Any], ranks: tuple[int, ...]) -> None:
    """Who isn't would warn of an option that nobody gave."""
    request = {**hosts(1, kind), **more}
    assert slots(Settings("", gpus="as-type"), request) == ranks
    assert slots(Settings(""), request) == ()


@pytest.mark.lane("sdk")
def test_fifty_jobs_wait_for_their_turn(environ: Mapping[str, str], tmp_path: Path) -> None:
    """None of them ends before all have been asked for, and the last one has been stopped."""
    running, gate = tmp_path / "running", tmp_path / "gate"
    running.mkdir()
    names = [f"job-{number:02}" for number in range(50)]
    with Server(tmp_path / "data", max_jobs=4, environ=environ) as server, gate.open("w") as closed:
        fcntl.flock(closed, fcntl.LOCK_EX)
        account = Account(server)
        for name in names:
            account.create(
                name,
                "",
                **entry(
                    'touch "$D/$TRAINING_JOB_NAME"; flock --shared "$GATE" true; ls "$D" | wc -l; '
                    'rm "$D/$TRAINING_JOB_NAME"'
                ),
                Environment={"D": str(running), "GATE": str(gate)},
            )
        assert account.sagemaker.describe_training_job(TrainingJobName="job-49")["SecondaryStatus"] == "Pending"
        account.sagemaker.stop_training_job(TrainingJobName="job-49")
        fcntl.flock(closed, fcntl.LOCK_UN)
        done = [server.wait(name) for name in names]
        counted = [int(account.log(name).split("\n")[3]) for name in names[:-1]]
    assert [job["TrainingJobStatus"] for job in done] == ["Completed"] * 49 + ["Stopped"]
    assert not (tmp_path / "data" / "jobs" / "job-49" / "run-1").exists()
    assert max(counted) <= 4
