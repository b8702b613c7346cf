"""What is begun before the ranks of an attempt start, and what is looked at when the job has ended well.

Each is one function; :data:`HOOKS` lists them. Watchers, which tell the supervisor, are in ``supervise/watchers/``.
"""

from typing import Callable

from musterpoint.base.records import NamedTuple
from musterpoint.core.code import build_locks
from musterpoint.core.job.hyperparameters import text_value
from musterpoint.core.launch.plan import LaunchPlan
from musterpoint.core.launch.table import find
from musterpoint.core.prepare import PreparedHost
from musterpoint.core.ready import Understood
from musterpoint.core.rollcall.roster import Roster
from musterpoint.core.runtime import Runtime


class Started(NamedTuple):
    """An attempt whose ranks are about to be started. ``host`` and ``plan``: None where this host has no part."""

    runtime: Runtime
    asked: Understood
    host: PreparedHost | None
    plan: LaunchPlan | None
    roster: Roster


def _uploads(started: Started) -> None:
    """Intermediate outputs, where the job names a place for them."""
    job, runtime = started.asked.job, started.runtime
    planned = started.host is not None and started.plan is not None
    if planned and runtime.sync is None and text_value(job.hyperparameters, "sagemaker_s3_output"):
        assert started.host is not None
        from musterpoint.core.job_data import intermediate  # 9 ms, for jobs with outputs to send

        intermediate.begin(runtime, started.asked, started.host.workspace.interpreter)


def _checkpoints(started: Started) -> None:
    """Whole checkpoints, where the job keeps them at a place of its own."""
    keeping, plan = started.runtime.keeping, started.plan
    if keeping is not None and plan is not None and started.asked.job.in_group:
        ranks = plan.world_size, plan.first_rank, plan.local_ranks
        hosts = tuple(seat.name for seat in started.roster.group)
        attempt = started.roster.attempt
        started.runtime.loop.call_later(0, lambda: keeping.begin(ranks, hosts, attempt))  # the ranks have been started


def _build_locks(started: Started) -> None:
    """Stale locks on builds of torch's extensions. They are looked for when the ranks have been started, which the
    search would delay; the warning still comes in time.
    """
    runtime, environ = started.runtime, started.asked.request.environ

    def look() -> None:
        for text in build_locks.warnings(environ):
            runtime.console.say(f"warning: {text}")

    runtime.loop.call_later(0, look)


HOOKS: tuple[Callable[[Started], None], ...] = (_uploads, _checkpoints, _build_locks)
"""Called before the ranks of an attempt start, in this order."""


def check_results(runtime: Runtime, asked: Understood, launcher: str) -> None:
    """Looks at what a job that ended well has left, where its launcher knows what to expect; the leader says it."""
    job, look = asked.job, find(launcher).afterwards
    if look is not None and job.in_group and job.current_host == job.leader and (warning := look(job.paths)):
        runtime.console.say(f"warning: {warning}")
