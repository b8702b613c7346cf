"""What options and variables say of a job's hosts beside what its platform says, and the notes about that."""

from __future__ import annotations

from typing import Mapping

from musterpoint.base.settings import ATTEMPT, Settings
from musterpoint.core.job.agreement import agreed
from musterpoint.core.job.model import Job
from musterpoint.core.job.platform import Platform
from musterpoint.core.job.unknown_platforms import suspected
from musterpoint.core.job.unnamed import settled
from musterpoint.core.job.variables import Watched

__all__ = ["read_with_hosts", "settled"]

_COUNTS = ("PET_NNODES", "NNODES", "NUM_NODES")
"""Variables with which users count hosts."""


def read_with_hosts(platform: Platform, environ: Mapping[str, str], settings: Settings, base: str) -> Job:
    """The job as ``platform`` reads it below ``base``, with the hosts of which options and variables tell.

    Raises:
        UsageError: they contradict each other, or are wrong.
    """
    watched = Watched(environ)
    job = platform.read(watched, settings, base)
    own = frozenset(watched.seen)
    if job.unnamed is not None or (job.assumed and settings.describes_hosts):
        return settled(job, settings)
    if not job.assumed and (settings.describes_hosts or any(map(environ.get, _COUNTS))):
        job = agreed(job, platform, settings, environ, own)
    below_ours = ATTEMPT in environ  # the numbers of a rank that musterpoint started are its own
    told = (platform.describes or settings.platform == "auto") and not below_ours
    if len(job.hosts) > 1 or job.started is not None or settings.describes_hosts or not told:
        return job
    more = suspected(environ) if job.assumed else suspected(environ, own, platform.variables, known=True)
    return job._replace(notes=(*job.notes, *more))
