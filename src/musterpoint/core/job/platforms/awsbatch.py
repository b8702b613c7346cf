"""Reads the job from the variables that AWS Batch gives the nodes of a multi-node parallel job.

The main node leads; it is the only one that doesn't get its own address. Source: AWS Batch's user guide on multi-node
parallel jobs, https://docs.aws.amazon.com/batch/latest/userguide/mnp-env-vars.html.
"""

from __future__ import annotations

from typing import Mapping

from musterpoint.base.settings import Settings
from musterpoint.core.job.fields import count, node_name
from musterpoint.core.job.model import Job, Sources
from musterpoint.core.job.platform import DocsRow, Platform, Sample
from musterpoint.core.job.rosters import counted_job, needed, place_of, read_from

NAME, TITLE = "awsbatch", "AWS Batch"
NODES, INDEX, MAIN, ADDRESS, JOB = (
    "AWS_BATCH_JOB_NUM_NODES",
    "AWS_BATCH_JOB_NODE_INDEX",
    "AWS_BATCH_JOB_MAIN_NODE_INDEX",
    "AWS_BATCH_JOB_MAIN_NODE_PRIVATE_IPV4_ADDRESS",
    "AWS_BATCH_JOB_ID",
)


def read_job(environ: Mapping[str, str], _settings: Settings, _base: str = "") -> Job:
    """The job of this node; the main node has the first place, the others follow by their numbers.

    Raises:
        UsageError: a variable is malformed or missing.
    """
    number = count(needed(environ, NODES, TITLE), NODES)
    index = place_of(environ, INDEX, number, TITLE)
    main = place_of(environ, MAIN, number, TITLE) if environ.get(MAIN) else 0
    leader = node_name() if index == main else needed(environ, ADDRESS, TITLE)
    job = counted_job(NAME, environ, number, (index - main) % number, leader, Sources(NODES, INDEX, ADDRESS))
    return job._replace(
        name=environ.get(JOB, "").partition("#")[0],  # "#0" is the node's
        notes=(read_from(TITLE, environ, (NODES, INDEX, MAIN, ADDRESS)),),
    )


PLATFORM = Platform(
    name=NAME,
    title=TITLE,
    read=read_job,
    variables=("AWS_BATCH_",),
    found=lambda environ, _base: any(environ.get(name) for name in (NODES, INDEX)),
    sample=Sample(
        variables={JOB: "{job}#{rank}", NODES: "{hosts}", INDEX: "{rank}", MAIN: "0"},
        of_workers={ADDRESS: "{addresses[0]}"},  # the main node isn't told its own
    ),
    row=DocsRow(
        "#aws-batch",
        "`AWS_BATCH_JOB_NUM_NODES`, `…_NODE_INDEX`, `…_MAIN_NODE_PRIVATE_IPV4_ADDRESS`",
        "`muster launch …` as the command of every node range",
        "the main node leads",
        reports="`muster-jobs/JOB/hosts/HOST/failure`",
    ),
)
