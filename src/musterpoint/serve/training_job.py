"""The process of one training job, with its files, starts, restarts and checkpoints.

It ends with the server, whose end of the socket then ends; what is below it ends with it.
"""

from __future__ import annotations

import contextlib
import functools
import os
import subprocess
import sys
import threading
import time
from typing import Any, Callable, Mapping

from musterpoint.base.below import below
from musterpoint.base.errors import MusterError
from musterpoint.base.python_variables import for_tools
from musterpoint.core.data import mover_process
from musterpoint.core.data.moves import has_files
from musterpoint.core.data.places import ALONE, Channel, Share
from musterpoint.core.processes.beside import MOST_DEATHS
from musterpoint.embedded.programs.registry import UPLOADER, Texts, fact_of
from musterpoint.local import tree
from musterpoint.local.job_request import LocalJob
from musterpoint.local.job_status import Phase
from musterpoint.local.platforms.local_platform import HostProcess, LocalPlatform, PlayedHost
from musterpoint.local.platforms.training_container import ENTRY
from musterpoint.local.results import ALGORITHM_ERROR
from musterpoint.local.tree import BASE, Layout
from musterpoint.serve import training_request as requested
from musterpoint.serve.job_process import SERVER_ENDED, Job, Link, Output, TransferError, Transfers
from musterpoint.serve.job_run import Ended, GivenUp, JobRun, Way
from musterpoint.serve.settings import Settings
from musterpoint.serve.state import END, INTERNAL_ERROR, INTERRUPT, STOP

OUTPUT = "output/data"
"""The folder of a host's output beside its model, below its ``/opt/ml``."""
LONGEST_FINISH = 600
"""Seconds that the last upload of a run's checkpoints may take."""


