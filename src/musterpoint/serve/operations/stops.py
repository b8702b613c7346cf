"""The stop of a job of any kind that has hosts."""

from __future__ import annotations

from musterpoint.serve.context import Context
from musterpoint.serve.job_keys import key_of
from musterpoint.serve.job_run import STOP
from musterpoint.serve.state import Record
from musterpoint.serve.transitions import OVER, entered


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
