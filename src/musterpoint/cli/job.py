"""Runs a job as every command does that runs one: the entry point, with a quick check of all hosts first."""

from typing import Mapping, Sequence

from musterpoint.base import exit_codes
from musterpoint.base.console import Console
from musterpoint.base.errors import UsageError
from musterpoint.base.failure import Failure
from musterpoint.base.settings import OUTER, Settings
from musterpoint.core import entrypoint
from musterpoint.core.channel.peers import Peers
from musterpoint.core.job.model import Job
from musterpoint.core.rollcall.roster import Roster
from musterpoint.core.runtime import Request, Runtime

__all__ = ["Request", "report", "run", "run_wrong", "train"]


def run(request: Request) -> int:
    """Runs this host's part of the job; the exit code of this process."""
    return entrypoint.run(request, _check, read_line)


def read_line(command: str, words: Sequence[str], environ: Mapping[str, str]) -> Request:
    """The request that the ``words`` behind ``muster launch`` or ``muster torchrun`` are.

    Raises:
        UsageError: they are wrong.
    """
    from importlib import import_module

    request: Request = import_module(f"musterpoint.cli.{command}").read_line(words, environ)
    return request


def run_wrong(request: Request | None, error: UsageError) -> int:
    """Ends this host's part of a job whose command line is wrong: the other hosts are told why. ``request``: what can
    be read of the line; None: too little.

    Raises:
        UsageError: ``error``, where there are no other hosts, or they can't be told.
    """
    if request is None or not entrypoint.has_others(request):
        raise error
    return run(request._replace(wrong=error))


def train(request: Request) -> int:
    """Runs this host's part of the platform's job. Below a job that runs already it is refused: it would read what that
    one has read, and run it again.
    """
    text = (
        "train: a program of a musterpoint job called this, and train would start the same job again: call the "
        "training script itself, or `muster launch SCRIPT`, which starts ranks under the job that runs"
    )
    host = request.environ.get("SM_CURRENT_HOST", "")
    reason = "\non ".join(filter(None, (f"muster: {text}", host)))
    if not report(Failure(host, exit_codes.USAGE, "muster", "user", reason), request.environ):
        return run(request)
    Console(str).say(text)
    return exit_codes.USAGE


def report(failure: Failure, environ: Mapping[str, str]) -> bool:
    """Tells a job of ours, in whose program this process runs, why it ends; whether there is such a job."""
    if OUTER not in environ:
        return False
    from musterpoint.core.supervise import loan

    return loan.report(failure, environ)


def _check(runtime: Runtime, request: Request, job: Job, options: Settings, roster: Roster, peers: Peers) -> None:
    from musterpoint.tools.check.before_launch import look_at_all  # 11 ms, for jobs that ask for a check

    look_at_all(runtime, request, job, options, roster, peers)
