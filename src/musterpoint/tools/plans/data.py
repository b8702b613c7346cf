"""What of a job's data would be fetched, kept and sent, and how large it is."""

from __future__ import annotations

import os
from typing import Iterator

from musterpoint.base import settings
from musterpoint.base.errors import FetchError
from musterpoint.core.data.mover_process import Access, limited, mib
from musterpoint.core.data.moves import measure, newest
from musterpoint.core.data.places import Channel
from musterpoint.core.job_data.data_plan import DataPlan, plan_data
from musterpoint.core.runtime import Request
from musterpoint.tools.plans.preview import Preview

ANSWER = 20.0
"""Seconds in which a place lists its files, for a plan."""


def with_data(preview: Preview, request: Request) -> Preview:
    """``preview`` with what its data is, as the stores tell.

    Raises:
        UsageError: an option of the data is wrong.
    """
    options = settings.from_environ(request.environ, request.given)
    if not options.has_data:
        return preview
    plan = plan_data(preview.job, options, os.getcwd())
    access = Access(preview.environ, (preview.python,), preview.job.region)
    return preview._replace(notes=(*preview.notes, *_notes(plan, access)))


def _notes(plan: DataPlan, access: Access) -> Iterator[str]:
    for channel, directory in plan.channels:
        yield f"channel {channel.name}: {_fetched(channel, plan, access)}, to {directory}"
    if plan.target is not None:
        uri = plan.target.uri
        try:
            found = newest(plan.target, access, limited(ANSWER))
        except FetchError as error:
            yield str(error)
        else:
            what = "has none yet" if found is None else f"begins with {', '.join(found.names)} ({mib(found.bytes)})"
            yield f"checkpoints: whole ones of {plan.directory} go to {uri}, which {what}"
    if plan.upload is not None:
        kind = "files" if plan.upload.as_files else "archives"
        yield f"results: the model and output data go to {plan.upload.uri} as {kind}"


def _fetched(channel: Channel, plan: DataPlan, access: Access) -> str:
    try:
        size = measure(channel, access, plan.share, ANSWER)
    except FetchError as error:
        return f"{channel.uri} can't be listed from here ({error})"
    whose = (
        f"for the host at place {plan.share.place + 1} of {plan.share.hosts}" if channel.sharded else "for each host"
    )
    return f"{size.sentence} of {channel.uri} {whose}"
