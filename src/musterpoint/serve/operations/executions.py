"""Executions of pipelines: steps are started as soon as what they wait for is over."""

from __future__ import annotations

import hashlib
import re
import secrets
import threading
import time
from datetime import datetime, timezone
from typing import Any, Callable, Mapping, NamedTuple

from musterpoint.serve import pipeline_definition as language
from musterpoint.serve import validation
from musterpoint.serve.errors import ApiError, absent, invalid, not_here, read_json
from musterpoint.serve.operations import Context, Request, processing_jobs, training_jobs, tuning_jobs
from musterpoint.serve.operations.pipelines import KIND as PIPELINE
from musterpoint.serve.operations.pipelines import pipeline_of, refuse_versions, with_times
from musterpoint.serve.operations.tags import tags_of
from musterpoint.serve.pipeline_definition import (
    CONDITION,
    FAIL,
    PROCESSING,
    TRAINING,
    TUNING,
    Definition,
    Scope,
    Step,
    Unresolved,
)
from musterpoint.serve.state import PROCESSING as PROCESSING_JOB
from musterpoint.serve.state import TRAINING as TRAINING_JOB
from musterpoint.serve.state import Record, listed, page_of
from musterpoint.serve.training_request import split_uri

Fields = Mapping[str, Any]


class JobKind(NamedTuple):
    """The jobs of one kind of step.

    ``kind``: in the state. ``noun``: of the API's operations and parameters. ``metadata``: what a step's list calls it.
    ``add``: makes it. ``properties``: what other steps may refer to. ``longest``: of its name.
    """

    kind: str
    noun: str
    metadata: str
    add: Callable[[Context, dict[str, Any], str], Record]
    properties: Callable[[Context, Record], Fields]
    stop: Callable[[Context, Record], None] = lambda context, job: context.jobs.stop(job)
    longest: int = 63


def _train(context: Context, parameters: dict[str, Any], parent: str) -> Record:
    tags = tags_of(parameters.pop("Tags", None))
    training_jobs.check(context, parameters)
    return training_jobs.add_job(context, parameters, tags, parent)


def _process(context: Context, parameters: dict[str, Any], parent: str) -> Record:
    tags = tags_of(parameters.pop("Tags", None))
    processing_jobs.check(parameters)
    return processing_jobs.add_job(context, parameters, tags, parent)


def _tune(context: Context, parameters: dict[str, Any], parent: str) -> Record:
    return tuning_jobs.add(Request("CreateHyperParameterTuningJob", parameters, context), parent)


def _tuned(context: Context, job: Record) -> Fields:
    return {**tuning_jobs.described(context, job), "TrainingJobSummaries": tuning_jobs.ranked(context, job)}


JOBS: Mapping[str, JobKind] = {
    TRAINING: JobKind(
        TRAINING_JOB, "TrainingJob", "TrainingJob", _train, lambda context, job: training_jobs.described(job)
    ),
    PROCESSING: JobKind(
        PROCESSING_JOB, "ProcessingJob", "ProcessingJob", _process, lambda context, job: processing_jobs.described(job)
    ),
    TUNING: JobKind(
        tuning_jobs.KIND, "HyperParameterTuningJob", "TuningJob", _tune, _tuned, tuning_jobs.stop_one, longest=32
    ),
}
"""By the kind of step."""


def job_name(execution: Record, step: Step) -> str:
    """The name of the step's job: the same whenever it is asked for, so that none is made twice."""
    longest, identity = JOBS[step.kind].longest, execution.name.rpartition("/")[2]
    digest = hashlib.sha256(f"{execution.arn}/{step.name}".encode()).hexdigest()[:8]
    head = "" if longest < 40 else "pipelines-"
    room = longest - len(f"{head}{identity}--{digest}")
    middle = re.sub(r"[^A-Za-z0-9]+", "-", step.name)[:room].strip("-")
    return f"{head}{identity}-{middle}-{digest}"


def start(context: Context, execution: Record, step: Step, arguments: Fields) -> Record:
    """The step's job, made now where it isn't there yet.

    Raises:
        ApiError: it is refused.
    """
    job = JOBS[step.kind]
    name = job_name(execution, step)
    found = context.state.find(job.kind, name)
    if found is not None:
        return found
    parameters = validation.check(f"Create{job.noun}", {**arguments, f"{job.noun}Name": name})
    return job.add(context, dict(parameters), execution.arn)


