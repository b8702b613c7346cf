"""Reads the job from the variables that dstack gives the nodes of a task.

Source: dstack's documentation, "Tasks", distributed tasks; its ``runner/internal/executor/executor.go``. Before 0.18.25
it didn't list the nodes: then the first one's address is enough.
"""

from __future__ import annotations

from typing import Mapping

from musterpoint.base.settings import Settings
from musterpoint.core.job.fields import count, wrong
from musterpoint.core.job.model import Job, Sources
from musterpoint.core.job.platform import DocsRow, Platform, Sample
from musterpoint.core.job.rosters import counted_job, gpus_in, listed_job, needed, place_of, read_from

NAME, TITLE = "dstack", "dstack"
NODES, IPS, RANK, MASTER, GPUS, RUN = (
    "DSTACK_NODES_NUM",
    "DSTACK_NODES_IPS",
    "DSTACK_NODE_RANK",
    "DSTACK_MASTER_NODE_IP",
    "DSTACK_GPUS_PER_NODE",
    "DSTACK_RUN_NAME",
)


def read_job(environ: Mapping[str, str], _settings: Settings, _base: str = "") -> Job:
    """The job of this run.

    Raises:
        UsageError: a variable is malformed or missing.
    """
    number = count(needed(environ, NODES, TITLE), NODES)
    place = place_of(environ, RANK, number, TITLE)
    hosts = environ.get(IPS, "").split()
    if hosts and len(hosts) != number:
        raise wrong(NODES, environ[NODES], f"{len(hosts)}, as many as {IPS} lists")
    if hosts:
        job = listed_job(NAME, environ, hosts, place, IPS)
    else:
        leader = needed(environ, MASTER, TITLE) if number > 1 else ""
        job = counted_job(NAME, environ, number, place, leader, Sources(NODES, RANK, MASTER))
    return job._replace(
        name=environ.get(RUN, ""),
        counted=gpus_in(environ, GPUS),
        notes=(read_from(TITLE, environ, (IPS if hosts else MASTER, NODES, RANK, GPUS)),),
    )


PLATFORM = Platform(
    name=NAME,
    title=TITLE,
    read=read_job,
    variables=("DSTACK_",),
    found=lambda environ, _base: any(environ.get(name) for name in (NODES, RANK)),
    sample=Sample(
        variables={NODES: "{hosts}", RANK: "{rank}", IPS: "{addresses:\n}", MASTER: "{addresses[0]}", RUN: "{job}"}
    ),
    row=DocsRow(
        "#skypilot-and-dstack",
        "`DSTACK_NODES_IPS` (or `DSTACK_MASTER_NODE_IP`), `DSTACK_NODE_RANK`, `DSTACK_GPUS_PER_NODE`",
        "`muster launch …` in `commands:` of a task with `nodes:`",
        reports="`muster-jobs/JOB/hosts/HOST/failure`",
    ),
)
