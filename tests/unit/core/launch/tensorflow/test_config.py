"""TF_CONFIG: written so that every TensorFlow takes it, read so that what was set is kept."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from musterpoint.base.errors import UsageError
from musterpoint.core.job import platforms
from musterpoint.core.job.model import Paths
from musterpoint.core.launch.tensorflow.saved_model import missing_model
from musterpoint.core.launch.tensorflow.tf_config import ExistingTask, encode, existing_task

CLUSTER = {"worker": ["10.0.0.1:7777", "10.0.0.2:7777"]}


def test_no_role_has_an_empty_list() -> None:
    text = encode({**CLUSTER, "ps": []}, "worker", 1, {})
    assert json.loads(text) == {"cluster": CLUSTER, "task": {"type": "worker", "index": 1}}


@pytest.mark.parametrize(("platform", "cloud"), [("sagemaker", True), ("azureml", True), ("plain", False)])
def test_the_environment_is_cloud_where_the_platforms_toolkits_say_so(platform: str, cloud: bool) -> None:
    assert (
        json.loads(encode(CLUSTER, "worker", 0, platforms.load(platform).tensorflow_keys)).get("environment") == "cloud"
    ) == cloud


def config(role: str, *roles: str) -> str:
    return json.dumps({"cluster": {name: ["h:1"] for name in roles}, "task": {"type": role, "index": 2}})


@pytest.mark.parametrize(
    ("text", "found", "serves"),
    [
        (config("ps", "worker", "ps"), ExistingTask("ps", 2, ("worker", "ps")), True),
        (config("evaluator", "chief", "worker"), ExistingTask("evaluator", 2, ("chief", "worker")), True),
        (config("worker", "worker", "ps"), ExistingTask("worker", 2, ("worker", "ps")), False),
        (config("worker", "master", "worker", "ps"), ExistingTask("worker", 2, ("master", "worker", "ps")), False),
        (config("worker", "chief", "worker", "ps"), ExistingTask("worker", 2, ("chief", "worker", "ps")), True),
        (config("chief", "chief", "worker", "ps"), ExistingTask("chief", 2, ("chief", "worker", "ps")), False),
        # as TensorFlow reads it: an empty one is that of a single process
        ("{}", ExistingTask(), False),
        ('{"cluster": null, "task": null}', ExistingTask(), False),
    ],
)
def test_what_was_set_already(text: str, found: ExistingTask, serves: bool) -> None:
    assert existing_task({"TF_CONFIG": text}) == found
    assert found.serves == serves
    assert existing_task({}) is existing_task({"TF_CONFIG": ""}) is None


@pytest.mark.parametrize("text", ["{", "[]", "7", '{"task": "worker"}', '{"task": {"index": "one"}}', '{"cluster": 1}'])
def test_what_is_no_tf_config_is_shown(text: str) -> None:
    with pytest.raises(UsageError, match="TF_CONFIG=") as caught:
        existing_task({"TF_CONFIG": text})
    assert "expected" in str(caught.value)


@pytest.mark.parametrize(
    ("names", "missing"),
    [
        (
            ("saved_model.pb", "1/saved_model.pb", "export/Servo/1/saved_model.pbtxt", "digits.keras", "old/model.h5"),
            False,
        ),
        (("ckpt_1.index", "model.weights.h5", "log.txt"), True),
    ],
)
def test_models(tmp_path: Path, names: tuple[str, ...], missing: bool) -> None:
    for name in names:
        file = tmp_path / name / name
        file.parent.mkdir(parents=True)
        file.touch()
        assert (str(file.parent) in missing_model(Paths(model=str(file.parent)))) is missing


def test_no_model_and_no_model_directory(tmp_path: Path) -> None:
    assert str(tmp_path) in missing_model(Paths(model=str(tmp_path)))
    assert missing_model(Paths(model="")) == ""
