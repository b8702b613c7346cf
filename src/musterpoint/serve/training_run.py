"""One start of a training job's hosts, from the empty directory to what they left."""

from __future__ import annotations

import os
import threading
from typing import Any, Callable, Mapping, NamedTuple, Sequence

from musterpoint.base.console import Console
from musterpoint.base.metrics import Point
from musterpoint.local.backend import Backend
from musterpoint.local.control_plane import RunContext, run
from musterpoint.local.job import LocalJob
from musterpoint.local.netns_hosts import NetnsHosts
from musterpoint.local.observer import Steered
from musterpoint.local.process_hosts import ProcessHosts, can_have_own_tree
from musterpoint.local.results import Phase
from musterpoint.local.tree import Layout
from musterpoint.serve import notices
from musterpoint.serve import training_request as requested
from musterpoint.serve.played import played
from musterpoint.serve.settings import Settings
from musterpoint.serve.telemetry import NAMESPACE, Telemetry, final_metrics

STOP, INTERRUPT, END = "stop", "interrupt", "end"
"""Why hosts are ended before they end themselves: StopTrainingJob, the spot market, the end of the server."""


class GivenUp(Exception):
    """The job is ended before its hosts were started."""


class Ended(NamedTuple):
    """How a run ended.

    ``status``, ``reason``, ``code``: as ``job.json`` has them. ``ended_for``: :data:`STOP` or another, or empty where
    the hosts ended themselves; ``timed_out``: whether it was the job's own limit. ``lost``: hosts taken away by order.
    ``trained_from``, ``trained_to``: in seconds since the epoch; 0 where it didn't come to that. ``metrics``:
    FinalMetricDataList.
    """

    status: str
    reason: str
    code: int
    ended_for: str
    timed_out: bool
    lost: tuple[str, ...]
    trained_from: float
    trained_to: float
    metrics: Sequence[Mapping[str, Any]] = ()


class TrainingRun:
    """One run. :meth:`order` may be called from any thread, at any time; the rest from the main thread."""

    def __init__(
        self,
        settings: Settings,
        request: Mapping[str, Any],
        arn: str,
        number: int,
        directory: str,
        entered: Callable[[Phase], None],
        bring: Callable[[str, str], None],
    ) -> None:
        self.layout = Layout(os.path.join(directory, f"run-{number}"))
        self._settings, self._request = settings, request
        self._empty = os.path.join(directory, "empty")
        self._platform = played(settings, request, arn, number, bring)
        self._entered = entered
        name = request["TrainingJobName"]
        self.telemetry = Telemetry(settings, NAMESPACE, name, lambda: notices.send(settings.data, name))
        self._lock = threading.Lock()
        self._hosts: Steered | None = None
        self._waiting: list[Callable[[Steered], None]] = []
        self.ended_for = ""
        self._stopped = False
        self._lost: list[str] = []
        self._phases: list[Phase] = []

    def give_up(self) -> None:
        """Raises GivenUp where the job has been ended while its hosts weren't there yet."""
        if self.ended_for:
            raise GivenUp(self.ended_for)

    def end(self, why: str) -> None:
        """Ends the run: with SIGTERM and the platform's grace, or at once where it is for the server's own end."""
        self.ended_for = self.ended_for or why
        if why == END:
            self.telemetry.give_up()
        self._steer(lambda hosts: hosts.kill() if why == END else hosts.stop(why))

    def lose(self, host: str) -> None:
        """Takes ``host`` away at once."""
        self._lost.append(host)
        self._steer(lambda hosts: hosts.kill(host))

    def _steer(self, action: Callable[[Steered], None]) -> None:
        with self._lock:
            if self._hosts is None:
                self._waiting.append(action)
                return
            hosts = self._hosts
        hosts.post(lambda: action(hosts))

    def opened(self, hosts: Steered) -> None:
        """Of an observer: what was ordered before there were hosts reaches them as soon as they run."""
        with self._lock:
            self._hosts = hosts
            waiting, self._waiting = self._waiting, []
        for action in waiting:
            hosts.post(lambda action=action: action(hosts))  # type: ignore[misc]

    def wrote(self, host: str, data: bytes) -> None:
        """Of an observer."""
        self.telemetry.wrote(host, data)

    def measured(self, point: Point) -> None:
        """Of an observer."""
        self.telemetry.measured(point)

    def entered(self, phase: Phase) -> None:
        """Of an observer."""
        self._phases.append(phase)
        self._stopped = self._stopped or phase.status == "Stopping"
        self._entered(phase)

    def run(self, environ: Mapping[str, str]) -> Ended:
        """Runs the hosts to their end.

        Raises:
            GivenUp: it was ended before.
            UsageError: the hosts can't be had on this machine.
        """
        os.makedirs(self._empty, exist_ok=True)
        os.makedirs(self.layout.hosts)
        job = requested.local_job(self._settings, self._request, self._empty)
        backend = self._backend(job)
        console = Console()
        try:
            context = RunContext(self.layout, backend, console, environ, out=1, platform=self._platform, observer=self)
            description = run(job, context)
        finally:
            backend.close()
            self.telemetry.close()
        training = [phase.start for phase in self._phases if phase.status == "Training"]
        after = [phase.start for phase in self._phases if phase.status == "Uploading"]
        return Ended(
            description["TrainingJobStatus"],
            description.get("FailureReason", ""),
            description["ExitCode"],
            self.ended_for,
            self._stopped and not self.ended_for,
            tuple(self._lost),
            training[0] if training else 0.0,
            after[0] if after else 0.0,
            final_metrics(description),
        )

    def _backend(self, job: LocalJob) -> Backend:
        if self._settings.backend == "netns":
            return NetnsHosts(self.layout, job.hosts, internet=True)
        return ProcessHosts(self.layout, job.hosts, own_tree=can_have_own_tree())
