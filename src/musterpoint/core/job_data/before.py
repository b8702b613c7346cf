"""Before the ranks: channels are brought, and the newest whole checkpoint; no host starts before all have theirs."""

import json
import os
from typing import Mapping

from musterpoint.base.errors import FetchError, MusterError
from musterpoint.base.failure import Failure
from musterpoint.core.channel.peers import JobFailed, Peers, Report, StopAll
from musterpoint.core.channel.topics import consultations
from musterpoint.core.data.channels import bring
from musterpoint.core.data.checkpoints import restore
from musterpoint.core.data.mover import Access, Say
from musterpoint.core.job_data.plan import DataPlan
from musterpoint.core.processes.process import CannotStart
from musterpoint.core.processes.received_signals import STOPPING
from musterpoint.core.runtime import Runtime

POINT = "data"
MARK = ".muster-first-host"
"""A file by which the other hosts see whether their checkpoints' directory is the first one's."""
FOR_EVER = 1e9
"""Seconds: a host may download for days."""


class _Interrupted(Exception):
    """A stop, or the job's end on another host, comes first."""


class Bringing:
    """Brings a job's data in the loop, so that the channel and signals are heard meanwhile."""

    def __init__(self, runtime: Runtime, peers: Peers, plan: DataPlan, access: Access) -> None:
        self._runtime, self._peers, self._plan, self._access = runtime, peers, plan, access
        self._stopped = False
        self.shares_checkpoints = False

    def run(self) -> tuple[bool, Failure | None]:
        """Whether ranks may start here, and what failed here."""
        runtime, failure = self._runtime, None
        runtime.signals.route_to(self._on_signal)
        try:
            self._bring()
        except _Interrupted:
            return False, None
        except MusterError as error:
            failure = runtime.failure_of(error)
        if failure is None and not self._others_have_theirs(""):
            return False, None
        if failure is not None:
            self._others_have_theirs(failure.reason, waits=False)
        return failure is None, failure

    def _on_signal(self, signo: int) -> None:
        if signo in STOPPING:
            self._stopped = True
        self._runtime.signals.keep(signo)

    def _is_interrupted(self) -> bool:
        return self._stopped or self._peers.has_events(JobFailed, StopAll)

    def _bring(self) -> None:
        plan, say, add = self._plan, self._runtime.console.say, self._runtime.timeline.add
        for channel, directory in plan.channels:
            if channel.mode != "file":
                raise FetchError(f"channel {channel.name}: ;{channel.mode} can't be done here")
            found = bring(channel, directory, self._access, plan.share, plan.cache, say, self._run)
            kept = f", {found.kept.sentence} of it were here" if found.kept.files else ""
            say(f"channel {channel.name}: {found.size.sentence} in {directory} after {found.seconds:.1f} s{kept}")
            add("channel-brought", channel=channel.name, files=found.size.files, bytes=found.size.bytes)
        if plan.target is not None:
            restored = restore(plan.target, plan.directory, self._access, plan.share, plan.which, say, self._run)
            self._tell(restored.number, restored.sentence, restored.moved)
            add("checkpoint-restored", number=restored.number, bytes=restored.bytes, seconds=restored.seconds)

    def _tell(self, number: int, sentence: str, moved: int) -> None:
        say, plan = self._runtime.console.say, self._plan
        assert plan.target is not None
        if not number:
            say(f"{plan.target.uri} has no checkpoint yet: the program begins with what is in {plan.directory}")
            return
        aside = f"; {moved:,} files that are no part of it were moved out of the way" if moved else ""
        say(f"checkpoint {number} of {plan.target.uri}: {sentence} in {plan.directory}{aside}")

    def _run(self, argv: tuple[str, ...], environ: Mapping[str, str], on_line: Say) -> int:
        """A program in the loop; a :data:`musterpoint.core.data.mover.Run`."""
        ended: list[int] = []
        try:
            sidecar = self._runtime.sidecars.start(argv, environ, on_line, ended.append)
        except CannotStart as error:
            raise error.error from None
        while not ended:
            if self._is_interrupted():
                sidecar.dismiss()
                raise _Interrupted
            self._runtime.loop.turn()
        return ended[0]

    def _others_have_theirs(self, why_not: str, waits: bool = True) -> bool:
        """Whether every host has its data, once all are here; also, whether the first host's checkpoints are here."""
        answers: list[str | None] = []
        plan, mark = self._plan, ""
        several = plan.target is not None and plan.share.hosts > 1
        if several and not plan.share.place:
            mark = os.urandom(8).hex()
            _write(os.path.join(plan.directory, MARK), mark)
        topic = self._peers.topic(consultations.TOPIC)
        said = json.dumps({"why_not": why_not, "mark": mark})
        topic.consult(POINT, said, _decide, answers.append, FOR_EVER)
        while waits and not answers:
            if self._is_interrupted():
                return False
            self._runtime.loop.turn()
        if not waits or answers[0] is None:
            return False
        answer = json.loads(answers[0])
        if several and plan.share.place and answer["mark"]:
            self.shares_checkpoints = _read(os.path.join(plan.directory, MARK)) == answer["mark"]
        return not answer["failed"]


def _decide(reports: dict[str, Report]) -> str:
    said = {host: json.loads(report.text) for host, report in reports.items()}
    failed = sorted(host for host, each in said.items() if each["why_not"])
    return json.dumps({"failed": failed, "mark": next((each["mark"] for each in said.values() if each["mark"]), "")})


def _write(path: str, text: str) -> None:
    try:
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
    except OSError:
        pass  # then nobody finds it


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read(64)
    except (OSError, ValueError):
        return ""
