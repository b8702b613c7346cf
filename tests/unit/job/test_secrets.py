"""What of a job is secret."""

from __future__ import annotations

from pathlib import Path
from typing import Callable

from musterpoint.job.read import read_job
from musterpoint.job.secrets import masker_of, masker_of_files
from musterpoint.settings import Settings

WriteTree = Callable[..., str]


def test_everything_that_the_job_was_told(write_tree: WriteTree) -> None:
    base = write_tree(
        hyperparameters={"sagemaker_program": "t.py", "api_key": "00123456", "x": '{"token": "deep-token"}'},
        trainingjobconfig={"vault": {"secret": "filed-secret"}},
    )  # fmt: skip
    environ = {
        "SAGEMAKER_BASE_DIR": str(base),
        "A_TOKEN": "variable-1",
        "MUSTER_PROGRAM_ARGS": '["--password", "typed-1"]',
    }
    masker = masker_of(environ, read_job(environ, Settings()))
    text = "variable-1 00123456 deep-token filed-secret typed-1 t.py"
    assert masker.mask_user(text) == "*** *** *** *** *** t.py"


def test_files_of_a_job_that_cannot_be_read(tmp_path: Path) -> None:
    config = tmp_path / "input/config"
    config.mkdir(parents=True)
    (config / "hyperparameters.json").write_text('{"api_key": "broken-key-1", }')
    (config / "other.json").write_text('{"password": "other-word-2"}')
    masker = masker_of_files({"SAGEMAKER_BASE_DIR": str(tmp_path)}, ["--token", "given-3"])
    assert masker.mask_user("broken-key-1 other-word-2 given-3") == "*** *** ***"
    assert masker_of_files({"SAGEMAKER_BASE_DIR": "/none/such", "A_TOKEN": "a-token-4"}).mask_user("a-token-4") == "***"
