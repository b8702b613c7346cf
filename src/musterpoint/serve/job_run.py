"""One start of a job's hosts, from the empty directory to what they left."""

from __future__ import annotations

import os
import threading
from typing import Any, Callable, Mapping, NamedTuple, Sequence

from musterpoint.base.console import Console
from musterpoint.base.metrics import Point
from musterpoint.local.control_plane import RunContext, run
from musterpoint.local.job import LocalJob
from musterpoint.local.observer import Steered
from musterpoint.local.platforms.platform import LocalPlatform
from musterpoint.local.results import Phase
from musterpoint.local.tree import Layout
from musterpoint.serve.backends import Way, backend_of
from musterpoint.serve.settings import Settings
from musterpoint.serve.telemetry import Telemetry, final_metrics

STOP, INTERRUPT, END = "stop", "interrupt", "end"
"""Why hosts are ended before they end themselves: StopTrainingJob, the spot market, the end of the server."""

ORDER = "order"
"""A file beside the hosts' folders: who wrote how many bytes to its log, in the order of time."""


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


class JobRun:
    """One run. :meth:`order` may be called from any thread, at any time; the rest from the main thread."""

    def __init__(
        self,
        settings: Settings,
        job: LocalJob,
        platform: LocalPlatform,
        layout: Layout,
        way: Way,
        telemetry: Telemetry,
        entered: Callable[[Phase], None],
    ) -> None:
        self.way = way
        self.layout = layout
        self.lost: list[str] = []
        self.ended_for = ""
        self._settings, self._job, self._platform, self._entered = settings, job, platform, entered
        self.telemetry = telemetry
        self._lock = threading.Lock()
        self._hosts: Steered | None = None
        self._waiting: list[Callable[[Steered], None]] = []
        self._timed_out = False
        self._phases: list[Phase] = []

    def give_up(self) -> None:
        """Raises GivenUp where the job has been ended while its hosts weren't there yet."""
        if self.ended_for:
            raise GivenUp(self.ended_for)

    def end(self, why: str) -> None:
        """Ends the run: with SIGTERM and the platform's grace, or at once where it is for the server's own end."""
        self.ended_for = why if why == END else self.ended_for or why
        if why == END:
            self.telemetry.give_up()
        self._steer(lambda hosts: hosts.kill() if why == END else None if hosts.stopped else hosts.stop(why))

    def lose(self, host: str) -> None:
        """Takes ``host`` away at once; the platform then ends the others."""
        self.lost.append(host)

        def take(hosts: Steered) -> None:
            hosts.kill(host)
            hosts.end_the_rest(f"{host} was lost")

        self._steer(take)

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
        try:
            with open(os.path.join(self.layout.hosts, ORDER), "a", encoding="utf-8") as file:
                file.write(f"{len(data)} {host}\n")
        except OSError:
            pass  # the page then has one host's log after the other

    def measured(self, point: Point) -> None:
        """Of an observer."""
        self.telemetry.measured(point)

    def entered(self, phase: Phase) -> None:
        """Of an observer."""
        self._phases.append(phase)
        if phase.status == "Stopping" and not self.ended_for:
            self._timed_out = True
        self._entered(phase)

    def run(self, environ: Mapping[str, str]) -> Ended:
        """Runs the hosts to their end.

        Raises:
            GivenUp: it was ended before.
            UsageError: the hosts can't be had on this machine.
        """
        os.makedirs(self.layout.hosts)
        backend = self.way.backend = backend_of(self._settings, self._job, self.layout, self.way.port)
        try:
            context = RunContext(
                self.layout, backend, Console(), environ, out=1, platform=self._platform, observer=self
            )
            description = run(self._job, context)
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
            self._timed_out,
            tuple(self.lost),
            training[0] if training else 0.0,
            after[0] if after else 0.0,
            final_metrics(description),
        )
