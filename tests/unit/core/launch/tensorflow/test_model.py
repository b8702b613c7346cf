"""A TensorFlow job that saved no model is told so."""

from __future__ import annotations

from pathlib import Path

import pytest

from musterpoint.core.job.model import Paths
from musterpoint.core.launch.tensorflow.model import missing_model


@pytest.mark.parametrize(
    "name", ["saved_model.pb", "1/saved_model.pb", "export/Servo/1/saved_model.pbtxt", "digits.keras", "old/model.h5"]
)
def test_models(tmp_path: Path, name: str) -> None:
    file = tmp_path / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(b"")
    assert missing_model(Paths(model=str(tmp_path))) == ""


@pytest.mark.parametrize("name", ["", "ckpt_1.index", "model.weights.h5", "log.txt"])
def test_what_is_no_model(tmp_path: Path, name: str) -> None:
    if name:
        (tmp_path / name).write_bytes(b"")
    assert str(tmp_path) in missing_model(Paths(model=str(tmp_path)))


def test_a_platform_without_a_model_directory() -> None:
    assert missing_model(Paths(model="")) == ""