class TrainingJob:
    """One job, from its first host to its last status."""

    def __init__(self, settings: Settings, job: Job, link: Link) -> None:
        self._settings, self._job, self._link = settings, job, link
        self._directory = settings.job_directory(job.name)
        self._empty = os.path.join(self._directory, "empty")
        """In the place of the user's code: that comes as the request says."""
        self._run: JobRun | None = None
        self._over: JobRun | None = None
        self._ended_for = STOP if job.status == "Stopping" else ""
        self._transfers = Transfers(settings, self._give_up, job.uploads)
        self._checkpoints: Checkpoints | None = None
        self._trained = self._training_start = 0.0
        self._retries = self._interruptions = 0

    def main(self) -> None:
        """Runs the job."""
        os.makedirs(self._empty, exist_ok=True)
        number = 1
        while self._once(number):
            number += 1

    def take(self, order: Mapping[str, Any]) -> None:
        """An order of the server, in the thread that reads them."""
        kind, run = order["order"], self._run
        if kind in (STOP, END, INTERRUPT):
            if kind != INTERRUPT:
                self._ended_for = kind
            if run is not None:
                run.end(kind)
        elif run is not None:
            if self._checkpoints is not None:
                self._checkpoints.lose(order["host"])
            run.lose(order["host"])
            self._link.send(facts={"_lost": list(run.lost)})

    def _enter(self, status: str, message: str = "", **facts: Any) -> None:
        self._link.send(status=status, message=message, facts=facts)

    def _give_up(self) -> None:
        """Ends downloads before the hosts start, at a stop. Uploads after them go on."""
        if self._run is not None and self._run is not self._over and self._ended_for:
            self._run.give_up()

    def _once(self, number: int) -> bool:
        """One run of the job; whether it is to be run again."""
        request = self._job.request
        layout = Layout(os.path.join(self._directory, f"run-{number}"))
        way = Way(self._settings)
        checkpoints = Checkpoints(self._transfers, request)
        files = TrainingFiles(self._transfers, request, lambda: self._enter("Downloading"))

        def bring(host: str, place: str) -> None:
            files.bring(host, place)
            checkpoints.bring(host, place)

        limit = min(requested.max_runtime(request) - self._trained, self._left)
        job = requested.local_job(self._settings, request, self._empty)
        job = job._replace(stop_after=max(0.1, limit))
        platform = self._platform(number, bring, way.endpoint)
        run = JobRun(self._settings, job, platform, layout, way, Output(self._link), self._heard)
        self._checkpoints, self._run = checkpoints, run
        if self._ended_for:
            run.end(self._ended_for)
        try:
            run.give_up()
            self._enter("Starting")
            ended = run.run(os.environ)
            self._over = run
            unsent = checkpoints.finish()
        except (GivenUp, TransferError, MusterError) as error:
            self._finish_early(error)
            return False
        finally:
            way.close()
        self._trained += max(0.0, ended.trained_to - ended.trained_from) if ended.trained_from else 0.0
        return self._finish(files, layout, ended, unsent)

    @property
    def _left(self) -> float:
        """Seconds until a spot job is given up."""
        return self._job.created + requested.max_wait(self._job.request) - time.time()

    def _finish_early(self, error: Exception) -> None:
        """The job is over before its hosts ran."""
        if isinstance(error, GivenUp):
            self._enter("Failed", FailureReason=SERVER_ENDED) if self._ended_for == END else self._enter("Stopped")
        elif isinstance(error, TransferError):
            self._enter("Failed", FailureReason=f"ClientError: Data download failed:{error}")
        else:
            self._enter("Failed", FailureReason=f"ClientError: {error}")

    def _finish(self, files: TrainingFiles, layout: Layout, ended: Ended, unsent: str) -> bool:
        """Says how the run ended, and brings its files away. True: the job is run again.

        ``unsent``: what of its checkpoints isn't in S3.
        """
        request = self._job.request
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
        if ended.ended_for == INTERRUPT and self._left > 0:
            self._ended_for = ""
            self._interruptions += 1
            self._enter("Restarting", _interruptions=self._interruptions)
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
        if ended.status == "Failed":
            facts["FailureReason"] = ended.reason
        elif unsent:
            self._enter("Failed", FailureReason=f"ClientError: Checkpoint upload failed: {unsent}", **facts)
            return False
        self._enter(self._last_status(ended), **facts)
        return False

    def _last_status(self, ended: Ended) -> str:
        if ended.status == "Failed":
            return "Failed"
        if self._left <= 0 and (ended.timed_out or ended.ended_for == INTERRUPT):
            return "MaxWaitTimeExceeded"
        if ended.timed_out:
            return "MaxRuntimeExceeded"
        return "Stopped" if ended.ended_for else "Completed"

    def _heard(self, phase: Phase) -> None:
        """Of an observer: the runner has entered ``phase``. A job's end is told later, after its uploads."""
        interrupted = self._run is not None and self._run.ended_for == INTERRUPT
        if phase.status == "Training":
            self._training_start = self._training_start or time.time()
            self._enter("Training", TrainingStartTime=self._training_start)
        elif phase.status == "Stopping":
            self._enter("Interrupted" if interrupted else "Stopping")
        elif phase.status == "Uploading" and not interrupted and not (self._run and self._run.lost):
            self._enter("Uploading")

    def _platform(self, number: int, bring: Callable[[str, str], None], endpoint: Callable[[], str]) -> LocalPlatform:
        """SageMaker's training container for the runner of local jobs.

        ``bring`` puts the channels and checkpoints of a host into its tree; ``endpoint`` is where hosts reach the
        server, asked once they are there.
        """
        settings, request, arn = self._settings, self._job.request, self._job.arn

        def prepare(job: LocalJob, host: str, layout: Layout) -> None:
            where = layout.tree(host)
            for directory in tree.DIRECTORIES:
                os.makedirs(below(where, directory), exist_ok=True)
            os.makedirs(layout.ranks(host), exist_ok=True)
            for name, content in requested.config_files(request, host, arn, number).items():
                path = below(os.path.join(where, "input", "config"), name)
                tree.write_text(path, requested.to_file(content), private=job.container is None)
            bring(host, where)

        def environment(host: PlayedHost) -> dict[str, str]:
            found = {
                "MUSTER_PLATFORM": "sagemaker",
                "TRAINING_JOB_NAME": self._job.name,
                "TRAINING_JOB_ARN": arn,
                "SAGEMAKER_METRICS_DIRECTORY": f"{host.tree}/output/metrics/sagemaker",
                **settings.variables,
                "AWS_ENDPOINT_URL": endpoint(),
            }
            if host.tree != BASE:  # it shares this machine's directories
                found["SAGEMAKER_BASE_DIR"] = host.tree
            if settings.gpus == "as-type":
                found["SM_NUM_GPUS"] = str(requested.gpus_of_type(request, host.name))
            return found

        def processes(host: PlayedHost) -> tuple[HostProcess, ...]:
            return (HostProcess(requested.entry(request) or ENTRY),)

        return LocalPlatform(
            host_names=lambda count, naming: requested.hosts(request),
            read_distribution=lambda distribution, count: {},
            check=lambda job: None,
            prepare=prepare,
            environment=environment,
            processes=processes,
            failure_head=ALGORITHM_ERROR,
            grace=requested.GRACE,
        )


