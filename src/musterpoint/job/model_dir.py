"""The TensorFlow estimator's ``model_dir`` hyperparameter, made this job's own where a tuning job started it.

The estimator sends ``<output path>/<job>/model`` (S3), or ``/opt/ml/model`` with MPI; it reaches the program like any
hyperparameter. All jobs of one tuning job get the same value, so the TensorFlow toolkit adds the training job's name.
Source: sagemaker-tensorflow-training (``training.py``), SDK v2 (``tensorflow/estimator.py``).
"""

from __future__ import annotations

from typing import Mapping

from musterpoint.job.hyperparameters import of_value, text_of
from musterpoint.job.model import Hyperparameter

NAME = "model_dir"
TUNED = "_tuning_objective_metric"
LOCAL = "/opt/ml"


def of_this_job(
    hyperparameters: tuple[Hyperparameter, ...], job: str, environ: Mapping[str, str]
) -> tuple[Hyperparameter, ...]:
    """``hyperparameters`` with ``model_dir`` as the TensorFlow toolkit would have it for the training job ``job``."""
    place = text_of(hyperparameters, NAME)
    tuned = any(entry.name == TUNED for entry in hyperparameters)
    if not (tuned and place) or place.startswith(LOCAL) or not _is_tensorflow(hyperparameters, place, environ):
        return hyperparameters
    own = of_value(NAME, f"{place}/{job}/model")
    return tuple(own if entry.name == NAME else entry for entry in hyperparameters)


def _is_tensorflow(hyperparameters: tuple[Hyperparameter, ...], place: str, environ: Mapping[str, str]) -> bool:
    """Other estimators send a ``model_dir`` only if the user does, and then it is what he says."""
    sent_for = text_of(hyperparameters, "sagemaker_job_name")
    return (
        "tensorflow" in environ.get("SAGEMAKER_TRAINING_MODULE", "")
        or text_of(hyperparameters, "sagemaker_estimator_class_name") == "TensorFlow"
        or bool(sent_for and place.endswith(f"/{sent_for}/model"))
    )
