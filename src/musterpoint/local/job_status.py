"""The statuses of a training job, and how one follows the other.

Names and messages are SageMaker's, as DescribeTrainingJob's SecondaryStatusTransitions has them.
"""

from __future__ import annotations

from typing import Any, Iterable, Literal, Mapping, NamedTuple

FinalStatus = Literal["Completed", "Failed", "Stopped"]
Status = Literal["Starting", "Training", "Stopping", "Uploading", "Completed", "Failed", "Stopped"]
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
    **{name: name for name in (*OVER, "Stopping")},
    "MaxRuntimeExceeded": "Stopped",
    "MaxWaitTimeExceeded": "Stopped",
}
"""The TrainingJobStatus with a SecondaryStatus; InProgress with any other."""


class Phase(NamedTuple):
    """One status the job went through.

    ``status``: its name, as in SecondaryStatusTransitions.
    ``start``: when it began, in seconds since the epoch.
    ``message``: its StatusMessage.
    """

    status: Status
    start: float
    message: str


def is_over(status: str) -> bool:
    """Tells whether a job in this secondary status has ended."""
    return PRIMARY.get(status) in OVER


def transitions(passed: Iterable[Mapping[str, Any]], status: str, at: Any, message: str = "") -> list[dict[str, Any]]:
    """SecondaryStatusTransitions, once a job enters a status at the time ``at`` after those ``passed``.

    ``message``: SageMaker's own if it is empty.
    """
    rows = [{"EndTime": at, **each} if "EndTime" not in each else dict(each) for each in passed]
    row = {"Status": status, "StartTime": at, "StatusMessage": message or MESSAGES.get(status, status)}
    return [*rows, {**row, "EndTime": at} if is_over(status) else row]
