"""The operations of SageMaker's API that this server answers, each with its function.

To add one, write a function ``(Request) -> response`` in the module of its noun and a row here. The request has passed
botocore's model, and the response is what that model describes, with times as seconds since the epoch.
"""

from __future__ import annotations

from typing import Mapping

from musterpoint.serve.errors import ApiError, invalid, not_here
from musterpoint.serve.operations import Handler, tags, training_jobs

OPERATIONS: Mapping[str, Handler] = {
    "CreateTrainingJob": training_jobs.create,
    "DescribeTrainingJob": training_jobs.describe,
    "ListTrainingJobs": training_jobs.list_,
    "StopTrainingJob": training_jobs.stop,
    "UpdateTrainingJob": training_jobs.update,
    "DeleteTrainingJob": training_jobs.delete,
    "AddTags": tags.add,
    "ListTags": tags.list_,
    "DeleteTags": tags.delete,
}

INSTEAD: Mapping[str, str] = {
    "Pipeline": "no pipelines: LocalPipelineSession of SageMaker's SDK runs a pipeline's steps on this machine, or a "
    "program creates the training jobs one after another",
    "HyperParameterTuningJob": "no tuning jobs: create a training job for each set of hyperparameters in a loop, and "
    "compare FinalMetricDataList of their DescribeTrainingJob",
    "ProcessingJob": "no processing jobs: `docker run` starts the image, SageMaker's SDK runs processors in local mode "
    "(instance_type='local'), or a training job runs the command as its ContainerEntrypoint",
}
"""Substitutes for jobs of SageMaker that this server doesn't play, by the nouns of their operations."""

OF_MOTO = ("Model", "ModelPackage", "ModelPackageGroup", "EndpointConfig", "Experiment", "Trial", "TrialComponent")
"""Nouns whose operations are moto's: they are kept and given back, and nothing runs."""
_VERBS = ("Create", "Describe", "Delete", "Update", "List", "Associate", "Disassociate")


def is_of_moto(operation: str) -> bool:
    """Tells whether moto answers the operation."""
    verb = next((verb for verb in _VERBS if operation.startswith(verb)), "")
    noun = operation.removeprefix(verb)
    return bool(verb) and any(noun in (each, each + "s") for each in OF_MOTO)


def refused(operation: str) -> ApiError:
    """The answer to an operation that nobody here has, with a substitute if any."""
    for noun, instead in INSTEAD.items():
        if noun in operation:
            return invalid(f"{operation}: muster serve plays training jobs, and {instead}")
    return not_here(operation, "this operation")
