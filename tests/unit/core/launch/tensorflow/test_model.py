"""A TensorFlow job that saved no model is told so."""

from __future__ import annotations

from pathlib import Path

import pytest

from musterpoint.core.job.model import Paths
from musterpoint.core.launch.tensorflow.model import missing_model


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
