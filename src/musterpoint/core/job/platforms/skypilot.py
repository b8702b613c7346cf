"""Reads the job from the variables that SkyPilot gives a task's ``run`` commands on every node.

Source: SkyPilot's documentation, "Environment Variables and Secrets", variables for ``run``; its
``sky/skylet/constants.py``.
"""

from __future__ import annotations

from typing import Mapping

from musterpoint.base.settings import Settings
from musterpoint.core.job.fields import count, wrong
from musterpoint.core.job.model import Job
from musterpoint.core.job.platform import DocsRow, Platform, Sample
from musterpoint.core.job.rosters import gpus_in, listed_job, needed, place_of, read_from

NAME, TITLE = "skypilot", "SkyPilot"
NODES, IPS, RANK, GPUS, TASK = (
    "SKYPILOT_NUM_NODES",
    "SKYPILOT_NODE_IPS",
    "SKYPILOT_NODE_RANK",
    "SKYPILOT_NUM_GPUS_PER_NODE",
    "SKYPILOT_TASK_ID",
)


def read_job(environ: Mapping[str, str], _settings: Settings, _base: str = "") -> Job:
    """The job of this task.

    Raises:
        UsageError: a variable is malformed or missing.
    """
    hosts = needed(environ, IPS, TITLE).split()
    if environ.get(NODES) and count(environ[NODES], NODES) != len(hosts):
        raise wrong(NODES, environ[NODES], f"{len(hosts)}, as many as {IPS} lists")
    job = listed_job(NAME, environ, hosts, place_of(environ, RANK, len(hosts), TITLE), IPS)
    return job._replace(
        name=environ.get(TASK, ""),
        counted=gpus_in(environ, GPUS),
        notes=(read_from(TITLE, environ, (IPS, NODES, RANK, GPUS)),),
    )


PLATFORM = Platform(
    name=NAME,
    title=TITLE,
    read=read_job,
    variables=("SKYPILOT_",),
    found=lambda environ, _base: any(environ.get(name) for name in (NODES, IPS, RANK)),
    sample=Sample(variables={NODES: "{hosts}", RANK: "{rank}", IPS: "{addresses:\n}", TASK: "{job}"}),
    row=DocsRow(
        "#skypilot-and-dstack",
        "`SKYPILOT_NODE_IPS`, `SKYPILOT_NODE_RANK`, `SKYPILOT_NUM_GPUS_PER_NODE`",
        "`muster launch …` in `run:`",
        reports="`muster-jobs/JOB/hosts/HOST/failure`",
    ),
)
