"""PBS: one process on every host of a job, which all read its file of hosts."""

from __future__ import annotations

import os

from musterpoint.local.job import LocalJob
from musterpoint.local.platforms import commands
from musterpoint.local.platforms.platform import PlayedHost
from musterpoint.local.tree import Layout

_FILE = "nodefile"


def prepare(job: LocalJob, host: str, layout: Layout) -> None:
    """Makes the host's directories, and the file with two slots of every host."""
    commands.prepare(job, host, layout)
    with open(os.path.join(layout.tree(host), _FILE), "w", encoding="ascii") as file:
        file.writelines(f"{name}\n" for name in job.hosts for _slot in range(2))


def environment(host: PlayedHost) -> dict[str, str]:
    """The variables of one process."""
    return {
        "PBS_JOBID": "1.local",
        "PBS_JOBNAME": host.job.name,
        "PBS_NODEFILE": os.path.join(host.tree, _FILE),
        "PBS_NUM_NODES": str(len(host.job.hosts)),
        "PBS_NODENUM": str(host.rank),
    }


PLAYED = commands.launching(commands.nodes, environment)._replace(prepare=prepare)
