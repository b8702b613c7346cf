"""Hints for errors whose own words don't say what to do."""

from __future__ import annotations

import pytest

from musterpoint.diagnosis.classify import ENDINGS, HINTS, hint_for
from musterpoint.diagnosis.reason import ERROR_SHARE, LIMIT


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


ABORTED = "Fatal Python error: Aborted"
TERMINATED = "terminate called without an active exception\n"
THREAD = "Thread 0x00007fcbc344cb80 (most recent call first):\n"


@pytest.mark.parametrize(
    ("tail", "expected"),
    [
        (TERMINATED, True),
        (f"epoch 3\n{TERMINATED}{ABORTED}\n\n{THREAD}  <no Python frame>\n", True),
        (f"{TERMINATED}{ABORTED}\n\n{THREAD}  Garbage-collecting\n  <no Python frame>\n", True),
        (f"{TERMINATED}{ABORTED}\n\n{THREAD}  <no Python frame>\n\nExtension modules: a, b.c (total: 2)\n", True),
        (f"{TERMINATED}{ABORTED}\n\n{THREAD}  <no Python frame>\nE1122 02:03:04 failed (exitcode: -6)\n", True),
        (f'{TERMINATED}{ABORTED}\n\n{THREAD}  File "w.py", line 3 in f\n\n{THREAD}  <no Python frame>\n', True),
        (f'{TERMINATED}{ABORTED}\n\n{THREAD}  <no Python frame>\n\n{THREAD}  File "train.py", line 3 in f\n', False),
        (f"{ABORTED}\n\n{THREAD}  <no Python frame>\n", False),
        ("terminate called after throwing an instance of 'std::runtime_error'\n  what():  x\n", False),
        (f"{TERMINATED}and then it went on\n", False),
    ],
)
def test_an_abort_after_the_programs_end(tail: str, expected: bool) -> None:
    assert ("gloo" in hint_for(ABORTED, tail)) == expected


def test_every_hint_fits_beside_a_long_error() -> None:
    assert all(len(hint.encode()) < (LIMIT - ERROR_SHARE) / 2 for _pattern, hint in (*HINTS, *ENDINGS))
