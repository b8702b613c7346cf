"""What is done when the job is over on this host: the last uploads, the report, and files given back to their owner.

Imported at the start, it takes the rooms it needs when it is called: the user's first line comes that much earlier.
"""

from __future__ import annotations

from musterpoint.job.model import Paths
from musterpoint.runtime import Runtime
from musterpoint.supervise.outcome import Outcome


def finish(runtime: Runtime, outcome: Outcome, paths: Paths) -> None:
    """A failure is reported before the last uploads, so that no reason is lost whatever becomes of them; a success
    after them, since the platform may end the container when it sees it.
    """
    if outcome.code:
        _report(runtime, outcome, paths)
    if runtime.sync is not None:
        runtime.ears.route_to(runtime.sync.on_signal)
        left = None if outcome.stopped_at is None else outcome.stopped_at + runtime.sync.grace - runtime.loop.clock()
        runtime.sync.finish(left)
    if not outcome.code:
        _report(runtime, outcome, paths)
    _write_timeline(runtime)
    runtime.room.close()
    _give_back(paths)


def _report(runtime: Runtime, outcome: Outcome, paths: Paths) -> None:
    from musterpoint.report import files

    for problem in files.write(outcome, paths, runtime.room, runtime.request.environ):
        runtime.console.say(f"warning: {problem}")


def _write_timeline(runtime: Runtime) -> None:
    from musterpoint.report import files

    for problem in files.write_timeline(runtime.timeline, runtime.room, runtime.masker.mask_facts):
        runtime.console.say(f"warning: {problem}")


def _give_back(paths: Paths) -> None:
    from musterpoint.report.ownership import give_back

    give_back(paths)
