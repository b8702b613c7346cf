"""What jobs of any kind that has hosts have in common: how one is kept and run, where it runs, how it is stopped."""

from __future__ import annotations

from typing import Any, Mapping

from musterpoint.serve.context import Context
from musterpoint.serve.errors import in_use
from musterpoint.serve.images import local_image
from musterpoint.serve.job_keys import key_of
from musterpoint.serve.job_run import STOP
from musterpoint.serve.state import AlreadyThere, Record
from musterpoint.serve.transitions import OVER, entered


def begun(context: Context, kind: str, name: str, request: Mapping[str, Any], parent: str = "") -> Record:
    """A new job with its first status, whose directory is made; it isn't kept yet."""
    facts: dict[str, Any] = {"SecondaryStatus": "", "SecondaryStatusTransitions": []}
    arn = context.settings.arn(kind, name)
    blank = Record(kind, name, arn, "InProgress", parent, 0.0, 0.0, None, request, facts)
    context.runner.prepare(key_of(kind, name))
    return entered(blank, *context.runner.first_status())


def keep_job(context: Context, job: Record, tags: Mapping[str, str], taken: str) -> Record:
    """The job as it stands in the state; it is run from now on.

    Raises:
        ApiError: there is one of its name, as ``taken`` says.
    """
    try:
        record = context.state.add(job.kind, job.name, job.arn, "InProgress", job.request, job.facts, tags, job.parent)
    except AlreadyThere as there:
        raise in_use(f"{taken} ({there.record.arn})") from None
    key = key_of(job.kind, job.name)
    context.notices.send(key)
    context.runner.submit(key)
    return record


def where_it_runs(context: Context, image: str, isolated: bool) -> list[str]:
    """What is said of a job that runs in something else than the ``image`` that was asked for."""
    if context.settings.backend == "docker":
        local = local_image(context.settings, image)
        return [f"{image} is {local} here (--image)"] if local != image else []
    said = [f"{image} isn't started: the job runs in this machine's Python (--backend docker runs images)"]
    return [*said, "EnableNetworkIsolation: hosts of this backend have this machine's network"] if isolated else said


def stop_job(context: Context, job: Record) -> None:
    """Has the job stopped, whether it runs or still waits."""

    def change(record: Record) -> Record | None:
        if record.status in (*OVER, "Stopping"):
            return None
        stopping = entered(record, "Stopping")
        return stopping if record.facts.get("_claimed") else entered(stopping, "Stopped")

    context.state.change(job.kind, job.name, change)
    context.runner.order(key_of(job.kind, job.name), {"order": STOP})
    context.notices.send(key_of(job.kind, job.name))
