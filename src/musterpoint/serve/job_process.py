"""The process of one training job: it outlives the server, and writes what becomes of the job into the state.

It is forked by :mod:`~musterpoint.serve.fork_server` with the job's lock, which is free again when it has ended.
"""

from __future__ import annotations

import os
import sys
import traceback
from typing import Any, Mapping

from musterpoint.base.errors import MusterError
from musterpoint.local.results import Phase
from musterpoint.serve import notices, transitions
from musterpoint.serve import training_request as requested
from musterpoint.serve.orders import Orders
from musterpoint.serve.settings import Settings
from musterpoint.serve.state import Record, State
from musterpoint.serve.training_files import TrainingFiles
from musterpoint.serve.training_run import END, INTERRUPT, STOP, Ended, GivenUp, TrainingRun
from musterpoint.serve.transfers import TransferError, Transfers
from musterpoint.serve.transitions import KIND, entered

INTERNAL_ERROR = "InternalServerError: We encountered an internal error. Please try again."
SERVER_ENDED = "muster serve was ended while the job ran"


class JobProcess:
    """One job, from its first host to its last status."""

    def __init__(self, settings: Settings, name: str) -> None:
        self._settings = settings
        self._state = State(settings.data)
        self._name = name
        self._directory = settings.job_directory(name)
        self._run: TrainingRun | None = None
        self._ended_for = ""
        self._transfers = Transfers(settings, self._give_up)

    def claim(self) -> Record | None:
        """The job, once it is known that this process is the only one that ever runs it; None: it isn't to be run."""
        claimed: list[Record] = []

        def change(record: Record) -> Record | None:
            if record.status in transitions.OVER or record.facts.get("_claimed"):
                return None
            claimed.append(record._replace(facts={**record.facts, "_claimed": os.getpid()}))
            return claimed[0]

        self._state.change(KIND, self._name, change)
        return claimed[0] if claimed else None

    def main(self) -> None:
        """Runs the job."""
        record = self.claim()
        if record is None:
            return
        Orders(self._directory, self._take).start()
        if record.status == "Stopping":  # it was stopped before this process was there to hear of it
            self._ended_for = STOP
        number = 1
        while self._once(record, number):
            number += 1

    def _once(self, record: Record, number: int) -> bool:
        """One run of the job; whether it is to be run again."""
        request = record.request
        files = TrainingFiles(self._transfers, request, self._directory, lambda: self._enter("Downloading"))
        run = TrainingRun(self._settings, request, record.arn, number, self._directory, self._heard, files.bring)
        self._run = run
        if self._ended_for:
            run.end(self._ended_for)
        try:
            run.give_up()
            self._enter("Starting")
            ended = run.run(os.environ)
        except (GivenUp, TransferError, MusterError) as error:
            self._finish_early(error)
            return False
        return self._finish(request, files, run, ended)

    def _finish_early(self, error: Exception) -> None:
        """The job is over before its hosts ran."""
        if isinstance(error, GivenUp):
            self._enter("Failed", FailureReason=SERVER_ENDED) if self._ended_for == END else self._enter("Stopped")
        elif isinstance(error, TransferError):
            self._enter("Failed", FailureReason=f"ClientError: Data download failed:{error}")
        else:
            self._enter("Failed", FailureReason=f"ClientError: {error}")

    def _finish(self, request: Mapping[str, Any], files: TrainingFiles, run: TrainingRun, ended: Ended) -> bool:
        trained = max(0, round(ended.trained_to - ended.trained_from)) if ended.trained_from else 0
        facts: dict[str, Any] = {
            "TrainingTimeInSeconds": trained,
            "BillableTimeInSeconds": max(1, trained),
            "TrainingStartTime": ended.trained_from,
            "TrainingEndTime": ended.trained_to,
            "_exit_code": ended.code,
            **({"FinalMetricDataList": list(ended.metrics)} if ended.metrics else {}),
        }
        if ended.ended_for == END:
            self._enter("Failed", FailureReason=SERVER_ENDED, **facts)
            return False
        try:
            if ended.status != "Failed":
                files.upload_model(run.layout)
                facts["ModelArtifacts"] = {"S3ModelArtifacts": requested.model_uri(request)}
            files.upload_output(run.layout)
        except TransferError as error:
            self._enter("Failed", FailureReason=f"ClientError: Artifact upload failed:{error}", **facts)
            return False
        if ended.status == "Failed":
            self._enter("Failed", FailureReason=ended.reason, **facts)
        elif ended.timed_out:
            self._enter("MaxRuntimeExceeded", **facts)
        else:
            self._enter("Stopped" if ended.ended_for else "Completed", **facts)
        return False

    def _heard(self, phase: Phase) -> None:
        """The runner has entered ``phase``; how a job ended is said when its files have been brought."""
        if phase.status in ("Training", "Stopping", "Uploading"):
            self._enter(phase.status)

    def _enter(self, status: str, **facts: Any) -> None:
        def change(record: Record) -> Record | None:
            if record.facts["SecondaryStatus"] == status and not facts:
                return None
            return entered(record, status, **facts)

        self._state.change(KIND, self._name, change)
        notices.send(self._settings.data, self._name)

    def _give_up(self) -> None:
        if self._run is not None and self._ended_for == END:
            self._run.give_up()

    def _take(self, order: Mapping[str, Any]) -> None:
        """An order of the server, in the thread that reads them."""
        what = order["order"]
        if what in (STOP, END, INTERRUPT):
            self._ended_for = what
            if self._run is not None:
                self._run.end(what)
        elif what == "lose" and self._run is not None:
            self._run.lose(order["host"])
        elif what == "back":
            settings = Settings.from_json(order["settings"])
            self._transfers.server_is_back(settings)
            if self._run is not None:
                self._run.telemetry.server_is_back(settings)


def main(settings: Settings, name: str) -> None:
    """Runs the job ``name``; an error of ours is the job's end, and stands in its log whole."""
    try:
        JobProcess(settings, name).main()
    except BaseException as error:
        traceback.print_exc()
        reason = f"{INTERNAL_ERROR} ({type(error).__name__}: {error})"
        State(settings.data).change(KIND, name, lambda record: entered(record, "Failed", FailureReason=reason))
        notices.send(settings.data, name)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
