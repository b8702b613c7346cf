"""``from sagemaker_training import environment``: the real package under its toolkit, our stand-in under ours."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from musterpoint.cli.bundle import bundle
from musterpoint.core.job.host_order import natural
from musterpoint.core.launch.inputs import STANDINS

from .conftest import Theirs
from .differences import PROPERTIES, in_order, pairs
from .test_sagemaker_training import (
    FILE_CHANNEL,
    HOMOGENEOUS,
    MIXED,
    ONE_HOST,
    SDK_V2,
    Tree,
    run,
    run_ours,
    run_theirs,
    write,
)

DUMP = """
import json, os, sys
from sagemaker_training import environment
from sagemaker_training.environment import Environment
env = Environment()
places = ("code_dir", "model_dir", "input_dir", "input_config_dir", "output_dir", "output_data_dir",
          "output_intermediate_dir", "base_dir")
facts = {
    "properties": {name: getattr(env, name) for name in env.properties()},
    "mapping": dict(env) == {name: env[name] for name in env},
    "arguments": env.to_cmd_args(),
    "s3": env.sagemaker_s3_output(),
    "variables": sorted(env.to_env_vars()),
    "places": [getattr(environment, name) for name in places],
    "read": [environment.read_hyperparameters(), environment.read_resource_config(),
             environment.read_input_data_config(), environment.channel_path("x")],
    "counts": [environment.num_gpus(), environment.num_cpus()],
}
with open(os.environ["DUMP"], "w") as file:
    json.dump({"argv": [environment.__file__], "cwd": os.getcwd(), "environ": {"facts": json.dumps(facts)}}, file)
"""
FILES = {"dump.py": (DUMP, 0o644)}
TREES = {
    "nothing but the program": Tree(),
    "an SDK v2 estimator": Tree(
        hyperparameters={"epochs": "3", "lr": "0.1", "nan": "NaN", "names": '["a", null]', "raw": "a b", **SDK_V2},
        inputs={"train": FILE_CHANNEL, "my-channel.v2": {"TrainingInputMode": "Pipe"}}, resources=HOMOGENEOUS,
        environ={"TRAINING_JOB_NAME": "JOB-1"},
    ),
    "groups": Tree(resources=MIXED, hyperparameters={"sagemaker_estimator": '"RL"'}),
    "a topology": Tree(resources={**HOMOGENEOUS, "topology": [{"hostName": "algo-1", "capacityUnitId": "1"}]}),
    "hosts in no order": Tree(resources={**ONE_HOST, "hosts": ["algo-10", "algo-2", "algo-1"]}),
}  # fmt: skip


def facts(variables: dict[str, str]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(variables["facts"])
    return found


@pytest.mark.parametrize("name", TREES)
def test_it_has_what_the_real_one_has(
    name: str, their_train: Theirs, tmp_path: Path, our_path: str, both_environ: dict[str, str]
) -> None:
    tree, base, dump = TREES[name]._replace(files=FILES), tmp_path / "ml", tmp_path / "dump.json"
    environ = {**both_environ, **tree.environ}
    write(tree, base)
    real = run_theirs(their_train, environ, dump)
    write(tree, base)
    ours = run_ours(tree, {**environ, "PYTHONPATH": our_path}, base, dump)
    assert "site-packages" in real.argv[0]
    assert ours.argv[0].startswith(STANDINS)
    theirs, own = facts(real.variables), facts(ours.variables)
    properties = theirs.pop("properties"), own.pop("properties")
    for key, value in properties[0].items():
        allowed = in_order(properties[1][key], value) or (key in PROPERTIES and PROPERTIES[key](*reversed(properties)))
        assert allowed, (key, properties[1][key], value)
    assert pairs(own.pop("arguments")) == pairs(theirs.pop("arguments"))
    assert {*theirs.pop("variables")} <= {*own.pop("variables"), "SM_TOPOLOGY"}
    assert repr(own) == repr(theirs)
    assert properties[1]["hosts"] == list(natural(properties[0]["hosts"]))


@pytest.mark.parametrize("way", ["in front", "behind"])
def test_the_real_one_is_what_scripts_get_where_it_is_installed(
    peer: Path, way: str, both_environ: dict[str, str]
) -> None:
    """PYTHONPATH goes before installed packages; what is ours gives way all the same."""
    folders = [STANDINS, *(["/tmp"] if way == "in front" else [])]
    done = subprocess.run(
        [peer / "python", "-c", "from sagemaker_training import environment as e, params; print(e.__file__)"],
        env={**both_environ, "PYTHONPATH": os.pathsep.join(folders)}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert "site-packages/sagemaker_training/environment.py" in done.stdout


def test_the_one_file_brings_it_too(tmp_path: Path, both_environ: dict[str, str]) -> None:
    tree, train = Tree(files=FILES), tmp_path / "train"
    write(tree, tmp_path / "ml")
    train.write_text(bundle())
    ran = run([sys.executable, "-I", "-S", str(train)], both_environ, tmp_path / "dump.json")
    assert "/musterpoint/embedded/standins/sagemaker_training/environment.py" in ran.argv[0]
    assert ran.argv[0].startswith("/proc/"), "a place in the file's archive"
    assert facts(ran.variables)["properties"]["current_host"] == "algo-1"