class TrainingFiles:
    """The files of one run's hosts: from S3 before they start, to it when they have ended.

    ``begins`` is called before the first download.
    """

    def __init__(self, transfers: Transfers, request: Mapping[str, Any], begins: Callable[[], None]) -> None:
        self._transfers, self._request, self._begins = transfers, request, begins
        self._begun = False

    def bring(self, host: str, place: str) -> None:
        """Puts the channels of ``host`` into its tree at ``place``."""
        if not self._begun:
            self._begun = True
            self._begins()
        for channel in self._request.get("InputDataConfig") or ():
            if requested.is_on(self._request, channel, host):
                folder = below(os.path.join(place, "input", "data"), channel["ChannelName"])
                self._bring_files(channel, host, folder)

    def _bring_files(self, channel: Mapping[str, Any], host: str, folder: str) -> None:
        source = channel["DataSource"]["S3DataSource"]
        sharded = source.get("S3DataDistributionType") == "ShardedByS3Key"
        manifest = source["S3DataType"] == "ManifestFile"
        wanted = Channel(channel["ChannelName"], source["S3Uri"], sharded, manifest, prefix=not manifest)
        os.makedirs(folder, exist_ok=True)
        hosts = [each for each in requested.hosts(self._request) if requested.is_on(self._request, channel, each)]
        self._transfers.bring(wanted, folder, Share(hosts.index(host), len(hosts)) if sharded else ALONE)

    def upload_model(self, layout: Layout) -> None:
        """``/opt/ml/model`` of all hosts, as one archive or as it is."""
        uri = requested.model_uri(self._request)
        if requested.compressed(self._request):
            self._transfers.upload(layout.artifact("model.tar.gz"), os.path.dirname(uri))
            return
        for host in requested.hosts(self._request):
            self._transfers.upload_tree(layout.tree(host), "model", uri)

    def upload_output(self, layout: Layout) -> None:
        """``/opt/ml/output/data`` of all hosts, where there is anything in it."""
        trees = [layout.tree(host) for host in requested.hosts(self._request)]
        folders = [os.path.join(each, OUTPUT) for each in trees]
        if not any(os.path.isdir(each) and os.listdir(each) for each in folders):
            return
        uri = requested.output_uri(self._request)
        if requested.compressed(self._request):
            self._transfers.upload(layout.artifact("output.tar.gz"), uri)
            return
        for each in trees:
            self._transfers.upload_tree(each, OUTPUT, f"{uri}/data")


