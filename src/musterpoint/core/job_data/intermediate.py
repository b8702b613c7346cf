"""Begins the upload of intermediate outputs, where the job names a place for them."""

from musterpoint.base.settings import without_own
from musterpoint.base.stop_budget import whole_grace
from musterpoint.core.data.mover import Access
from musterpoint.core.outputs.sync import Sync, sync_plan
from musterpoint.core.ready import Understood
from musterpoint.core.runtime import Runtime


def begin(runtime: Runtime, asked: Understood, interpreter: str) -> None:
    """Makes their directory; the upload begins when ranks run. ``interpreter``: the user's Python."""
    request, options, job = asked
    whole, say = whole_grace(job.grace, options.stop_grace), runtime.console.say
    access = Access(without_own(request.environ), (interpreter,), job.region)
    plan = sync_plan(job, access, whole, say, below_toolkit=not runtime.is_train)
    if plan is not None:
        runtime.use_sync(Sync(plan, runtime.loop, runtime.sidecars, say, runtime.timeline.add))
