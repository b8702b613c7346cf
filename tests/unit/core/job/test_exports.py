"""What the exports add to sagemaker-training's; that they equal its own is tested in tests/contract."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Callable

import pytest

from musterpoint.base.errors import UsageError
from musterpoint.base.settings import Settings
from musterpoint.core.job.exports import Machine, sagemaker_exports
from musterpoint.core.job.read import read_job

WriteTree = Callable[..., str]
NINE_AND_TEN = {"current_host": "algo-10", "hosts": [f"algo-{n}" for n in (1, 10, 2, 9)]}


def exports(base: str, environ: dict[str, str] | None = None, **more: Any) -> dict[str, str]:
    environ = environ or {}
    pairs = sagemaker_exports(read_job(environ, Settings(), base), environ, **more)
    assert list(pairs) == sorted(pairs)
    return dict(pairs)


def test_hosts_are_in_rank_order_and_arguments_as_in_the_file(write_tree: WriteTree) -> None:
    seen = exports(write_tree(resourceconfig=NINE_AND_TEN, hyperparameters={"zeta": "1", "alpha": "2"}))
    assert json.loads(seen["SM_HOSTS"]) == ["algo-1", "algo-2", "algo-9", "algo-10"]
    assert (seen["SM_HOST_COUNT"], seen["SM_CURRENT_HOST_RANK"], seen["SM_MASTER_ADDR"]) == ("4", "3", "algo-1")
    assert json.loads(seen["SM_RESOURCE_CONFIG"]) == NINE_AND_TEN  # the file as it is
    assert json.loads(seen["SM_USER_ARGS"]) == ["--zeta", "1", "--alpha", "2"]  # in its order


def test_counts_and_the_master(write_tree: WriteTree) -> None:
    seen = exports(write_tree(), machine=Machine(8, 4, 2), master_address="10.0.0.1", master_port=12345)
    assert [seen[f"SM_NUM_{name}"] for name in ("CPUS", "GPUS", "NEURONS")] == ["8", "4", "2"]
    assert (seen["SM_MASTER_ADDR"], seen["SM_MASTER_PORT"]) == ("10.0.0.1", "12345")
    training_env = json.loads(seen["SM_TRAINING_ENV"])
    assert (training_env["num_gpus"], training_env["master_port"]) == (4, 12345)


def test_names_of_their_own_and_names_that_shells_can_read(write_tree: WriteTree) -> None:
    hyperparameters = {"batch-size": "1", "batch_size": "2", "a b": "3", "x=y": "4", "_tuning_objective_metric": "m"}
    seen = exports(write_tree(hyperparameters=hyperparameters, inputdataconfig={"a=b": {}}))
    assert (seen["SM_HP_BATCH-SIZE"], seen["SM_HP_BATCH_SIZE"]) == ("1", "2")  # a real name isn't overwritten
    assert (seen["SM_HP_A_B"], seen["SM_HP_X_Y"]) == ("3", "4")
    assert not any("=" in name for name in seen)


@pytest.mark.parametrize("name", ["hyperparameters", "inputdataconfig", "resourceconfig"])
def test_half_a_character_is_refused_with_its_file(write_tree: WriteTree, name: str) -> None:
    base = write_tree(**{name: {"\ud800": {}}})
    with pytest.raises(UsageError, match=f"{name}.json .*half a character"):
        exports(base)


def test_a_value_that_is_set_wins(write_tree: WriteTree) -> None:
    seen = exports(write_tree(), {"SM_LOG_LEVEL": "40", "CURRENT_HOST": "me"})
    assert not {"SM_LOG_LEVEL", "CURRENT_HOST"} & seen.keys()


def test_groups_of_one_name_are_merged(write_tree: WriteTree) -> None:
    entry = {"instance_group_name": "g", "instance_type": "ml.g5.xlarge", "extra": 1}
    one_each = [{**entry, "hosts": ["algo-2"]}, {**entry, "hosts": ["algo-1"]}]
    resources = {"current_host": "algo-1", "hosts": ["algo-1", "algo-2"], "instance_groups": one_each}
    seen = exports(write_tree(resourceconfig=resources))
    assert json.loads(seen["SM_INSTANCE_GROUPS"]) == ["g"]
    assert json.loads(seen["SM_INSTANCE_GROUPS_DICT"]) == {"g": {**entry, "hosts": ["algo-1", "algo-2"]}}
    assert (seen["SM_CURRENT_INSTANCE_GROUP"], seen["SM_IS_HETERO"]) == ("g", "false")


def test_the_chosen_group_is_the_same_on_all_hosts(write_tree: WriteTree) -> None:
    groups = [{"instance_group_name": "cpu", "instance_type": "ml.m5.large", "hosts": ["algo-1"]},
              {"instance_group_name": "gpu", "instance_type": "ml.g5.large", "hosts": ["algo-2"]}]  # fmt: skip
    resources = {"hosts": ["algo-1", "algo-2"], "current_host": "algo-1", "instance_groups": groups}
    switch = {"sagemaker_torch_distributed_enabled": "true"}
    seen = exports(write_tree(resourceconfig=resources, hyperparameters=switch))
    assert json.loads(seen["SM_DISTRIBUTION_INSTANCE_GROUPS"]) == ["gpu"]
    assert json.loads(seen["SM_TRAINING_ENV"])["distribution_hosts"] == ["algo-2"]


def test_a_plain_job_has_them_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    job = read_job({}, Settings(), str(tmp_path / "none"), "t.py", ("--lr", "1"))
    seen = dict(sagemaker_exports(job, {}))
    assert json.loads(seen["SM_HOSTS"]) == [job.current_host]
    assert json.loads(seen["SM_USER_ARGS"]) == ["--lr", "1"]
    assert "SM_INPUT_DIR" not in seen
    assert seen["SM_OUTPUT_FAILURE"].endswith(f"/muster-jobs/t/hosts/{job.current_host}/failure")
    assert seen["SM_MODEL_DIR"] == str(tmp_path / "muster-jobs/t/model")


def test_thousands_of_hosts_leave_no_variable_that_linux_refuses(write_tree: WriteTree) -> None:
    hosts = [f"algo-{number}" for number in range(1, 6001)]
    seen = exports(write_tree(resourceconfig={"current_host": "algo-1", "hosts": hosts}))
    assert json.loads(seen["SM_HOSTS"]) == hosts
    assert "SM_TRAINING_ENV" not in seen
    subprocess.run([sys.executable, "-S", "-c", ""], env={name: seen[name] for name in seen}, check=True)
