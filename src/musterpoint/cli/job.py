"""Runs a job as every command does that runs one: the entry point, with a quick check of all hosts first."""

from musterpoint.base.errors import UsageError
from musterpoint.base.settings import Settings
from musterpoint.core import entrypoint, nested
from musterpoint.core.channel.peers import Peers
from musterpoint.core.job.model import Job
from musterpoint.core.rollcall.roster import Roster
from musterpoint.core.runtime import Request, Runtime

__all__ = ["Request", "run", "run_wrong", "train"]


def run(request: Request) -> int:
    """Runs this host's part of the job; the exit code of this process."""
    return entrypoint.run(request, _check)


def run_wrong(request: Request | None, error: UsageError) -> int:
    """Ends this host's part of a job whose command line is wrong: the other hosts are told why. ``request``: what can
    be read of the line; None: too little.

    Raises:
        UsageError: ``error``, where there are no other hosts, or they can't be told.
    """
    if request is None or not entrypoint.has_others(request):
        raise error
    part = request._replace(wrong=error)
    code = nested.launch_nested(part)
    return run(part) if code is None else code


def train(request: Request) -> int:
    """Runs this host's part of the platform's job; refused below a job that runs already."""
    return nested.refuse_train(request.environ) or run(request)


def _check(runtime: Runtime, request: Request, job: Job, options: Settings, roster: Roster, peers: Peers) -> None:
    from musterpoint.tools.check.before_launch import look_at_all  # 11 ms, for jobs that ask for a check

    look_at_all(runtime, request, job, options, roster, peers)
