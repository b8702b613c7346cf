"""Reads the job from Nomad's number of an allocation; how many there are and where they meet the job says.

Sources: Nomad's documentation, https://developer.hashicorp.com/nomad/docs/runtime: ``NOMAD_ALLOC_INDEX`` goes from 0 to
the group's ``count`` - 1, which no variable tells; hashicorp/nomad, ``client/taskenv/env.go``.
"""

from __future__ import annotations

from typing import Mapping

from musterpoint.base.errors import UsageError
from musterpoint.base.settings import Settings
from musterpoint.core.job.fields import shown
from musterpoint.core.job.model import Job, Sources
from musterpoint.core.job.platform import DocsRow, Platform, Sample
from musterpoint.core.job.rosters import counted_job, place_of, read_from

NAME, TITLE = "nomad", "Nomad"
INDEX, GROUP, JOB = "NOMAD_ALLOC_INDEX", "NOMAD_GROUP_NAME", "NOMAD_JOB_NAME"


def read_job(environ: Mapping[str, str], settings: Settings, _base: str = "") -> Job:
    """The job of this allocation's group.

    Raises:
        UsageError: nothing says how many allocations there are, or where the first is.
    """
    if settings.nnodes is None:
        raise UsageError(
            f"{INDEX} is {shown(environ.get(INDEX, ''))}, and Nomad doesn't say how many allocations there are: set "
            "MUSTER_NNODES to the group's count in the task's env"
        )
    if settings.nnodes > 1 and not settings.rollcall_leader:
        raise UsageError(
            f"{INDEX} is {shown(environ.get(INDEX, ''))}, and Nomad tells no allocation where the others are: set "
            "MUSTER_ROLLCALL_LEADER to the first one's address, such as by a template with nomadService"
        )
    place = place_of(environ, INDEX, settings.nnodes, TITLE)
    job = counted_job(NAME, environ, settings.nnodes, place, "", Sources("MUSTER_NNODES", INDEX))
    name = "-".join(filter(None, (environ.get(JOB, "").replace("/", "-"), environ.get(GROUP, ""))))
    return job._replace(name=name, notes=(read_from(TITLE, environ, (INDEX, "MUSTER_NNODES", JOB, GROUP)),))


PLATFORM = Platform(
    name=NAME,
    title=TITLE,
    read=read_job,
    variables=("NOMAD_",),
    # most groups have one allocation, and no variable tells which ones
    found=lambda environ, _base: bool(environ.get(INDEX) and environ.get("MUSTER_NNODES")),
    sample=Sample(
        variables={
            INDEX: "{rank}",
            JOB: "{job}",
            GROUP: "train",
            "MUSTER_NNODES": "{hosts}",
            "MUSTER_ROLLCALL_LEADER": "{leader}",
        }
    ),
    row=DocsRow(
        "#nomad",
        "`NOMAD_ALLOC_INDEX`; `MUSTER_NNODES` and `MUSTER_ROLLCALL_LEADER` in the task's `env`",
        "`muster launch …` as the task's command",
        reports="`muster-jobs/JOB/hosts/HOST/failure`",
    ),
)
