"""The process of one processing job."""

from __future__ import annotations

import os
import time
from typing import Any, Mapping

from musterpoint.base.errors import MusterError
from musterpoint.local.job import LocalJob
from musterpoint.local.platforms.platform import HostProcess, LocalPlatform, PlayedHost
from musterpoint.local.results import ALGORITHM_ERROR, Phase
from musterpoint.local.tree import Layout
from musterpoint.serve import processing_request as requested
from musterpoint.serve.backends import Way
from musterpoint.serve.job_process import SERVER_ENDED, JobProcess
from musterpoint.serve.job_run import END, Ended, GivenUp, JobRun
from musterpoint.serve.played import platform_of
from musterpoint.serve.processing_files import ProcessingFiles
from musterpoint.serve.settings import Settings
from musterpoint.serve.state import Record
from musterpoint.serve.transfers import TransferError

GROUP = "/aws/sagemaker/ProcessingJobs"
"""The log group of processing jobs."""
NOT_UTF8 = "ClientError: The exit message of a container, /opt/ml/output/message, isn't UTF-8"


class ProcessingProcess(JobProcess):
    """One job: one start of its hosts."""

    def _once(self, record: Record, number: int) -> bool:
        layout = Layout(os.path.join(self._directory, f"run-{number}"))
        way = Way(self._settings)
        files = ProcessingFiles(self._transfers, record.request, record.arn)
        job = requested.local_job(self._settings, record.request, self._empty)
        platform = played(self._settings, record.request, files, way)
        run = self._run = JobRun(self._settings, job, platform, layout, way, self._telemetry(GROUP), self._heard)
        if self._ended_for:
            run.end(self._ended_for)
        try:
            run.give_up()
            ended = run.run(os.environ)
            self._over = run
        except GivenUp:
            self._enter("Failed", FailureReason=SERVER_ENDED) if self._ended_for == END else self._enter("Stopped")
        except TransferError as error:
            self._enter("Failed", FailureReason=f"ClientError: Failed to download data. {error}")
        except MusterError as error:
            self._enter("Failed", FailureReason=f"ClientError: {error}")
        else:
            self._finish(files, layout, ended)
        finally:
            way.close()
        return False

    def _finish(self, files: ProcessingFiles, layout: Layout, ended: Ended) -> None:
        facts: dict[str, Any] = {"ProcessingEndTime": ended.trained_to or time.time(), "_exit_code": ended.code}
        bad = False
        try:
            message = files.message(layout)
            if message:
                facts["ExitMessage"] = message
        except UnicodeDecodeError:
            bad = True
        if ended.ended_for == END:
            self._enter("Failed", FailureReason=SERVER_ENDED, **facts)
            return
        if ended.status == "Failed":
            self._enter("Failed", FailureReason=f"{ALGORITHM_ERROR}, exit code: {ended.code}", **facts)
            return
        if bad:
            self._enter("Failed", FailureReason=NOT_UTF8, **facts)
            return
        try:
            files.upload(layout)
        except TransferError as error:
            self._enter("Failed", FailureReason=f"ClientError: Failed to upload data. {error}", **facts)
            return
        self._enter("Stopped" if ended.ended_for or ended.timed_out else "Completed", **facts)

    def _heard(self, phase: Phase) -> None:
        if phase.status == "Training":
            self._enter("Training", ProcessingStartTime=time.time())
        elif phase.status in ("Stopping", "Uploading"):
            self._enter(phase.status)


def played(settings: Settings, request: Mapping[str, Any], files: ProcessingFiles, way: Way) -> LocalPlatform:
    """How a container of a processing job is started: its files, its variables, its command.

    SageMaker's guide names no variables but those of Environment; what else a job needs to know is in its files.
    """

    def prepare(job: LocalJob, host: str, layout: Layout) -> None:
        os.makedirs(layout.ranks(host), exist_ok=True)
        files.prepare(host, layout.tree(host), private=job.container is None)

    def environment(host: PlayedHost) -> dict[str, str]:
        found = {"PYTHONUNBUFFERED": "1", **settings.variables, "AWS_ENDPOINT_URL": way.endpoint()}
        if host.job.container is None:
            found["PATH"] = requested.python_first(os.environ.get("PATH", ""))
        return found

    def processes(host: PlayedHost) -> tuple[HostProcess, ...]:
        return (HostProcess(requested.as_host_sees(requested.entry(request), host.tree)),)

    return platform_of(requested.hosts(request), prepare, environment, processes)
