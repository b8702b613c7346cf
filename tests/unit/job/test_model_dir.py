"""model_dir of the TensorFlow estimator in tuning jobs."""

from __future__ import annotations

from typing import Any, Callable

import pytest

from musterpoint.job.exports import sagemaker_exports
from musterpoint.job.hyperparameters import decode, text_of, with_own_model_dir
from musterpoint.job.sagemaker import read_tree
from musterpoint.settings import Settings

TUNED = {"_tuning_objective_metric": "loss"}
TOOLKIT = {"SAGEMAKER_TRAINING_MODULE": "sagemaker_tensorflow_container.training:main"}


@pytest.mark.parametrize(
    ("sent", "environ", "expected"),
    [
        # every job of a tuning job is sent the same place
        ({**TUNED, "model_dir": "s3://b/out/tune/model"}, TOOLKIT, "s3://b/out/tune/model/tune-007/model"),
        ({**TUNED, "model_dir": '"s3://b/mine"'}, TOOLKIT, "s3://b/mine/tune-007/model"),
        ({**TUNED, "model_dir": "/opt/ml/model"}, TOOLKIT, "/opt/ml/model"),
        ({**TUNED, "model_dir": "/mnt/efs/model"}, TOOLKIT, "/mnt/efs/model/tune-007/model"),
        ({"model_dir": "s3://b/out/job/model"}, TOOLKIT, "s3://b/out/job/model"),
        # known as the estimator's without its toolkit
        ({**TUNED, "model_dir": "s3://b/m", "sagemaker_estimator_class_name": '"TensorFlow"'}, {},
         "s3://b/m/tune-007/model"),
        ({**TUNED, "model_dir": "s3://b/tf-1/model", "sagemaker_job_name": '"tf-1"'}, {},
         "s3://b/tf-1/model/tune-007/model"),
        # a hyperparameter of the user's own
        ({**TUNED, "model_dir": "s3://b/m", "sagemaker_job_name": '"tf-1"'}, {}, "s3://b/m"),
        ({**TUNED, "model_dir": "s3://b/m"}, {"SAGEMAKER_TRAINING_MODULE": "sagemaker_pytorch_container"}, "s3://b/m"),
        ({**TUNED}, TOOLKIT, ""),
    ],
)  # fmt: skip
def test_where_the_model_goes(sent: dict[str, Any], environ: dict[str, str], expected: str) -> None:
    found = with_own_model_dir(decode(sent, "hyperparameters.json"), "tune-007", environ)
    assert text_of(found, "model_dir") == expected
    assert [entry.name for entry in found] == list(sent)


def test_the_program_and_its_variables_see_the_same(write_tree: Callable[..., str]) -> None:
    sent = {**TUNED, "epochs": "3", "model_dir": '"s3://b/out/model"', "sagemaker_program": '"t.py"'}
    base = write_tree(hyperparameters=sent)
    job = read_tree(base, {**TOOLKIT, "TRAINING_JOB_NAME": "tune-007"}, Settings())
    assert job.arguments == ("--epochs", "3", "--model_dir", "s3://b/out/model/tune-007/model")
    exports = dict(sagemaker_exports(job, {}))
    assert exports["SM_HP_MODEL_DIR"] == "s3://b/out/model/tune-007/model"
    assert exports["SM_MODEL_DIR"].endswith("/model")
    assert "tune-007" in exports["SM_HPS"]
