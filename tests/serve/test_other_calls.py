"""What is asked of training jobs beside their way to the end: search, deletion, word of changes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from musterpoint.serve import Server

from .jobs import Account, entry


def found_by(account: Account, *filters: dict[str, str], **more: Any) -> list[str]:
    answer = account.sagemaker.search(Resource="TrainingJob", SearchExpression={"Filters": [*filters]}, **more)
    return [each["TrainingJob"]["TrainingJobName"] for each in answer["Results"]]


def test_search(account: Account) -> None:
    for number in (1, 2, 10):
        tags = [{"Key": "round", "Value": str(number)}]
        account.create(
            f"search-{number}", "", **entry(f"exit {number % 2}"), HyperParameters={"epochs": str(number)}, Tags=tags
        )
    for number in (1, 2, 10):
        account.server.wait(f"search-{number}")
    ours = {"Name": "TrainingJobName", "Operator": "Contains", "Value": "search-"}
    assert found_by(account, ours) == ["search-10", "search-2", "search-1"]
    assert found_by(account, ours, SortBy="TrainingJobName", SortOrder="Ascending") == [
        "search-1", "search-10", "search-2",
    ]  # fmt: skip
    assert found_by(account, ours, {"Name": "TrainingJobStatus", "Operator": "Equals", "Value": "Failed"}) == [
        "search-1"
    ]
    more = {"Name": "HyperParameters.epochs", "Operator": "GreaterThan", "Value": "2"}
    assert found_by(account, ours, more) == ["search-10"]
    assert found_by(account, {"Name": "Tags.round", "Operator": "Equals", "Value": "2"}) == ["search-2"]
    assert found_by(account, ours, {"Name": "FailureReason", "Operator": "NotExists"}) == ["search-10", "search-2"]
    assert (
        found_by(account, ours, {"Name": "CreationTime", "Operator": "LessThan", "Value": "2000-01-01T00:00:00Z"}) == []
    )
    pages = account.sagemaker.get_paginator("search").paginate(
        Resource="TrainingJob", SearchExpression={"Filters": [ours]}, MaxResults=2
    )
    assert [len(page["Results"]) for page in pages] == [2, 1]
    with pytest.raises(ClientError, match="it searches TrainingJob"):
        account.sagemaker.search(Resource="Pipeline")


def test_a_job_that_is_over_can_be_deleted_and_its_name_used_again(account: Account) -> None:
    account.create("deleted", "", **entry("echo here; sleep 500"))
    account.until_it_says("deleted", "here")
    with pytest.raises(ClientError, match="stop it first"):
        account.sagemaker.delete_training_job(TrainingJobName="deleted")
    account.sagemaker.stop_training_job(TrainingJobName="deleted")
    account.server.wait("deleted")
    account.sagemaker.delete_training_job(TrainingJobName="deleted")
    with pytest.raises(ClientError, match="Requested resource not found"):
        account.sagemaker.describe_training_job(TrainingJobName="deleted")
    assert account.run("deleted", "", **entry("exit 0"))["TrainingJobStatus"] == "Completed"


def test_a_command_hears_of_every_change(environ: Mapping[str, str], tmp_path: Path) -> None:
    heard = tmp_path / "heard"
    with Server(tmp_path / "data", environ=environ, on_change=f"cat >> {heard}; echo >> {heard}") as server:
        done = Account(server).run("told", "", **entry("exit 0"))
    events = [json.loads(line) for line in heard.read_text().splitlines()]
    passed = [each["Status"] for each in done["SecondaryStatusTransitions"]]
    assert [each["detail"]["SecondaryStatus"] for each in events] == passed
    assert events[-1]["detail"]["TrainingJobStatus"] == "Completed" and events[0]["source"] == "aws.sagemaker"
    assert events[0]["resources"] == [done["TrainingJobArn"]]
