"""The end of a job on this host: the last uploads, the reports, and the ownership of files."""

from __future__ import annotations

from musterpoint.base import exit_codes
from musterpoint.base.errors import StoppedEarly
from musterpoint.base.exit_codes import STOPPED
from musterpoint.core.job.directories import is_own
from musterpoint.core.report import files, ownership
from musterpoint.core.runtime import Runtime
from musterpoint.core.supervise.state import Outcome


def outcome_of(error: Exception, runtime: Runtime, stop_code: int = STOPPED) -> Outcome:
    """What an error, or a stop before the ranks, means for the job; it is said."""
    if isinstance(error, StoppedEarly):
        runtime.console.say(str(error))
        return Outcome(exit_codes.of_job(0, error.signal, stop_code), None, error.host)
    failure = runtime.failure_of(error)
    runtime.console.say(failure.reason.removeprefix("muster: "))
    return Outcome(failure.code, failure)


def finish(runtime: Runtime, outcome: Outcome) -> None:
    """Uploads what is left of the outputs, writes the reports and returns files to their owner. Raises nothing.

    A failure is reported before the last uploads, in case they hang; a success after them, since the platform may end
    the container then.
    """
    runtime.open_output()
    if outcome.code:
        _report(runtime, outcome)
    _finish_sync(runtime, outcome)
    if not outcome.code:
        _report(runtime, outcome)
    _write_timeline(runtime)
    runtime.output.close()
    _give_back(runtime)


def _finish_sync(runtime: Runtime, outcome: Outcome) -> None:
    """The final upload of intermediate outputs. After a stop it gets the rest of the platform's grace."""
    sync = runtime.sync
    if sync is not None:
        runtime.signals.route_to(sync.on_signal)
        left = None if outcome.stopped_at is None else outcome.stopped_at + sync.grace - runtime.loop.clock()
        sync.finish(left)


def _report(runtime: Runtime, outcome: Outcome) -> None:
    for problem in files.write(outcome, runtime.paths, runtime.output, runtime.environ, data=runtime.kept):
        runtime.console.say(f"warning: {problem}")
    if outcome.failure is not None and runtime.leads and is_own(runtime.paths.failure):
        runtime.console.say(f"the whole reason is in {runtime.paths.failure}")


def _write_timeline(runtime: Runtime) -> None:
    for problem in files.write_timeline(runtime.timeline, runtime.output, runtime.masker.mask_facts):
        runtime.console.say(f"warning: {problem}")


def _give_back(runtime: Runtime) -> None:
    ownership.give_back(runtime.paths)
