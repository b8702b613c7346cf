"""Where intermediate outputs go: the keys of sagemaker-training."""

from __future__ import annotations

import pytest

from musterpoint.errors import UsageError
from musterpoint.job.hyperparameters import decode
from musterpoint.outputs.target import Target, target_of

JOB = {"TRAINING_JOB_NAME": "job"}


def target(text: str, environ: dict[str, str] = JOB) -> Target | None:
    return target_of(decode({"sagemaker_s3_output": text}, "hyperparameters.json"), environ)


@pytest.mark.parametrize(
    ("text", "environ", "uri"),
    [
        ('"s3://b/a/c"', JOB, "s3://b/a/c/job/output/intermediate/"),
        ("s3://b/a/", JOB, "s3://b/a/job/output/intermediate/"),
        ('"s3://b"', JOB, "s3://b/job/output/intermediate/"),
        ('"s3://b//a"', JOB, "s3://b/a/job/output/intermediate/"),
        ('"s3://b/a"', {}, "s3://b/a/output/intermediate/"),
    ],
)
def test_keys(text: str, environ: dict[str, str], uri: str) -> None:
    found = target(text, environ)
    assert found is not None
    assert found.uri == uri


@pytest.mark.parametrize("text", ["null", '""', ""])
def test_none(text: str) -> None:
    assert target(text) is None


def test_a_directory_needs_no_bucket() -> None:
    assert target('"file:///tmp/x"') == Target("file:///tmp/x")


@pytest.mark.parametrize("text", ["s3://", "s3:///x", "/opt/x", "http://x/y", "3"])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="expected s3://BUCKET/PREFIX or file://DIRECTORY"):
        target(text)