class Uploader:
    """The program that sends a host's checkpoints as they are written. One that dies is started again, twice while the
    job runs, and once more when it has ended. ``over``: what it said at its end; None: it can't be had.

    ``command``: what to run, at each start. ``name``: in messages.
    """

    def __init__(self, command: Callable[[], tuple[str, ...]], environ: Mapping[str, str], name: str, folder: str):
        self.over: Mapping[str, Any] | None = None
        self.why = ""
        self._command, self._environ, self._name, self._folder = command, for_tools(environ), name, folder
        self._deaths, self._lock = 0, threading.Lock()
        self._settled, self._ends, self._lost = threading.Event(), threading.Event(), threading.Event()
        self._process = self._start()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        self._settled.wait()  # a file that is written before it is watched would be seen at the end only

    def _start(self) -> subprocess.Popen[str]:
        pipe = subprocess.PIPE
        return subprocess.Popen(
            self._command(), stdin=pipe, stdout=pipe, encoding="utf-8", env=self._environ, cwd="/", bufsize=1
        )

    def _run(self) -> None:
        while True:
            with self._process as process:
                assert process.stdout is not None and process.stdin is not None
                for line in process.stdout:
                    self._hear(fact_of(line) or {})
                code = process.wait()
                with contextlib.suppress(OSError):
                    process.stdin.close()
            self._settled.set()
            if self.over is not None or self._lost.is_set() or not self._goes_on(code):
                return
            with self._lock:
                if self._lost.is_set():
                    return
                self._process = self._start()
                if self._ends.is_set():
                    self._say_last()

    def _goes_on(self, code: int) -> bool:
        """Tells whether one that ended with ``code`` is started again, when that is due."""
        self._deaths += 1
        self.why = f"{self._name} ended with code {code}"
        is_last = self._deaths >= MOST_DEATHS
        if self._ends.is_set() and (is_last or not has_files(self._folder)):
            return False
        print(f"{self.why}; it is started again{' when the job has ended' if is_last else ''}", flush=True)
        if is_last:
            self._ends.wait()
        return not is_last or has_files(self._folder)

    def _hear(self, fact: Mapping[str, Any]) -> None:
        if "watching" in fact:
            self._settled.set()
        if "problem" in fact:
            print(f"{self._name}: {fact['problem']}", flush=True)
        self.over = fact.get("over", self.over)

    def _say_last(self) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(OSError, ValueError):  # it has ended
            self._process.stdin.write(f"finish {LONGEST_FINISH}\n")

    def finish(self) -> None:
        """Has it send what is left; :meth:`unsent` waits for that."""
        with self._lock:
            self._ends.set()
            self._say_last()

    def lose(self) -> None:
        """Its host is gone, with what hadn't been sent yet."""
        with self._lock:
            self._lost.set()
            self._process.kill()
            self._ends.set()
        self._thread.join()

    def unsent(self) -> str:
        """Names the files that are left behind; empty: none are."""
        self._thread.join()
        if self.over is None:
            return self.why if has_files(self._folder) else ""
        named = ", ".join(self.over["named"]) + (", ..." if self.over["left"] > len(self.over["named"]) else "")
        return f"{self._name} left {self.over['left']} of its files behind: {named}" if self.over["left"] else ""


class Checkpoints:
    """The checkpoints of one run, from S3 before it and to S3 meanwhile.

    Nothing happens for a job without a CheckpointConfig.
    """

    def __init__(self, transfers: Transfers, request: Mapping[str, Any]) -> None:
        self._transfers, self._request = transfers, request
        self._texts = Texts()
        self._uploaders: dict[str, Uploader] = {}

    @property
    def _uri(self) -> str:
        uri = str((self._request.get("CheckpointConfig") or {}).get("S3Uri", ""))
        return uri and uri.rstrip("/") + "/"

    def bring(self, host: str, place: str) -> None:
        """Brings checkpoints into the host's tree at ``place``, and begins to send changes."""
        if not self._uri:
            return
        folder = below(os.path.realpath(place), requested.in_tree(requested.checkpoint_path(self._request)))
        os.makedirs(folder, exist_ok=True)
        self._transfers.bring_if_any(Channel("checkpoints", self._uri), folder)
        access = self._transfers.access
        wanted = {
            "directory": folder,
            "uri": self._uri,
            "access": mover_process.access_of(access),
            "record": self._texts.hold(f"checkpoints-{host}", ""),
        }
        command = functools.partial(self._texts.command, sys.executable, UPLOADER, wanted)
        name = f"what sends checkpoints of {host} to {self._uri}"
        self._uploaders[host] = Uploader(command, access.environ, name, folder)

    def lose(self, host: str) -> None:
        """The host is gone, with what hadn't been sent yet."""
        uploader = self._uploaders.pop(host, None)
        if uploader is not None:
            uploader.lose()

    def finish(self) -> str:
        """Sends what is left, and returns when it is there; what isn't, in words."""
        uploaders = [*self._uploaders.values()]
        for uploader in uploaders:
            uploader.finish()
        unsent = [words for words in (uploader.unsent() for uploader in uploaders) if words]
        self._uploaders.clear()
        self._texts.close()
        for each in unsent:
            print(f"checkpoints: {each}", flush=True)
        return "; ".join(unsent)