KIND = "pipeline-execution"
SKIPPED = "Skipped"
"""Of a step in the branch that isn't taken; the API doesn't list it."""
_WORDS = {"Completed": "Succeeded", "Failed": "Failed", "Stopped": "Stopped"}
_MOST_STEPS = 50
_ADVANCING = threading.Lock()
"""Held while steps are started, so that no two threads start the same one."""


def begin(request: Request) -> Fields:
    """Keeps the execution; its first steps are started at once."""
    context, parameters = request.context, request.parameters
    pipeline = pipeline_of(request)
    refuse_versions(request)
    if parameters.get("SelectiveExecutionConfig"):
        raise not_here(request.operation, "selective execution")
    wanted = pipeline.arn, parameters["ClientRequestToken"]
    before = context.state.select(KIND, lambda each: (each.parent, each.request["ClientRequestToken"]) == wanted)
    if before:
        return {"PipelineExecutionArn": before[0].arn}
    text = pipeline.facts["PipelineDefinition"]
    given = {each["Name"]: each["Value"] for each in parameters.get("PipelineParameters") or ()}
    values = language.parameters_of(language.read(text), given)
    identity = secrets.token_hex(6)
    name = f"{pipeline.name}/execution/{identity}"
    facts = {
        "PipelineExecutionDisplayName": parameters.get("PipelineExecutionDisplayName")
        or f"execution-{time.time_ns() // 1_000_000}",
        "_definition": text,
        "_values": values,
        "_steps": {},
        "_role": parameters.get("RoleArn") or pipeline.facts.get("RoleArn", ""),
    }
    for field, value in (
        ("PipelineExecutionDescription", parameters.get("PipelineExecutionDescription")),
        (
            "ParallelismConfiguration",
            parameters.get("ParallelismConfiguration") or pipeline.facts.get("ParallelismConfiguration"),
        ),
    ):
        if value:
            facts[field] = value
    arn = f"{pipeline.arn}/execution/{identity}"
    context.state.add(KIND, name, arn, "Executing", dict(parameters), facts, parent=pipeline.arn)
    context.state.change(PIPELINE, pipeline.name, lambda now: now.with_facts(LastRunTime=time.time()))
    advance(context, name)
    return {"PipelineExecutionArn": arn}


def advance(context: Context, name: str) -> None:
    """Sees what has become of the steps that run, starts those that can be, and ends the execution after the last."""
    with _ADVANCING:
        record = context.state.find(KIND, name)
        if record is None or record.ended is not None:
            return
        definition = language.read(record.facts["_definition"])
        steps: dict[str, dict[str, Any]] = {step: dict(row) for step, row in record.facts["_steps"].items()}
        _see(context, record, definition, steps)
        while _start_next(context, record, definition, steps):
            _keep(context, record, steps)
        ended = _end(record, definition, steps)
        _keep(context, record, steps, ended)


def _keep(context: Context, record: Record, steps: Fields, ended: tuple[str, str] | None = None) -> None:
    def change(now: Record) -> Record:
        now = now.with_facts(_steps=steps)
        if ended is None:
            return now
        status, reason = ended
        return (now.with_facts(FailureReason=reason) if reason else now)._replace(status=status, ended=time.time())

    context.state.change(KIND, record.name, change)


def _see(context: Context, record: Record, definition: Definition, steps: dict[str, dict[str, Any]]) -> None:
    """Notes how the steps that ran have ended."""
    for name, row in steps.items():
        if row["StepStatus"] not in ("Executing", "Stopping"):
            continue
        step = definition.steps[name]
        job = context.state.find(JOBS[step.kind].kind, job_name(record, step))
        if job is None:
            row.update(StepStatus="Failed", EndTime=time.time(), FailureReason="ClientError: its job has been deleted")
        elif job.ended is not None:
            row.update(StepStatus=_WORDS[job.status], EndTime=job.ended)
            if job.facts.get("FailureReason"):
                row["FailureReason"] = job.facts["FailureReason"]


