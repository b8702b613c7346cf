"""LSF: one task of ``jsrun`` on every host of a job."""

from __future__ import annotations

from musterpoint.local.platforms import commands
from musterpoint.local.platforms.platform import PlayedHost


def environment(host: PlayedHost) -> dict[str, str]:
    """The variables of one task."""
    number = str(len(host.job.hosts))
    return {
        "LSB_JOBID": "1",
        "LSB_JOBNAME": host.job.name,
        "LSB_MCPU_HOSTS": " ".join(f"{name} 2" for name in host.job.hosts),
        "LSB_HOSTS": " ".join(f"{name} {name}" for name in host.job.hosts),
        "JSM_NAMESPACE_SIZE": number,
        "JSM_NAMESPACE_RANK": str(host.rank),
        "JSM_NAMESPACE_LOCAL_RANK": "0",
    }


PLAYED = commands.launching(commands.nodes, environment)
