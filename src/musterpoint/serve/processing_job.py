"""A processing job on its hosts: its inputs from S3, its outputs to it, and its end."""

from __future__ import annotations

import os
import time
from typing import Any, Mapping

from musterpoint.base.below import Below, below
from musterpoint.base.errors import MusterError
from musterpoint.core.data.places import ALONE, Channel, Share
from musterpoint.local import tree
from musterpoint.local.job_request import LocalJob
from musterpoint.local.platforms.local_platform import HostProcess, LocalPlatform, PlayedHost
from musterpoint.local.results import ALGORITHM_ERROR, Phase
from musterpoint.local.tree import Layout
from musterpoint.serve import processing_request as requested
from musterpoint.serve.job_process import SERVER_ENDED, JobProcess, Output, TransferError
from musterpoint.serve.job_run import Ended, GivenUp, JobRun, Way, platform_of
from musterpoint.serve.state import END
from musterpoint.serve.training_request import in_tree, to_file

NOT_UTF8 = "ClientError: The exit message of a container, /opt/ml/output/message, isn't UTF-8"
MESSAGE = "output/message"
"""Below ``/opt/ml``: what the program wants said of its end. Source: SageMaker's guide, "Save and Access Metadata
Information About Your Processing Job".
"""
_LONGEST_MESSAGE, _LARGEST_MESSAGE = 1024, 1 << 20
"""Bytes of an ExitMessage, and of one file that are looked at."""


class ProcessingJob(JobProcess):
    """One job: one start of its hosts."""

    def _once(self, number: int) -> bool:
        layout = Layout(os.path.join(self._directory, f"run-{number}"))
        way = Way(self._settings)
        job = requested.local_job(self._settings, self._job.request, self._empty)
        run = JobRun(self._settings, job, self._platform(way), layout, way, Output(self._link), self._heard)
        self._run = run
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
            self._finish(layout, ended)
        finally:
            way.close()
        return False

    def _finish(self, layout: Layout, ended: Ended) -> None:
        facts: dict[str, Any] = {"ProcessingEndTime": ended.trained_to or time.time(), "_exit_code": ended.code}
        bad = False
        try:
            message = exit_message(self._job.request, layout)
            if message:
                facts["ExitMessage"] = message
        except UnicodeDecodeError:
            bad = True
        if ended.ended_for == END:
            self._enter("Failed", FailureReason=SERVER_ENDED, **facts)
        elif ended.status == "Failed":
            self._enter("Failed", FailureReason=f"{ALGORITHM_ERROR}, exit code: {ended.code}", **facts)
        elif bad:
            self._enter("Failed", FailureReason=NOT_UTF8, **facts)
        else:
            try:
                self._upload(layout)
            except TransferError as error:
                self._enter("Failed", FailureReason=f"ClientError: Failed to upload data. {error}", **facts)
            else:
                self._enter("Stopped" if ended.ended_for or ended.timed_out else "Completed", **facts)

    def _heard(self, phase: Phase) -> None:
        if phase.status == "Training":
            self._enter("Training", ProcessingStartTime=time.time())
        elif phase.status in ("Stopping", "Uploading"):
            self._enter(phase.status)

    def _platform(self, way: Way) -> LocalPlatform:
        """How a container of a processing job is started: its files, its variables, its command.

        SageMaker's guide names no variables but those of Environment; what else a job needs to know is in its files.
        """
        request = self._job.request

        def environment(host: PlayedHost) -> dict[str, str]:
            found = {"PYTHONUNBUFFERED": "1", **self._settings.variables, "AWS_ENDPOINT_URL": way.endpoint()}
            if host.job.container is None:
                found["PATH"] = requested.python_first(os.environ.get("PATH", ""))
            return found

        def processes(host: PlayedHost) -> tuple[HostProcess, ...]:
            return (HostProcess(requested.as_host_sees(requested.entry(request), host.tree)),)

        return platform_of(requested.hosts(request), self._prepare, environment, processes)

    def _prepare(self, job: LocalJob, host: str, layout: Layout) -> None:
        """Makes the tree of ``host``, with its configuration and its inputs."""
        os.makedirs(layout.ranks(host), exist_ok=True)
        place, request = layout.tree(host), self._job.request
        for name in ("config", "output", "processing"):
            os.makedirs(below(place, name), exist_ok=True)
        for name, content in requested.config_files(request, host, self._job.arn).items():
            tree.write_text(below(os.path.join(place, "config"), name), to_file(content), private=job.container is None)
        for each in requested.inputs(request):
            self._bring(each, host, below(place, in_tree(each["S3Input"]["LocalPath"])))
        for each in requested.outputs(request):
            os.makedirs(below(place, in_tree(each["S3Output"]["LocalPath"])), exist_ok=True)

    def _bring(self, given: Mapping[str, Any], host: str, folder: str) -> None:
        source = given["S3Input"]
        os.makedirs(folder, exist_ok=True)
        hosts = requested.hosts(self._job.request)
        sharded = source.get("S3DataDistributionType") == "ShardedByS3Key"
        manifest = source["S3DataType"] == "ManifestFile"
        wanted = Channel(given["InputName"], source["S3Uri"], sharded, manifest, prefix=not manifest)
        self._transfers.bring(wanted, folder, Share(hosts.index(host), len(hosts)) if sharded else ALONE)

    def _upload(self, layout: Layout) -> None:
        """The outputs of all hosts."""
        for each in requested.outputs(self._job.request):
            for host in requested.hosts(self._job.request):
                name = in_tree(each["S3Output"]["LocalPath"])
                self._transfers.upload_tree(layout.tree(host), name, each["S3Output"]["S3Uri"])


def exit_message(request: Mapping[str, Any], layout: Layout) -> str:
    """What all hosts' programs want said, one after the other. A link is no message.

    Raises:
        UnicodeDecodeError: one isn't UTF-8.
    """
    found = b""
    for host in requested.hosts(request):
        whole = Below(layout.tree(host)).read(MESSAGE, _LARGEST_MESSAGE) or b""
        whole.decode()
        found += whole
    return found[:_LONGEST_MESSAGE].decode("utf-8", "ignore")