def _start_next(context: Context, record: Record, definition: Definition, steps: dict[str, dict[str, Any]]) -> bool:
    """Starts one step; False: there is none to start now."""
    failed = any(row["StepStatus"] in ("Failed", "Stopped") for row in steps.values())
    if record.status != "Executing" or failed:
        return False
    running = sum(row["StepStatus"] == "Executing" for row in steps.values())
    most = (record.facts.get("ParallelismConfiguration") or {}).get("MaxParallelExecutionSteps", _MOST_STEPS)
    for step in definition.steps.values():
        others = language.awaited(definition, step)
        if step.name in steps or not all(steps.get(each, {}).get("EndTime") for each in others):
            continue
        if _is_left_out(step, steps):
            steps[step.name] = {"StepStatus": SKIPPED, "EndTime": time.time()}
            return True
        if running < most:
            steps[step.name] = _started(context, record, definition, step)
            return True
    return False


def _is_left_out(step: Step, steps: Mapping[str, Fields]) -> bool:
    """Whether it is in a branch that isn't taken, or refers to such a step."""
    if step.branch is not None and steps[step.branch[0]].get("outcome") != step.branch[1]:
        return True
    return any(steps[name]["StepStatus"] == SKIPPED for name in step.waits_for)


def _started(context: Context, record: Record, definition: Definition, step: Step) -> dict[str, Any]:
    """What is known of ``step`` once it has been started."""
    row: dict[str, Any] = {"StepStatus": "Executing", "StartTime": time.time(), "AttemptCount": 1}
    scope = _scope(context, record, definition)
    try:
        if step.kind == CONDITION:
            outcome = all(language.holds(each, scope) for each in step.arguments["Conditions"])
            metadata = {"Condition": {"Outcome": str(outcome)}}
            return {**row, "StepStatus": "Succeeded", "EndTime": time.time(), "outcome": outcome, "Metadata": metadata}
        arguments = language.resolved(step.arguments, scope)
        if step.kind == FAIL:
            text = str(arguments.get("ErrorMessage", ""))
            metadata = {"Fail": {"ErrorMessage": text}}
            return {**row, "StepStatus": "Failed", "EndTime": time.time(), "FailureReason": text, "Metadata": metadata}
        job = start(context, record, step, arguments)
    except Exception as error:  # a definition may have any value anywhere
        said = str(error) if isinstance(error, (ApiError, Unresolved)) else f"{type(error).__name__}: {error}"
        return {**row, "StepStatus": "Failed", "EndTime": time.time(), "FailureReason": f"ClientError: {said}"}
    return {**row, "Metadata": {JOBS[step.kind].metadata: {"Arn": job.arn}}}


def _scope(context: Context, record: Record, definition: Definition) -> Scope:
    def properties(name: str) -> Any:
        step = definition.steps[name]
        job = JOBS.get(step.kind)
        found = None if job is None else context.state.find(job.kind, job_name(record, step))
        if job is None or found is None:
            raise Unresolved(f"Steps.{name}: a {step.kind} step has no properties here")
        return job.properties(context, found)

    def content(name: str, file: str) -> Any:
        uri = file
        if name:
            files = {each["PropertyFileName"]: each for each in definition.steps[name].given.get("PropertyFiles") or ()}
            if file not in files:
                raise Unresolved(f"Steps.{name} has no property file {file}")
            path = f"ProcessingOutputConfig.Outputs['{files[file]['OutputName']}'].S3Output.S3Uri"
            uri = f"{language.at(properties(name), path, path).rstrip('/')}/{files[file]['FilePath']}"
        bucket, key = split_uri(uri)
        data = context.moto.read(bucket, key)
        if data is None:
            raise Unresolved(f"the property file {uri} isn't there")
        try:
            return read_json(data)
        except ValueError:
            raise Unresolved(f"the property file {uri} isn't JSON") from None

    pipeline, _, identity = record.name.partition("/execution/")
    at = datetime.fromtimestamp(record.created, timezone.utc).isoformat()
    execution = {
        "PipelineName": pipeline,
        "PipelineArn": record.parent,
        "PipelineExecutionId": identity,
        "PipelineExecutionArn": record.arn,
        "StartDateTime": at,
        "CurrentDateTime": datetime.now(timezone.utc).isoformat(),
    }
    return Scope(record.facts["_values"], execution, properties, content)


