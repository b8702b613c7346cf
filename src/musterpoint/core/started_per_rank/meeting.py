"""The entry points of one host elect one that leads.

It has the host's part in the roll call, its supervisor and its reports. The others meet it at a socket; when it dies
before ranks run, another leads. Each starts its own rank as a child, through the rank stub, so that the platform (an
mpirun) sees its own process tree; its output goes to its own stdout. All end with the job's code.
"""

from __future__ import annotations

from typing import Mapping

from musterpoint.base.errors import LauncherError
from musterpoint.core.job.model import Job, StartedRank
from musterpoint.core.runtime import Runtime
from musterpoint.core.started_per_rank.election import elect, file_name
from musterpoint.core.started_per_rank.follower import Follower
from musterpoint.core.started_per_rank.leader import Leader

_MOST_TRIES = 1000
"""How often another one is met that ends before it has said anything."""


def name_of(job: Job, environ: Mapping[str, str]) -> str:
    """What the files where they meet are called: the same for every entry point of the job here, and for no others."""
    run = job.name or environ.get("PMIX_NAMESPACE") or f"{environ.get('MASTER_ADDR')}:{job.master_port}"
    return file_name(job.current_host, run)


def meet(runtime: Runtime, environ: Mapping[str, str], job: Job, started: StartedRank, secret: str) -> Leader | int:
    """Elects one of this host's entry points. The one that leads gets a :class:`Leader`; the others get their exit
    code, when the job is over.

    Raises:
        LauncherError: they can't meet, or this entry point doesn't fit the others.
        StoppedEarly: this process was told to stop while it found nobody to tell.
    """
    name = name_of(job, environ)
    lost: set[int] = set()
    for _ in range(_MOST_TRIES):
        runtime.check_stop(job.own_name)
        met = elect(runtime.loop, name, secret, lambda: runtime.check_stop(job.own_name))
        if met.leads:
            return Leader(runtime, met, started, len(job.arguments), lost)
        follower = Follower(runtime, met, environ, job, started, lost)
        code = follower.run()
        if follower.led_by is not None:
            lost.add(follower.led_by)
        if code is not None:
            return code
    raise LauncherError("the entry point that leads this host ends again and again before it has said anything")
