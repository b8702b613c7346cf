"""Runs a job as every command does that runs one: the entry point, with a quick check of all hosts first."""

from musterpoint.base.settings import Settings
from musterpoint.core import entrypoint
from musterpoint.core.channel.peers import Peers
from musterpoint.core.job.model import Job
from musterpoint.core.rollcall.roster import Roster
from musterpoint.core.runtime import Request, Runtime


def run(request: Request) -> int:
    """Runs this host's part of the job; the exit code of this process."""
    return entrypoint.run(request, _check)


def _check(runtime: Runtime, request: Request, job: Job, options: Settings, roster: Roster, peers: Peers) -> None:
    from musterpoint.tools.check.before_launch import Waiting, check_before_launch
    from musterpoint.tools.check.subject import subject_of

    subject = subject_of(job, options, request.environ, runtime.ask)
    waiting = Waiting(runtime.loop, peers, lambda: runtime.signals.has_kept)
    check_before_launch(subject, roster, waiting, runtime.console.say)