def _end(record: Record, definition: Definition, steps: Mapping[str, Fields]) -> tuple[str, str] | None:
    """The status and the reason of an execution that is over; None: it isn't."""
    if any(row["StepStatus"] in ("Executing", "Stopping") for row in steps.values()):
        return None
    if record.status == "Stopping":
        return "Stopped", ""
    failed = [name for name, row in steps.items() if row["StepStatus"] in ("Failed", "Stopped")]
    if failed:
        return "Failed", f"Step failure: One or multiple steps failed: {', '.join(failed)}"
    return ("Succeeded", "") if len(steps) == len(definition.steps) else None


def execution_of(request: Request) -> Record:
    arn = request.parameters.get("PipelineExecutionArn", "")
    found = request.context.state.by_arn(arn)
    if found is None or found.kind != KIND:
        raise absent(f"Pipeline execution with ARN {arn} does not exist.")
    return found


def describe(request: Request) -> Fields:
    return described(execution_of(request))


def described(record: Record) -> dict[str, Any]:
    """What Describe answers for ``record``."""
    return {
        **record.shown,
        "PipelineArn": record.parent,
        "PipelineExecutionArn": record.arn,
        "PipelineExecutionStatus": record.status,
        "CreationTime": record.created,
        "LastModifiedTime": record.modified,
        **({"RoleArn": record.facts["_role"]} if record.facts.get("_role") else {}),
    }


def definition_of(request: Request) -> Fields:
    record = execution_of(request)
    return {"PipelineDefinition": record.facts["_definition"], "CreationTime": record.created}


def parameters_of(request: Request) -> Fields:
    record = execution_of(request)
    values = record.facts["_values"]
    rows = [
        {"Name": name, "Value": str(value).lower() if isinstance(value, bool) else str(value)}
        for name, value in values.items()
    ]
    page = page_of(rows, request.parameters)
    return page.answer("PipelineParameters", page.records)


def list_steps(request: Request) -> Fields:
    """The steps that have been started; the newest first, as the API has them."""
    record = execution_of(request)
    definition = language.read(record.facts["_definition"])
    rows = []
    for name, row in record.facts["_steps"].items():
        if row["StepStatus"] != SKIPPED:
            given = definition.steps[name].given
            texts = {f"Step{field}": given[field] for field in ("DisplayName", "Description") if given.get(field)}
            shown = {field: value for field, value in row.items() if field != "outcome"}
            rows.append({"StepName": name, **texts, **shown})
    if request.parameters.get("SortOrder", "Descending") == "Descending":
        rows.reverse()
    page = page_of(rows, request.parameters)
    return page.answer("PipelineExecutionSteps", page.records)


def list_(request: Request) -> Fields:
    pipeline = pipeline_of(request)
    found = request.context.state.select(KIND, lambda record: record.parent == pipeline.arn)
    page = listed(found, with_times(request.parameters))
    rows = []
    for record in page.records:
        row = {
            name: record.facts[name]
            for name in ("PipelineExecutionDescription", "PipelineExecutionDisplayName")
            if record.facts.get(name)
        }
        if record.facts.get("FailureReason"):
            row["PipelineExecutionFailureReason"] = record.facts["FailureReason"]
        times = {"StartTime": record.created, "PipelineExecutionStatus": record.status}
        rows.append({"PipelineExecutionArn": record.arn, **times, **row})
    return page.answer("PipelineExecutionSummaries", rows)


def stop(request: Request) -> Fields:
    """Has the steps that run stopped; no other is started."""
    record, context = execution_of(request), request.context
    if record.ended is not None:
        raise invalid(f"Pipeline execution with ARN {record.arn} has already ended with status {record.status}.")

    def change(now: Record) -> Record | None:
        return now._replace(status="Stopping") if now.ended is None else None

    with _ADVANCING:
        stopping = context.state.change(KIND, record.name, change)
        assert stopping is not None
        definition = language.read(stopping.facts["_definition"])
        for name, row in stopping.facts["_steps"].items():
            step = definition.steps[name]
            if row["StepStatus"] == "Executing" and step.kind in JOBS:
                job = context.state.find(JOBS[step.kind].kind, job_name(stopping, step))
                if job is not None and job.ended is None:
                    JOBS[step.kind].stop(context, job)
    advance(context, record.name)
    return {"PipelineExecutionArn": record.arn}


def changed(context: Context, job: Record) -> None:
    """The job ``job`` is over: the execution whose step it is may go on."""
    record = context.state.by_arn(job.parent)
    if record is not None and record.kind == KIND:
        advance(context, record.name)
