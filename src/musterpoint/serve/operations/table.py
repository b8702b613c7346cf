"""Every operation of SageMaker's API that this server answers: its name and the function that does.

To add one, write a function ``(Request) -> response`` in the module of its noun and a row here. The request has passed
botocore's model, and the response is what that model describes, with times as seconds since the epoch.
"""

from __future__ import annotations

from typing import Any, Mapping

from musterpoint.serve.errors import ApiError, not_here
from musterpoint.serve.operations import (
    Handler,
    executions,
    pipelines,
    processing_jobs,
    tags,
    training_jobs,
    tuning_jobs,
)

OPERATIONS: Mapping[str, Handler] = {
    "CreateTrainingJob": training_jobs.create,
    "DescribeTrainingJob": training_jobs.describe,
    "ListTrainingJobs": training_jobs.list_,
    "StopTrainingJob": training_jobs.stop,
    "UpdateTrainingJob": training_jobs.update,
    "DeleteTrainingJob": training_jobs.delete,
    "CreateHyperParameterTuningJob": tuning_jobs.create,
    "DescribeHyperParameterTuningJob": tuning_jobs.describe,
    "ListHyperParameterTuningJobs": tuning_jobs.list_,
    "ListTrainingJobsForHyperParameterTuningJob": tuning_jobs.list_jobs,
    "StopHyperParameterTuningJob": tuning_jobs.stop,
    "CreateProcessingJob": processing_jobs.create,
    "DescribeProcessingJob": processing_jobs.describe,
    "ListProcessingJobs": processing_jobs.list_,
    "StopProcessingJob": processing_jobs.stop,
    "CreatePipeline": pipelines.create,
    "UpdatePipeline": pipelines.update,
    "DescribePipeline": pipelines.describe,
    "ListPipelines": pipelines.list_,
    "DeletePipeline": pipelines.delete,
    "StartPipelineExecution": executions.begin,
    "StopPipelineExecution": executions.stop,
    "DescribePipelineExecution": executions.describe,
    "DescribePipelineDefinitionForExecution": executions.definition_of,
    "ListPipelineExecutions": executions.list_,
    "ListPipelineExecutionSteps": executions.list_steps,
    "ListPipelineParametersForExecution": executions.parameters_of,
    "AddTags": tags.add,
    "ListTags": tags.list_,
    "DeleteTags": tags.delete,
}

OF_MOTO = ("Model", "ModelPackage", "ModelPackageGroup", "EndpointConfig", "Experiment", "Trial", "TrialComponent")
"""Nouns whose operations are moto's: they are kept and given back, and nothing runs."""
_VERBS = ("Create", "Describe", "Delete", "Update", "List", "Associate", "Disassociate")


def of_moto(operation: str, parameters: Mapping[str, Any]) -> bool:
    """Whether moto answers the operation."""
    verb = next((verb for verb in _VERBS if operation.startswith(verb)), "")
    noun = operation.removeprefix(verb)
    return bool(verb) and any(noun in (each, each + "s") for each in OF_MOTO)


def refused(operation: str) -> ApiError:
    """The answer to an operation that nobody here has."""
    return not_here(operation, "this operation")
