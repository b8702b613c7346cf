"""Hints for errors whose own words don't say what to do."""

from __future__ import annotations

import pytest

from musterpoint.report.hints import HINTS, hint_for
from musterpoint.report.reason import ERROR_SHARE, LIMIT


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("ValueError: Attempt to convert a value (PerReplica:{\n  0: <tf.Tensor: shape=(32, 64)", "tf-keras"),
        ("AttributeError: module 'tensorflow' has no attribute 'estimator'", "tf.estimator"),
        ("AttributeError: module 'tensorflow._api.v2.compat.v1' has no attribute 'estimator'", "tf.estimator"),
        ("ModuleNotFoundError: No module named 'tensorflow.estimator'", "tf.estimator"),
        (
            "NotFoundError: (0) NOT_FOUND:   /opt/ml/model/1/variables/variables_temp; No such file or directory\n"
            "Additional GRPC error information from remote target /job:ps/replica:0/task:0",
            "share a disk",
        ),
    ],
)
def test_known_errors(text: str, word: str) -> None:
    assert hint_for(text).startswith("hint: ")
    assert word in hint_for(text)


@pytest.mark.parametrize(
    "text", ["", "ValueError: PerReplica", "AttributeError: module 'sklearn' has no attribute 'x'"]
)
def test_other_errors_have_none(text: str) -> None:
    assert hint_for(text) == ""


def test_every_hint_fits_beside_a_long_error() -> None:
    assert all(len(hint.encode()) < (LIMIT - ERROR_SHARE) / 2 for _pattern, hint in HINTS)
