"""A script that asks ``sagemaker_training`` for the job, as AWS's guides have it, under every way to start it."""

from __future__ import annotations

import json
from typing import Any

import pytest

PROGRAM = """
import json, os
from sagemaker_training import environment
env = environment.Environment()
facts = [env.current_host, env.hosts, env.hyperparameters, env.channel_input_dirs, env.model_dir, env.num_gpus]
os.write(1, b"SEEN" + json.dumps(facts).encode() + b"\\n")
"""


@pytest.mark.lane("suite")
@pytest.mark.parametrize(
    ("launcher", "slots"),
    [("script", 1), ("ranks", 2), pytest.param("torchrun", 2, marks=pytest.mark.torch), ("tensorflow", 1)],
)
def test_every_rank_finds_it(local: Any, launcher: str, slots: int) -> None:
    data = local.folder / "data"
    data.mkdir()
    ran = local.run(
        "--hosts", "2", "--backend", "process", "--launcher", launcher, *(["--slots", "2"] if slots == 2 else []),
        "--hyperparameters", '{"lr": 0.1}', "--channel", f"train={data}", local.program(PROGRAM),
    )  # fmt: skip
    assert ran.code == 0, ran.stderr + ran.stdout
    for host in ("algo-1", "algo-2"):
        seen = [json.loads(line.partition("SEEN")[2]) for line in ran.log(host).splitlines() if "SEEN" in line]
        place = str(local.output / "hosts" / host / "opt" / "ml")
        facts = [host, ["algo-1", "algo-2"], {"lr": 0.1}, {"train": f"{place}/input/data/train"}, f"{place}/model", 0]
        assert seen == [facts] * slots
