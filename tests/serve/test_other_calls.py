"""What is asked of training jobs beside their way to the end: search, deletion, word of changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from botocore.exceptions import ClientError

from .jobs import Account, entry


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


@pytest.mark.parametrize(
    ("service", "operation"),
    [("appfabric", lambda client: client.list_app_bundles()), ("frauddetector", lambda client: client.get_detectors())],
)
def test_a_service_that_nobody_plays_says_so(account: Account, service: str, operation: Callable[[Any], Any]) -> None:
    with pytest.raises(ClientError, match=r"muster serve has moto answer for .*, which can't") as caught:
        operation(account.server.client(service))
    assert caught.value.response["ResponseMetadata"]["HTTPStatusCode"] == 501
