"""Reads the job from the variables that Azure Batch gives the nodes of a multi-instance task.

Batch runs the coordination command on all nodes, the application command on one: musterpoint is the first. No node is
told its own address, so places go by arrival, and the primary's leads. Sources: Azure Batch's documentation,
https://learn.microsoft.com/azure/batch/batch-compute-node-environment-variables (``AZ_BATCH_HOST_LIST`` is joined with
commas, ``AZ_BATCH_NODE_LIST`` with semicolons, ``AZ_BATCH_MASTER_NODE`` has a port) and
https://learn.microsoft.com/azure/batch/batch-mpi.
"""

from __future__ import annotations

import re
from typing import Mapping

from musterpoint.base.settings import Settings
from musterpoint.core.job.model import Job, Sources
from musterpoint.core.job.platform import DocsRow, Platform, Sample
from musterpoint.core.job.rosters import counted_job, needed, once_each, read_from

NAME, TITLE = "azurebatch", "Azure Batch"
LIST, HOSTS, MASTER, TASK = "AZ_BATCH_NODE_LIST", "AZ_BATCH_HOST_LIST", "AZ_BATCH_MASTER_NODE", "AZ_BATCH_TASK_ID"


def read_job(environ: Mapping[str, str], _settings: Settings, _base: str = "") -> Job:
    """The job of this multi-instance task.

    Raises:
        UsageError: a variable is malformed or missing.
    """
    variable = LIST if environ.get(LIST) else HOSTS
    number = len(once_each(filter(None, re.split("[;,]", needed(environ, variable, TITLE)))))
    leader = needed(environ, MASTER, TITLE)
    job = counted_job(NAME, environ, number, None, leader, Sources(variable, variable, MASTER))
    return job._replace(
        name=environ.get("AZ_BATCH_JOB_ID", ""), notes=(read_from(TITLE, environ, (variable, MASTER, TASK)),)
    )


def _found(environ: Mapping[str, str], _base: str) -> bool:
    """Another service runs on Batch, too, with variables of its own beside these."""
    others = any(name.startswith(("AZUREML_", "AZ_BATCHAI_")) for name in environ)
    return bool(environ.get(TASK)) and not others and any(environ.get(name) for name in (LIST, HOSTS))


PLATFORM = Platform(
    name=NAME,
    title=TITLE,
    read=read_job,
    variables=("AZ_BATCH_",),
    found=_found,
    sample=Sample(
        variables={
            "AZ_BATCH_JOB_ID": "{job}",
            TASK: "train",
            "AZ_BATCH_NODE_ID": "tvmps_{rank}_d",
            LIST: "{addresses:;}",
            HOSTS: "{addresses:,}",
            MASTER: "{addresses[0]}:6000",
        },
        of_leader={"AZ_BATCH_IS_CURRENT_NODE_MASTER": "true"},
        of_workers={"AZ_BATCH_IS_CURRENT_NODE_MASTER": "false"},
    ),
    row=DocsRow(
        "#azure-batch",
        "`AZ_BATCH_NODE_LIST` (or `AZ_BATCH_HOST_LIST`), `AZ_BATCH_MASTER_NODE`",
        "`muster launch …` as a multi-instance task's coordination command",
        "places go by arrival",
        reports="`muster-jobs/JOB/hosts/HOST/failure`",
    ),
)
