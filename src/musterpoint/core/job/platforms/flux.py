"""Reads the job from the variables of a Flux job's tasks: one per host.

Flux counts hosts and tasks, and tells names by a command only, so the first host is to be said. Source: flux-core's
``doc/man7/flux-environment.rst``, variables that are set for jobs' tasks; ``flux hostlist``'s manual.
"""

from __future__ import annotations

from typing import Mapping

from musterpoint.base.errors import UsageError
from musterpoint.base.settings import Settings
from musterpoint.core.job.fields import count
from musterpoint.core.job.model import Job, Sources
from musterpoint.core.job.other_platforms import shown_variables
from musterpoint.core.job.platform import DocsRow, Platform, Sample
from musterpoint.core.job.rosters import counted_job, needed, numbered, place_of, read_from

NAME, TITLE = "flux", "Flux"
NODES, TASKS, RANK, LEADER = "FLUX_JOB_NNODES", "FLUX_JOB_SIZE", "FLUX_TASK_RANK", "MASTER_ADDR"


def read_job(environ: Mapping[str, str], settings: Settings, _base: str = "") -> Job:
    """The job of this task's hosts.

    Raises:
        UsageError: a variable is malformed or missing, there are several tasks per host, or nothing says where the
            first host is.
    """
    used = [(name, environ[name]) for name in (NODES, TASKS, RANK) if environ.get(name)]
    if not used:
        needed(environ, NODES, TITLE)
    tasks = count(environ.get(TASKS) or environ.get(NODES) or 1, TASKS)
    number = count(environ.get(NODES) or tasks, NODES)
    if number != tasks:
        raise UsageError(
            f"{shown_variables(used)}: expected one task on each host, which starts all ranks itself: "
            f"flux run -N {number} --tasks-per-node=1 muster launch ..."
        )
    leader = settings.rollcall_leader or environ.get(LEADER, "")
    if number > 1 and not leader:
        raise UsageError(
            f"{shown_variables(used)}: Flux doesn't say in variables where the first host is: pass --rollcall-leader "
            '"$(flux hostlist --nth=0 local)" (MUSTER_ROLLCALL_LEADER), or set MASTER_ADDR to it'
        )
    place = place_of(environ, RANK, number, TITLE) if number > 1 else 0
    job = counted_job(NAME, environ, number, place, environ.get(LEADER, ""), Sources(NODES, RANK, LEADER))
    own = environ.get("FLUX_JOB_ID", "")
    name = f"{NAME}-{own}" if own else ""
    return job._replace(name=name, notes=(read_from(TITLE, environ, (NODES, TASKS, RANK)),))


PLATFORM = Platform(
    name=NAME,
    title=TITLE,
    read=read_job,
    variables=("FLUX_", "PMI_"),
    found=lambda environ, _base: any(environ.get(name) for name in (NODES, TASKS, RANK)),
    numbers=numbered(RANK, TASKS, "FLUX_TASK_LOCAL_ID"),
    once_per_host="flux run --tasks-per-node=1",
    sample=Sample(
        variables={
            "FLUX_JOB_ID": "1",
            NODES: "{hosts}",
            TASKS: "{hosts}",
            RANK: "{rank}",
            "FLUX_TASK_LOCAL_ID": "0",
            "MUSTER_ROLLCALL_LEADER": "{leader}",  # as `flux hostlist` says it
        }
    ),
    row=DocsRow(
        "#flux",
        "`FLUX_JOB_NNODES`, `FLUX_TASK_RANK`; the first host from `--rollcall-leader` or `MASTER_ADDR`",
        "`flux run -N N --tasks-per-node=1 muster launch …`",
        reports="`muster-jobs/JOB/hosts/HOST/failure`",
    ),
)
