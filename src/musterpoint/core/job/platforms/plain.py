"""No platform: this host is a job of its own, or the hosts are described by options or by variables of no platform."""

from __future__ import annotations

from typing import Mapping

from musterpoint.base.settings import Settings
from musterpoint.core.job.fields import node_name
from musterpoint.core.job.model import EntryPoint, Job
from musterpoint.core.job.other_platforms import left_alone, refuse_several, refuse_started_ranks
from musterpoint.core.job.platform import DocsRow, Platform
from musterpoint.core.job.unnamed import from_variables

NAME = "plain"


def read_job(environ: Mapping[str, str], settings: Settings, _base: str = "") -> Job:
    """A job of one host, unless variables describe several; where the platform is named as this one, none are asked.

    Raises:
        UsageError: variables say that this process is one of several, and not enough to find the others.
    """
    if settings.platform == NAME:
        return alone()
    refuse_started_ranks(environ)
    job = None if settings.describes_hosts else from_variables(NAME, environ)
    if job is not None:
        return job
    if settings.nnodes is None:
        refuse_several(environ)
        return alone()
    return alone()._replace(notes=left_alone(environ) if settings.nnodes == 1 else ())


def alone(host: str = "") -> Job:
    """A job of one host, with no program yet. ``host`` is its name; the machine's own if empty."""
    name = host or node_name()
    return Job(
        platform=NAME,
        name="",
        hosts=(name,),
        current_host=name,
        group_hosts=(name,),
        entry_point=EntryPoint(""),
        assumed=True,
    )


PLATFORM = Platform(
    name=NAME,
    title="others",
    read=read_job,
    variables=("PET_",),
    presumed=lambda environ, base: True,
    describes=False,
    row=DocsRow(
        "#platforms-without-a-reader",
        "`--nnodes`, `--node-rank`, `--rollcall-leader`, or names in `SM_HOSTS`",
        "`muster launch …`, once per host",
        "a world of one is refused where variables say that there are more",
        reports="`muster-jobs/JOB/hosts/HOST/failure`",
    ),
)
