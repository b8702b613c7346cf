"""What CreateTrainingJob refuses, and what it takes without following it."""

from __future__ import annotations

import urllib.parse
from typing import Any, Mapping

from musterpoint.base.errors import UsageError
from musterpoint.serve import training_request as requested
from musterpoint.serve.context import Context
from musterpoint.serve.errors import invalid

_TEXTS: Mapping[str, str] = {
    "VpcConfig": "the job has this machine's network",
    "DebugRuleConfigurations": "no rules are evaluated; the hook's own files are uploaded as outputs only",
    "ProfilerRuleConfigurations": "no rules are evaluated",
    "RemoteDebugConfig": "there is no SSM session into a job",
    "InfraCheckConfig": "no health check runs before the job",
    "SessionChainingConfig": "session tags aren't passed on",
}


def check(context: Context, parameters: Mapping[str, Any]) -> None:
    """Returns where the job can be run.

    Raises:
        ApiError: it can't; the text is SageMaker's where it has one.
    """
    for field in ("AlgorithmSpecification", "ResourceConfig"):
        if field not in parameters:
            raise invalid(f"{field} is required")
    algorithm = parameters["AlgorithmSpecification"]
    if "TrainingImage" not in algorithm:
        raise invalid(
            "AlgorithmSpecification: muster serve runs a TrainingImage; algorithms of AWS Marketplace (AlgorithmName) "
            "aren't on this machine"
        )
    try:
        requested.metrics(parameters)
    except UsageError as error:
        raise invalid(str(error)) from None
    _check_places(context, parameters)


def _check_places(context: Context, parameters: Mapping[str, Any]) -> None:
    output = parameters["OutputDataConfig"]["S3OutputPath"]
    bucket = requested.split_uri(output)[0]
    if not bucket:
        raise invalid(f"Invalid S3 URI: {output}")
    if not exists(context, bucket):
        raise invalid(f"The specified bucket does not exist: {bucket} of OutputDataConfig.S3OutputPath {output}")
    for channel in parameters.get("InputDataConfig") or ():
        source = (channel.get("DataSource") or {}).get("S3DataSource")
        if source and not _has_objects(context, source["S3Uri"]):
            bucket = requested.split_uri(source["S3Uri"])[0]
            raise invalid(
                f'No S3 objects found under S3 URL "{source["S3Uri"]}" given in input data source. Please ensure that '
                f"the bucket exists in the selected region ({context.settings.region}), that objects exist under that "
                f'S3 prefix, and that the role "{parameters["RoleArn"]}" has "s3:ListBucket" permissions on bucket '
                f'"{bucket}".'
            )


def exists(context: Context, bucket: str) -> bool:
    return context.moto.call("s3", "HEAD", f"/{bucket}").status_code == 200


def _has_objects(context: Context, uri: str) -> bool:
    bucket, prefix = requested.split_uri(uri)
    query = urllib.parse.urlencode({"list-type": "2", "max-keys": "1", "prefix": prefix})
    answer = context.moto.call("s3", "GET", f"/{bucket}?{query}")
    return answer.status_code == 200 and b"<Key>" in answer.data


def unfollowed(context: Context, parameters: Mapping[str, Any]) -> list[str]:
    """A sentence for everything in the request that has no effect here."""
    image = parameters["AlgorithmSpecification"]["TrainingImage"]
    said = [f"{field}: {text}" for field, text in _TEXTS.items() if parameters.get(field)]
    if context.settings.backend != "docker":
        said.insert(0, f"{image} isn't started: the job runs in this machine's Python (--backend docker runs images)")
    return said
