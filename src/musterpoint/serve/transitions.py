"""A training job's way through its statuses, as SageMaker tells it in SecondaryStatusTransitions."""

from __future__ import annotations

import time
from typing import Any, Mapping

from musterpoint.serve.job_keys import TRAINING
from musterpoint.serve.state import Record

KIND = TRAINING
OVER = ("Completed", "Failed", "Stopped")
"""The values of TrainingJobStatus of a job that is over."""
MESSAGES: Mapping[str, str] = {
    "Starting": "Starting the training job",
    "Downloading": "Downloading input data",
    "Training": "Training image download completed. Training in progress.",
    "Uploading": "Uploading generated training model",
    "Stopping": "Stopping the training job",
    "Stopped": "Training job stopped",
    "Completed": "Training job completed",
    "Failed": "Training job failed",
    "Interrupted": "Training job interrupted: the spot instances were reclaimed",
    "Restarting": "Restarting the training job",
    "MaxRuntimeExceeded": "Training job runtime exceeded MaxRuntimeInSeconds provided",
    "MaxWaitTimeExceeded": "Training job exceeded MaxWaitTimeInSeconds provided",
}
"""What SageMaker says with each."""
PRIMARY: Mapping[str, str] = {
    "Completed": "Completed",
    "Failed": "Failed",
    "Stopped": "Stopped",
    "MaxRuntimeExceeded": "Stopped",
    "MaxWaitTimeExceeded": "Stopped",
    "Stopping": "Stopping",
}
"""The TrainingJobStatus with a SecondaryStatus; InProgress with any other."""


def entered(record: Record, status: str, message: str = "", **facts: Any) -> Record:
    """``record`` once the job has entered the secondary status ``status``; a job that is over stays as it is.

    A job that is being stopped stays so until it is over.
    """
    if record.status in OVER:
        return record
    now = time.time()
    passed = [dict(each) for each in record.facts.get("SecondaryStatusTransitions", [])]
    if passed and "EndTime" not in passed[-1]:
        passed[-1]["EndTime"] = now
    row = {"Status": status, "StartTime": now, "StatusMessage": message or MESSAGES.get(status, status)}
    primary = PRIMARY.get(status, "InProgress")
    over = primary in OVER
    passed.append({**row, "EndTime": now} if over else row)
    if record.status == "Stopping" and not over:
        primary = "Stopping"
    changed = {**record.facts, **facts, "SecondaryStatus": status, "SecondaryStatusTransitions": passed}
    return record._replace(status=primary, ended=now if over else None, facts=changed)
