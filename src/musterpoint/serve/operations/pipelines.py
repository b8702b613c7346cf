"""Pipelines: what is kept of them; their executions are in ``executions``."""

from __future__ import annotations

from typing import Any, Mapping

from musterpoint.serve import pipeline_definition
from musterpoint.serve.errors import absent, invalid, not_here
from musterpoint.serve.operations import Request
from musterpoint.serve.operations.tags import tags_of
from musterpoint.serve.state import AlreadyThere, Record, listed

KIND = "pipeline"
_VERSIONS = ("PipelineVersionId", "PipelineVersionAlias", "PipelineVersionAliases")
_TIMES = {"CreatedAfter": "CreationTimeAfter", "CreatedBefore": "CreationTimeBefore"}
Fields = Mapping[str, Any]


def create(request: Request) -> Fields:
    parameters, context = dict(request.parameters), request.context
    refuse_versions(request)
    tags = tags_of(parameters.pop("Tags", None))
    name = parameters["PipelineName"]
    text = _definition(request)
    if text is None:
        raise invalid("PipelineDefinition or PipelineDefinitionS3Location is required")
    facts = {**_facts(parameters), "PipelineDefinition": text}
    try:
        record = context.state.add(KIND, name, context.settings.arn(KIND, name), "Active", parameters, facts, tags)
    except AlreadyThere:
        raise invalid(
            "Pipeline names must be unique within an AWS account and region. Pipeline with name "
            f"({name}) already exists."
        ) from None
    for said in unfollowed(text):
        context.say(f"{name}: {said}")
    return {"PipelineArn": record.arn}


def _facts(parameters: Fields) -> dict[str, Any]:
    shown = ("PipelineDisplayName", "PipelineDescription", "RoleArn", "ParallelismConfiguration")
    return {name: parameters[name] for name in shown if parameters.get(name)}


def _definition(request: Request) -> str | None:
    """The definition of the request, which can run; None: it has none."""
    text, place = request.parameters.get("PipelineDefinition"), request.parameters.get("PipelineDefinitionS3Location")
    if place:
        data = request.context.moto.read(place["Bucket"], place["ObjectKey"])
        if data is None:
            raise invalid(f"PipelineDefinitionS3Location: s3://{place['Bucket']}/{place['ObjectKey']} can't be read")
        text = data.decode("utf-8", "replace")
    if text is not None:
        pipeline_definition.read(text)
    return text


def unfollowed(text: str) -> list[str]:
    """A sentence for everything in the definition that has no effect here."""
    steps = pipeline_definition.read(text).steps.values()
    said = []
    for field, what in (("CacheConfig", "every step is run"), ("RetryPolicies", "no step is tried again")):
        names = [step.name for step in steps if step.given.get(field)]
        if names:
            said.append(f"{field} of {', '.join(names)}: {what}")
    return said


def refuse_versions(request: Request) -> None:
    for name in _VERSIONS:
        if request.parameters.get(name):
            raise not_here(request.operation, f"versions of pipelines ({name})")


def update(request: Request) -> Fields:
    record, text = pipeline_of(request), _definition(request)
    refuse_versions(request)
    facts = _facts(request.parameters)
    if text is not None:
        facts["PipelineDefinition"] = text
    request.context.state.change(KIND, record.name, lambda now: now.with_facts(**facts))
    return {"PipelineArn": record.arn}


def pipeline_of(request: Request) -> Record:
    """The pipeline that the request names, or whose ARN it has."""
    name = request.parameters["PipelineName"]
    state = request.context.state
    found = state.by_arn(name) if name.startswith("arn:") else state.find(KIND, name)
    if found is None or found.kind != KIND:
        raise absent(f"Pipeline {name} does not exist.")
    return found


def describe(request: Request) -> Fields:
    refuse_versions(request)
    record = pipeline_of(request)
    found = {"PipelineDisplayName": record.name, **record.shown}
    return {
        **found,
        "PipelineArn": record.arn,
        "PipelineName": record.name,
        "PipelineStatus": record.status,
        "CreationTime": record.created,
        "LastModifiedTime": record.modified,
    }


def delete(request: Request) -> Fields:
    """Forgets the pipeline; its executions and their jobs stay."""
    record = pipeline_of(request)
    request.context.state.remove(KIND, record.name)
    return {"PipelineArn": record.arn}


def with_times(parameters: Fields) -> dict[str, Any]:
    """The parameters of a list, with its times and orders under the names that other lists have for them."""
    found = {_TIMES.get(name, name): value for name, value in parameters.items()}
    if found.get("SortBy") == "PipelineExecutionArn":
        found["SortBy"] = "Name"
    return found


def list_(request: Request) -> Fields:
    prefix = request.parameters.get("PipelineNamePrefix", "")
    found = request.context.state.select(KIND, lambda record: record.name.startswith(prefix))
    page = listed(found, with_times(request.parameters))
    rows = []
    for record in page.records:
        row = {name: record.facts[name] for name in ("PipelineDescription", "RoleArn") if record.facts.get(name)}
        last = {"LastExecutionTime": record.facts["LastRunTime"]} if record.facts.get("LastRunTime") else {}
        rows.append(
            {
                **row,
                **last,
                "PipelineArn": record.arn,
                "PipelineName": record.name,
                "PipelineDisplayName": record.facts.get("PipelineDisplayName", record.name),
                "CreationTime": record.created,
                "LastModifiedTime": record.modified,
            }
        )
    return page.answer("PipelineSummaries", rows)
