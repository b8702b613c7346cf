"""A job's data on its way: brought before the ranks, kept beside them, sent after them."""

import os
from typing import Any, Mapping

from musterpoint.base.errors import FetchError, MusterError
from musterpoint.base.failure import Failure
from musterpoint.base.stop_budget import SHORTEST_UPLOAD, UPLOAD_RESERVE, whole_grace
from musterpoint.core.channel.peers import Peers
from musterpoint.core.data.mover import Access, Say
from musterpoint.core.data.moves import has_files, send
from musterpoint.core.data.places import below
from musterpoint.core.job.model import Job
from musterpoint.core.job_data.before import Bringing
from musterpoint.core.job_data.keeping import Keeping
from musterpoint.core.job_data.plan import DataPlan, Upload, plan_data, with_channels
from musterpoint.core.outputs.beside import run
from musterpoint.core.processes.received_signals import STOPPING
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
        self._sources: dict[str, str] = {}

    def bring(self) -> tuple[Understood, bool, Failure | None]:
        """The job with its channels; whether ranks may start here; and what failed."""
        try:
            plan = self._plan = plan_data(self._asked.job, self._asked.options, os.getcwd())
        except MusterError as error:
            return self._asked, False, self._runtime.failure_of(error)
        job = self._asked.job
        claims = job.current_host if job.current_host == job.leader else ""
        bringing = Bringing(self._runtime, self._peers, plan, self._access, self._session, claims)
        self._sources = {path: os.path.realpath(path) for path in _results(self._asked.job)}
        self._bringing = bringing
        self._may_start, failure = bringing.first(self._attempt)
        if self._may_start and plan.target is not None and self._asked.job.in_group:
            if bringing.shares_checkpoints:
                self._runtime.console.say(f"{plan.directory} is the first host's, too, which keeps its checkpoints")
            self._keeping = Keeping(
                self._runtime,
                self._peers,
                plan.target._replace(owner=bringing.owner),
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
            files.write(outcome, runtime.paths, runtime.output, runtime.request.environ, data=runtime.kept)
        data: dict[str, Any] = {}
        if self._keeping is not None:
            # a stop is no failure where every rank here has saved what it had and ended with 0
            clean = not outcome.code or (outcome.failure is None and not outcome.cut_off)
            kept = self._keeping.finish(self._left(outcome), clean, outcome.cut_off)
            data["checkpoints"] = kept._asdict()
        if plan.upload is not None:
            sender = _Sender(runtime, self._left(outcome), self._grace)
            data["uploads"] = _upload(sender, self._asked.job, plan.upload, self._access, self._sources)
        runtime.kept.update(data)

    def _left(self, outcome: Outcome) -> float | None:
        """Seconds that a stop leaves; None: there was none."""
        if outcome.stopped_at is None:
            return None
        return outcome.stopped_at + self._grace - self._runtime.loop.clock()


def _results(job: Job) -> tuple[str, ...]:
    """The directories with the job's results."""
    return tuple(filter(None, (job.paths.model, job.paths.output_data)))


def _upload(
    sender: "_Sender", job: Job, asked: Upload, access: Access, sources: Mapping[str, str]
) -> list[dict[str, Any]]:
    """Sends the model, of the first host, and every host's output data; what became of it, for ``outcome.json``.

    ``sources``: where each directory really was before the ranks; a link that has come since isn't followed. Nothing
    here raises.
    """
    say = sender.runtime.console.say
    leads = job.current_host == job.leader
    wanted = [("model", job.paths.model, "model")] if leads else []
    wanted.append(("output", job.paths.output_data, "output" if leads else f"output-{job.current_host}"))
    sender.runtime.signals.route_to(sender.on_signal)
    found = []
    for what, directory, name in wanted:
        is_there = bool(directory) and os.path.lexists(directory)
        if not directory or (not is_there and what != "model"):
            continue
        if not os.path.isdir(directory):
            gone = "is no directory any more" if is_there else "isn't there any more"
            problem = f"{directory} {gone}"
            say(f"warning: {problem}: nothing of it is sent")
            found.append({"what": what, "uri": asked.uri, "bytes": 0, "problem": problem})
            continue
        if (now := os.path.realpath(directory)) != sources.get(directory, now):
            problem = f"{directory} isn't sent: it was {sources[directory]} before the ranks, and leads to {now} now"
            say(f"warning: {problem}")
            found.append({"what": what, "uri": asked.uri, "bytes": 0, "problem": problem})
            continue
        if not has_files(now):
            continue
        archive = "" if asked.as_files else f"{name}.tar.gz"
        uri = below(asked.uri, name) if asked.as_files else asked.uri
        try:
            sent = send(now, uri, access, archive, None, say, sender.run)
        except MusterError as error:
            say(f"warning: {error}")
            found.append({"what": what, "uri": uri, "bytes": 0, "problem": str(error)})
            continue
        say(f"{what}: {sent.size.sentence} went to {below(uri, archive) if archive else uri}")
        found.append({"what": what, "uri": uri, "bytes": sent.size.bytes, "problem": ""})
    return found


class _Sender:
    """Runs programs in the loop, no longer than a stop allows.

    ``seconds``: how long they may take after a stop (None: no stop limits it). ``grace``: how long a stop leaves that
    comes meanwhile.
    """

    def __init__(self, runtime: Runtime, seconds: float | None, grace: float) -> None:
        self.runtime, self._grace = runtime, grace
        left = None if seconds is None else max(SHORTEST_UPLOAD, seconds - UPLOAD_RESERVE)
        self._until = None if left is None else runtime.loop.clock() + left

    def on_signal(self, signo: int) -> None:
        if signo in STOPPING:
            until = self.runtime.loop.clock() + self._grace - UPLOAD_RESERVE
            self._until = until if self._until is None else min(self._until, until)

    def run(self, argv: tuple[str, ...], environ: Mapping[str, str], on_line: Say) -> int:
        return run(self.runtime.loop, self.runtime.sidecars, argv, environ, on_line, self._left)

    def _left(self) -> float | None:
        left = None if self._until is None else self._until - self.runtime.loop.clock()
        if left is not None and left <= 0:
            raise FetchError("there was no more time to send the results")
        return left
