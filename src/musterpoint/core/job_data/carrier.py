"""A job's data on its way: brought before the ranks, kept beside them, sent after them."""

import os
from typing import Any

from musterpoint.base.errors import MusterError
from musterpoint.base.failure import Failure
from musterpoint.base.stop_budget import whole_grace
from musterpoint.core.channel.peers import Peers
from musterpoint.core.data.mover import Access
from musterpoint.core.job_data.after import upload
from musterpoint.core.job_data.before import Bringing
from musterpoint.core.job_data.keeping import Keeping
from musterpoint.core.job_data.plan import DataPlan, plan_data, with_channels
from musterpoint.core.ready import Understood
from musterpoint.core.report import files
from musterpoint.core.runtime import Runtime
from musterpoint.core.supervise.state import Outcome


class Carrier:
    """Carries the data of this host's part of the job. ``interpreter``: the user's Python."""

    def __init__(
        self, runtime: Runtime, asked: Understood, interpreter: str, peers: Peers, session: str, attempt: int
    ) -> None:
        self._runtime, self._peers, self._asked = runtime, peers, asked
        self._session, self._attempt = session, attempt
        self._plan: DataPlan | None = None
        self._keeping: Keeping | None = None
        self._bringing: Bringing | None = None
        self._access = Access(asked.request.environ, (interpreter,), asked.job.region)
        self._grace = whole_grace(asked.job.grace, asked.options.stop_grace)
        self._may_start = False

    def bring(self) -> tuple[Understood, bool, Failure | None]:
        """The job with its channels; whether ranks may start here; and what failed."""
        try:
            plan = self._plan = plan_data(self._asked.job, self._asked.options, os.getcwd())
        except MusterError as error:
            return self._asked, False, self._runtime.failure_of(error)
        bringing = Bringing(self._runtime, self._peers, plan, self._access, self._session)
        self._bringing = bringing
        self._may_start, failure = bringing.first(self._attempt)
        if self._may_start and plan.target is not None and self._asked.job.in_group:
            if bringing.shares_checkpoints:
                self._runtime.console.say(f"{plan.directory} is the first host's, too, which keeps its checkpoints")
            self._keeping = Keeping(
                self._runtime,
                self._peers,
                plan.target,
                plan.directory,
                plan.share,
                self._access,
                self._grace,
                bringing.shares_checkpoints,
            )
            self._runtime.use_keeping(self._keeping)
        self._asked = self._asked._replace(job=with_channels(self._asked.job, plan))
        return self._asked, self._may_start, failure

    def again(self, attempt: int) -> tuple[bool, Failure | None]:
        """The same before another attempt: it begins with the files that are here, unless a host is new in it."""
        if not self._may_start or self._bringing is None:
            return False, None
        keeping = self._keeping
        if keeping is None:
            return self._bringing.again(attempt, lambda: None)
        keeping.next_attempt(attempt)
        return self._bringing.again(attempt, keeping.forget)

    def send(self, outcome: Outcome) -> None:
        """The last checkpoint, and the results; a failure is reported before, in case they take long."""
        runtime, plan = self._runtime, self._plan
        if not self._may_start or plan is None:
            return
        if outcome.code:
            runtime.open_output()
            files.write(outcome, runtime.paths, runtime.output, runtime.environ, data=runtime.kept)
        data: dict[str, Any] = {}
        if self._keeping is not None:
            kept = self._keeping.finish(self._left(outcome), not outcome.code, outcome.cut_off)
            data["checkpoints"] = kept._asdict()
        if plan.upload is not None:
            job, left = self._asked.job, self._left(outcome)
            data["uploads"] = upload(runtime, job, plan.upload, self._access, left, self._grace)
        runtime.kept.update(data)

    def _left(self, outcome: Outcome) -> float | None:
        """Seconds that a stop leaves; None: there was none."""
        if outcome.stopped_at is None:
            return None
        return outcome.stopped_at + self._grace - self._runtime.loop.clock()
