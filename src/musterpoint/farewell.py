"""What is done when the job is over on this host: the last uploads, the report, and files given back to their owner.

Imported at the start, it takes the rooms it needs when it is called: the user's first line comes that much earlier.
"""

from __future__ import annotations

from musterpoint.job.model import Paths
from musterpoint.scene import Scene
from musterpoint.supervise.outcome import Outcome


def take_leave(scene: Scene, outcome: Outcome, paths: Paths) -> None:
    """A failure is reported before the last uploads, so that no reason is lost whatever becomes of them; a success
    after them, since the platform may end the container when it sees it.
    """
    if outcome.code:
        _report(scene, outcome, paths)
    if scene.sync is not None:
        scene.ears.hear = scene.sync.hear
        left = None if outcome.stopped_at is None else outcome.stopped_at + scene.sync.grace - scene.loop.clock()
        scene.sync.finish(left)
    if not outcome.code:
        _report(scene, outcome, paths)
    _write_timeline(scene)
    scene.room.close()
    _give_back(paths)


def _report(scene: Scene, outcome: Outcome, paths: Paths) -> None:
    from musterpoint.report import files

    for problem in files.write(outcome, paths, scene.room, scene.request.environ):
        scene.console.say(f"warning: {problem}")


def _write_timeline(scene: Scene) -> None:
    from musterpoint.report import timeline

    for problem in timeline.write(scene.timeline, scene.room, scene.masker.mask_facts):
        scene.console.say(f"warning: {problem}")


def _give_back(paths: Paths) -> None:
    from musterpoint.report.ownership import give_back

    give_back(paths)
