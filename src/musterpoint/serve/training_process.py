"""The process of one training job."""

from __future__ import annotations

import os
import time
from typing import Any, Mapping, Sequence

from musterpoint.base.errors import MusterError
from musterpoint.base.metrics import Point
from musterpoint.local.results import Phase
from musterpoint.local.tree import Layout
from musterpoint.serve import notices
from musterpoint.serve import training_request as requested
from musterpoint.serve.backends import Way
from musterpoint.serve.checkpoints import Checkpoints
from musterpoint.serve.early_stops import MOST_EPOCHS
from musterpoint.serve.job_process import INTERNAL_ERROR, SERVER_ENDED, JobProcess
from musterpoint.serve.job_run import END, INTERRUPT, Ended, GivenUp, JobRun
from musterpoint.serve.played import played
from musterpoint.serve.settings import Settings
from musterpoint.serve.state import Record
from musterpoint.serve.telemetry import NAMESPACE
from musterpoint.serve.training_files import TrainingFiles
from musterpoint.serve.transfers import TransferError
from musterpoint.serve.transitions import KIND
from musterpoint.serve.tuning_request import OBJECTIVE


class TrainingProcess(JobProcess):
    """One job, from its first host to its last status."""

    def __init__(self, settings: Settings, key: str) -> None:
        super().__init__(settings, key)
        self._checkpoints: Checkpoints | None = None
        self._objective = ""
        self._trained = 0.0
        self._retries = 0

    def _once(self, record: Record, number: int) -> bool:
        """One run of the job; whether it is to be run again."""
        request = record.request
        self._objective = (request.get("HyperParameters") or {}).get(OBJECTIVE, "")
        layout = Layout(os.path.join(self._directory, f"run-{number}"))
        way = Way(self._settings)
        checkpoints = Checkpoints(self._settings, self._transfers, request, way.url)
        files = TrainingFiles(self._transfers, request, self._directory, lambda: self._enter("Downloading"))

        def bring(host: str, tree: str) -> None:
            files.bring(host, tree)
            checkpoints.bring(host, tree)

        limit = min(requested.max_runtime(request) - self._trained, self._left(record))
        job = requested.local_job(self._settings, request, self._empty)
        job = job._replace(stop_after=max(0.1, limit))
        platform = played(self._settings, request, record.arn, number, bring, way.endpoint)
        run = JobRun(self._settings, job, platform, layout, way, self._telemetry(NAMESPACE), self._heard)
        self._checkpoints, self._run = checkpoints, run
        if self._ended_for:
            run.end(self._ended_for)
        try:
            run.give_up()
            self._enter("Starting")
            ended = run.run(os.environ)
            self._over = run
            checkpoints.finish()
        except (GivenUp, TransferError, MusterError) as error:
            self._finish_early(error)
            return False
        finally:
            way.close()
        trained = max(0.0, ended.trained_to - ended.trained_from) if ended.trained_from else 0.0
        self._trained += trained
        return self._finish(record, files, layout, ended)

    def _sent(self, points: Sequence[Point]) -> None:
        """The objective of a tuning job is kept where the server can compare it."""
        values = [point.value for point in points if point.name == self._objective]
        if values:
            self._state.measure(self._settings.arn(KIND, self._name), values, MOST_EPOCHS)
        super()._sent(points)

    def _left(self, record: Record) -> float:
        """Seconds until a spot job is given up."""
        return record.created + requested.max_wait(record.request) - time.time()

    def _finish_early(self, error: Exception) -> None:
        """The job is over before its hosts ran."""
        if isinstance(error, GivenUp):
            self._enter("Failed", FailureReason=SERVER_ENDED) if self._ended_for == END else self._enter("Stopped")
        elif isinstance(error, TransferError):
            self._enter("Failed", FailureReason=f"ClientError: Data download failed:{error}")
        else:
            self._enter("Failed", FailureReason=f"ClientError: {error}")

    def _finish(self, record: Record, files: TrainingFiles, layout: Layout, ended: Ended) -> bool:
        """Says how the run ended, and brings away what it left; whether the job is to be run again."""
        request = record.request
        facts: dict[str, Any] = {
            "TrainingTimeInSeconds": round(self._trained),
            "BillableTimeInSeconds": max(1, round(self._trained)),
            "TrainingEndTime": ended.trained_to,
            "_exit_code": ended.code,
            **({"FinalMetricDataList": list(ended.metrics)} if ended.metrics else {}),
        }
        if ended.ended_for == END:
            self._enter("Failed", FailureReason=SERVER_ENDED, **facts)
            return False
        if ended.ended_for == INTERRUPT and self._left(record) > 0:
            self._ended_for = ""
            self._enter("Restarting", _interruptions=1)
            return True
        if ended.lost and ended.status == "Failed":
            if self._retries < requested.attempts(request):
                self._retries += 1
                self._enter("Restarting", f"Restarting the training job: {', '.join(ended.lost)} was lost")
                return True
            self._enter("Failed", FailureReason=f"{INTERNAL_ERROR} ({', '.join(ended.lost)} was lost)", **facts)
            return False
        try:
            if ended.status != "Failed":
                files.upload_model(layout)
                facts["ModelArtifacts"] = {"S3ModelArtifacts": requested.model_uri(request)}
            files.upload_output(layout)
        except TransferError as error:
            self._enter("Failed", FailureReason=f"ClientError: Artifact upload failed:{error}", **facts)
            return False
        self._enter(self._last_status(record, ended), **facts, **self._reason(ended))
        return False

    def _last_status(self, record: Record, ended: Ended) -> str:
        late = self._left(record) <= 0 and (ended.timed_out or ended.ended_for == INTERRUPT)
        if ended.status == "Failed":
            return "Failed"
        if late:
            return "MaxWaitTimeExceeded"
        if ended.timed_out:
            return "MaxRuntimeExceeded"
        return "Stopped" if ended.ended_for else "Completed"

    def _reason(self, ended: Ended) -> dict[str, str]:
        return {"FailureReason": ended.reason} if ended.status == "Failed" else {}

    def _heard(self, phase: Phase) -> None:
        """The runner has entered ``phase``; how a job ended is said when its files have been brought."""
        interrupted = self._run is not None and self._run.ended_for == INTERRUPT
        if phase.status == "Training":
            self._enter("Training", _trains=True)
        elif phase.status == "Stopping":
            self._enter("Interrupted" if interrupted else "Stopping")
        elif phase.status == "Uploading" and not interrupted and not (self._run and self._run.lost):
            self._enter("Uploading")

    def _facts(self, record: Record, status: str, facts: Mapping[str, Any]) -> Mapping[str, Any]:
        known = dict(facts)
        if known.pop("_trains", False) and "TrainingStartTime" not in record.facts:
            known["TrainingStartTime"] = time.time()
        known["_interruptions"] = record.facts.get("_interruptions", 0) + known.get("_interruptions", 0)
        return known

    def _fail(self, run: JobRun, order: Mapping[str, Any]) -> None:
        """A host is lost; keeps that it is, for who ordered it."""
        if self._checkpoints is not None:
            self._checkpoints.lose(order["host"])
        run.lose(order["host"])
        made = {"At": time.time(), "Fault": order["order"], "Host": order["host"], "Id": order["id"]}

        def change(record: Record) -> Record:
            return record._replace(facts={**record.facts, "_faults": [*record.facts.get("_faults", []), made]})

        self._state.change(KIND, self._name, change)
        self._state.close()
        notices.send(self._settings.data, self._name)
