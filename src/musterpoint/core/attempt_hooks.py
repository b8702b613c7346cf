"""What is begun before the ranks of an attempt start, and what is looked at when the job has ended well.

Each is one function; :data:`HOOKS` lists them. Watchers, which tell the supervisor, are in ``supervise/watchers/``.
"""

from typing import Callable

from musterpoint.base.records import NamedTuple
from musterpoint.base.settings import PROGRESS
from musterpoint.core import job_data
from musterpoint.core.code import build_locks
from musterpoint.core.job import platforms
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


def _progress(started: Started) -> None:
    """What the program says of its progress, for a platform that shows it."""
    for setting in started.plan.environment if started.plan is not None else ():
        if setting.name == PROGRESS:
            started.runtime.watch_progress(setting.value)


def _uploads(started: Started) -> None:
    """Intermediate outputs, where the job names a place for them."""
    job, runtime = started.asked.job, started.runtime
    planned = started.host is not None and started.plan is not None
    if planned and runtime.sync is None and text_value(job.hyperparameters, "sagemaker_s3_output"):
        assert started.host is not None
        job_data.intermediate.begin(runtime, started.asked, started.host.workspace.interpreter)


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


def _idle_gpus(started: Started) -> None:
    """GPUs that the job leaves idle, once its programs have had the time to open them."""
    planned = started.host is not None and started.plan is not None
    if not planned or started.roster.attempt or started.host is None or not started.host.devices.gpus:
        return
    from musterpoint.core.processes.idle_gpus import look_later

    look_later(started.runtime.loop, started.asked.request.environ, started.runtime.console.say)


def _notices(started: Started) -> None:
    """Announcements of the platform that it will end this machine."""
    runtime = started.runtime
    if address := platforms.load(started.asked.job.platform).notices:
        runtime.loop.call_later(0, lambda: runtime.watch_scheduled_events(address))  # when the ranks have been started


HOOKS: tuple[Callable[[Started], None], ...] = (_progress, _uploads, _checkpoints, _build_locks, _idle_gpus, _notices)
"""Called before the ranks of an attempt start, in this order."""


def check_results(runtime: Runtime, asked: Understood, launcher: str) -> None:
    """Looks at what a job that ended well has left, where its launcher knows what to expect; the leader says it."""
    job, look = asked.job, find(launcher).afterwards
    if look is not None and job.in_group and job.current_host == job.leader and (warning := look(job.paths)):
        runtime.console.say(f"warning: {warning}")
