"""Pipelines: their steps' order, values and branches, their stop, and what is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest
from botocore.exceptions import ClientError

from musterpoint.serve.errors import ApiError
from musterpoint.serve.pipeline_definition import Scope, Unresolved, awaited, holds, parameters_of, read, resolved

from .jobs import BUCKET, ROLE, Account, entry
from .test_processing_jobs import request as processing
from .test_processing_jobs import result

EVALUATES = """
import json, os
base = os.environ.get("SAGEMAKER_BASE_DIR", "/opt/ml")
open(base + "/processing/output/report.json", "w").write(json.dumps({"rows": [{"loss": 0.25}]}))
"""
SAYS = "import json, os; print('epochs', json.loads(os.environ['SM_HPS']), flush=True)"


def step(name: str, kind: str, arguments: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"Name": name, "Type": kind, "Arguments": arguments, **more}


def get(path: str) -> dict[str, str]:
    return {"Get": path}


def join(*values: Any) -> dict[str, Any]:
    return {"Std:Join": {"On": "", "Values": list(values)}}


def create(account: Account, name: str, steps: list[dict[str, Any]], *parameters: dict[str, Any]) -> str:
    text = json.dumps({"Version": "2020-12-01", "Parameters": list(parameters), "Steps": steps})
    made = account.sagemaker.create_pipeline(PipelineName=name, PipelineDefinition=text, RoleArn=ROLE)
    return str(made["PipelineArn"])


def begin(account: Account, name: str, **parameters: str) -> str:
    given = [{"Name": key, "Value": value} for key, value in parameters.items()]
    found: str = account.sagemaker.start_pipeline_execution(PipelineName=name, PipelineParameters=given)[
        "PipelineExecutionArn"
    ]
    return found


def steps_of(account: Account, arn: str) -> dict[str, dict[str, Any]]:
    rows = account.sagemaker.list_pipeline_execution_steps(PipelineExecutionArn=arn)["PipelineExecutionSteps"]
    return {row["StepName"]: row for row in rows}


def arguments(request: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in request.items() if name not in ("TrainingJobName", "ProcessingJobName")}


def whole(account: Account) -> list[dict[str, Any]]:
    """Evaluate, then by what came out train with a parameter or fail; and something beside it."""
    evaluates = processing(account, "evaluates", EVALUATES)
    evaluates["ProcessingOutputConfig"] = {
        "Outputs": [result("report", f"s3://{BUCKET}/reports", "/opt/ml/processing/output")]
    }
    files = [{"PropertyFileName": "Report", "OutputName": "report", "FilePath": "report.json"}]
    loss = {"Std:JsonGet": {"PropertyFile": get("Steps.Evaluate.PropertyFiles.Report"), "Path": "rows[0].loss"}}
    trains = arguments(account.request("trains", SAYS))
    trains["HyperParameters"]["epochs"] = join(get("Parameters.epochs"))
    trains["ResourceConfig"]["InstanceCount"] = get("Parameters.hosts")
    trains["OutputDataConfig"]["S3OutputPath"] = join(
        get("Steps.Evaluate.ProcessingOutputConfig.Outputs['report'].S3Output.S3Uri"),
        "/",
        get("Execution.PipelineName"),
    )
    good = {"Type": "LessThan", "LeftValue": loss, "RightValue": get("Parameters.most")}
    branches = {
        "Conditions": [good],
        "IfSteps": [step("Train", "Training", trains)],
        "ElseSteps": [step("GiveUp", "Fail", {"ErrorMessage": join("a loss above ", get("Parameters.most"))})],
    }
    return [
        step("Decide", "Condition", branches),
        step("Evaluate", "Processing", arguments(evaluates), PropertyFiles=files),
        step("After", "Training", arguments(account.request("after", **entry("exit 0"))), DependsOn=["Decide"]),
    ]


DECLARED = (
    {"Name": "epochs", "Type": "Integer", "DefaultValue": 3},
    {"Name": "hosts", "Type": "Integer", "DefaultValue": 1},
    {"Name": "most", "Type": "Float", "DefaultValue": 0.5},
)


def test_steps_run_in_their_order_with_each_others_values(account: Account) -> None:
    pipeline = create(account, "whole", whole(account), *DECLARED)
    arn = begin(account, "whole", epochs="5", hosts="2")
    assert arn.startswith(f"{pipeline}/execution/")
    done = account.server.wait(arn)
    found = steps_of(account, arn)
    assert done["PipelineExecutionStatus"] == "Succeeded", found
    assert {name: row["StepStatus"] for name, row in found.items()} == dict.fromkeys(
        ("Evaluate", "Decide", "Train", "After"), "Succeeded"
    )
    assert found["Decide"]["Metadata"] == {"Condition": {"Outcome": "True"}}
    assert found["Evaluate"]["EndTime"] <= found["Decide"]["StartTime"]
    assert found["Train"]["EndTime"] <= found["After"]["StartTime"], "it waits for what is in the condition's branch"
    name = found["Train"]["Metadata"]["TrainingJob"]["Arn"].rpartition("/")[2]
    job = next(
        each for each in account.sagemaker.list_training_jobs()["TrainingJobSummaries"]
        if each["TrainingJobArn"].endswith(name)
    )  # fmt: skip
    job = account.sagemaker.describe_training_job(TrainingJobName=job["TrainingJobName"])
    assert job["HyperParameters"]["epochs"] == "5" and job["ResourceConfig"]["InstanceCount"] == 2
    assert job["OutputDataConfig"]["S3OutputPath"] == f"s3://{BUCKET}/reports/whole"
    shown = account.sagemaker.list_pipeline_parameters_for_execution(PipelineExecutionArn=arn)["PipelineParameters"]
    assert {each["Name"]: each["Value"] for each in shown} == {"epochs": "5", "hosts": "2", "most": "0.5"}
    (listed,) = account.sagemaker.list_pipeline_executions(PipelineName="whole")["PipelineExecutionSummaries"]
    assert (listed["PipelineExecutionArn"], listed["PipelineExecutionStatus"]) == (arn, "Succeeded")


@pytest.mark.lane("sdk")
def test_the_other_branch_fails_the_execution(account: Account) -> None:
    create(account, "fails", whole(account), *DECLARED)
    arn = begin(account, "fails", most="0.125")
    done = account.server.wait(arn)
    found = steps_of(account, arn)
    assert done["PipelineExecutionStatus"] == "Failed" and "GiveUp" in done["FailureReason"]
    assert set(found) == {"Evaluate", "Decide", "GiveUp"}
    assert found["GiveUp"]["FailureReason"] == "a loss above 0.125"


@pytest.mark.lane("sdk")
def test_an_execution_is_stopped_with_its_jobs(account: Account) -> None:
    waits = arguments(account.request("waits", **entry("sleep 500")))
    never = step("Never", "Training", waits, DependsOn=["Waits"])
    create(account, "stopped", [step("Waits", "Training", waits), never])
    arn = begin(account, "stopped")
    job = steps_of(account, arn)["Waits"]["Metadata"]["TrainingJob"]["Arn"]
    account.server.wait(job, "Training")
    account.sagemaker.stop_pipeline_execution(PipelineExecutionArn=arn)
    assert account.server.wait(arn)["PipelineExecutionStatus"] == "Stopped"
    assert {name: row["StepStatus"] for name, row in steps_of(account, arn).items()} == {"Waits": "Stopped"}
    with pytest.raises(ClientError, match="already ended"):
        account.sagemaker.stop_pipeline_execution(PipelineExecutionArn=arn)


def test_pipelines_are_kept_changed_and_listed(account: Account) -> None:
    ends = [step("Ends", "Fail", {"ErrorMessage": "no"})]
    arn = create(account, "kept", ends)
    with pytest.raises(ClientError, match=r"\(kept\) already exists") as caught:
        create(account, "kept", ends)
    assert caught.value.response["Error"]["Code"] == "ValidationException"
    account.put("definitions/kept.json", json.dumps({"Version": "2020-12-01", "Steps": []}).encode())
    account.sagemaker.update_pipeline(
        PipelineName="kept", PipelineDefinitionS3Location={"Bucket": BUCKET, "ObjectKey": "definitions/kept.json"}
    )
    shown = account.sagemaker.describe_pipeline(PipelineName=arn)
    assert json.loads(shown["PipelineDefinition"])["Steps"] == [] and shown["RoleArn"] == ROLE
    found = account.sagemaker.list_pipelines(PipelineNamePrefix="kep")["PipelineSummaries"]
    assert [each["PipelineName"] for each in found] == ["kept"]
    account.sagemaker.delete_pipeline(PipelineName="kept")
    with pytest.raises(ClientError, match="does not exist"):
        account.sagemaker.describe_pipeline(PipelineName="kept")


def test_a_step_that_cannot_be_started_ends_its_execution(account: Account) -> None:
    create(account, "odd", [step("If", "Condition", {}), step("Odd", "Training", {"RoleArn": {"Std:Join": 1}})])
    done = account.server.wait(begin(account, "odd"))
    assert done["PipelineExecutionStatus"] == "Failed" and "If" in done["FailureReason"]


def definition(*steps: dict[str, Any], parameters: list[dict[str, Any]] | None = None) -> str:
    return json.dumps({"Version": "2020-12-01", "Parameters": parameters or [], "Steps": list(steps)})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("no", "Invalid pipeline definition"),
        ("[]", "Invalid pipeline definition"),
        (definition(step("Tell", "Lambda", {})), "Step Tell: muster serve has no Lambda steps"),
        (
            definition(step("If", "Condition", {"Conditions": [], "IfSteps": [step("In", "EMR", {})]})),
            "Step In: muster serve has no EMR steps",
        ),
        (definition(step("A", "Training", {}), step("A", "Training", {})), "two steps have one name"),
        (definition(step("A", "Training", {"x": get("Steps.B.y")})), "refers to the step B"),
        (definition(step("A", "Training", {"x": get("Parameters.b")})), "which isn't declared"),
        (definition(step("A", "Training", {"x": {"Std:Hash": 1}})), "no function Std:Hash"),
        (
            definition(step("A", "Training", {}, DependsOn=["B"]), step("B", "Training", {"x": get("Steps.A.y")})),
            "wait for each other: A, B",
        ),
        (definition(step("A", "Training", {}, DependsOn=["A"])), "wait for each other: A"),
        (definition(step("A", "Training", {"x": get("Steps")})), "refers to Steps, which is no value"),
        (definition(parameters=[{"Name": "p", "Type": "Integer", "DefaultValue": []}]), "is no Integer"),
        (definition(parameters=[{"Name": 7}]), "a parameter's name is 7"),
        ("[" * 5000, "nested too deeply"),
    ],
)
def test_what_cannot_run_is_refused_by_name(text: str, said: str) -> None:
    with pytest.raises(ApiError, match=said):
        read(text)


def test_parameters_have_types_defaults_and_limits() -> None:
    declared = [
        {"Name": "i", "Type": "Integer"},
        {"Name": "b", "Type": "Boolean", "DefaultValue": False},
        {"Name": "s", "Type": "String", "DefaultValue": "a", "EnumValues": ["a", "b"]},
    ]
    found = read(definition(parameters=declared))
    assert parameters_of(found, {"i": "7", "b": "true"}) == {"i": 7, "b": True, "s": "a"}
    for given, said in (({}, "no default"), ({"i": "x"}, "is no Integer"), ({"i": "1", "s": "c"}, "none of a, b"),
                        ({"i": "1", "z": "1"}, "Unknown parameters")):  # fmt: skip
        with pytest.raises(ApiError, match=said):
            parameters_of(found, given)


SCOPE = Scope(
    {"n": 3, "yes": True},
    {"PipelineName": "p"},
    lambda name: {"Outputs": [{"OutputName": "a.b", "Uri": "s3://x"}], "Rows": [[1, 2]], "Name": name},
    lambda name, file: {"m": {"loss": 0.5}},
)


def test_expressions_have_values() -> None:
    given = {"a": [join("x-", get("Parameters.n"), "-", get("Parameters.yes"))], "b": get("Steps.S.Outputs['a.b'].Uri")}
    assert resolved(given, SCOPE) == {"a": ["x-3-true"], "b": "s3://x"}
    assert resolved(get("Steps.S.Rows[0][1]"), SCOPE) == 2
    for path in ("Steps.S.Outputs['c'].Uri", "Steps.S.Rows[4]", "Execution.Nothing", "Steps.S.None.x"):
        with pytest.raises(Unresolved, match="no value"):
            resolved(get(path), SCOPE)
    loss = {"Std:JsonGet": {"PropertyFile": get("Steps.S.PropertyFiles.P"), "Path": "m.loss"}}
    less = {"Type": "LessThanOrEqualTo", "LeftValue": loss, "RightValue": "0.5"}
    assert holds(less, SCOPE) and not holds({"Type": "Not", "Expression": less}, SCOPE)
    assert holds({"Type": "In", "QueryValue": get("Parameters.n"), "Values": [1, 3]}, SCOPE)
    assert holds({"Type": "Or", "Conditions": [{**less, "RightValue": 0}, less]}, SCOPE)
    with pytest.raises(Unresolved, match="aren't two numbers"):
        holds({**less, "RightValue": "much"}, SCOPE)


def test_who_waits_for_a_condition_waits_for_its_branches() -> None:
    inner = {"Conditions": [], "IfSteps": [step("In", "Training", {})]}
    found = read(definition(step("If", "Condition", inner), step("Last", "Training", {}, DependsOn=["If"])))
    assert awaited(found, found.steps["Last"]) == {"If", "In"}
    assert awaited(found, found.steps["In"]) == {"If"}
