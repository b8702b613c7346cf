"""The places of a job's data, as this host reaches them."""

from __future__ import annotations

import os
from typing import Iterator, Mapping, NamedTuple

from musterpoint.base.errors import FetchError
from musterpoint.base.settings import Settings
from musterpoint.base.stop_budget import whole_grace
from musterpoint.core.data.mover import Access
from musterpoint.core.data.probes import speed
from musterpoint.core.job.model import Job
from musterpoint.core.job_data.plan import plan_data


class DataPlace(NamedTuple):
    """``used_for``, such as "channel train". ``problem``: why it can't be used; empty: it can. ``write`` and ``read``:
    MiB per second, 0: not measured. ``newest``: MiB of the newest checkpoint. ``grace``: seconds that a stop leaves.
    """

    uri: str
    used_for: str
    problem: str = ""
    write: float = 0.0
    read: float = 0.0
    newest: float = 0.0
    grace: float = 0.0


def survey_places(job: Job, options: Settings, environ: Mapping[str, str], interpreter: str) -> tuple[DataPlace, ...]:
    """Every place of the options of data. It takes some seconds for each."""
    if not options.has_data:
        return ()
    plan = plan_data(job, options, os.getcwd())
    access = Access(environ, (interpreter,), job.region)
    wanted = [(channel.uri, f"channel {channel.name}", False) for channel, _ in plan.channels]
    if plan.target is not None:
        wanted.append((plan.target.uri, "checkpoints", True))
    if plan.upload is not None:
        wanted.append((plan.upload.uri, "results", True))
    return tuple(_survey(wanted, access, whole_grace(job.grace, options.stop_grace)))


def _survey(wanted: list[tuple[str, str, bool]], access: Access, grace: float) -> Iterator[DataPlace]:
    for uri, what, writes in wanted:
        try:
            found = speed(uri, access, writes, what == "checkpoints")
        except FetchError as error:
            yield DataPlace(uri, what, str(error).removeprefix(f"{uri}: "))
        else:
            mib = 1024**2
            yield DataPlace(uri, what, "", (found.write or 0) / mib, (found.read or 0) / mib, found.newest / mib, grace)
