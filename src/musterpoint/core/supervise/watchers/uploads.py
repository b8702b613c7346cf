"""Uploads intermediate outputs to S3 while the ranks run; the rest after they have ended.

The hyperparameter ``sagemaker_s3_output`` says where they go. The uploads themselves are done by a sidecar
(:mod:`musterpoint.embedded.programs.uploader`), by the store that moves all data, in a Python that has boto3.
"""

import os
from typing import Any, Mapping

from musterpoint.base.errors import UsageError
from musterpoint.base.records import NamedTuple
from musterpoint.base.settings import without_own
from musterpoint.core.code.source import is_isolated
from musterpoint.core.data.mover_process import Access, access_of
from musterpoint.core.data.moves import has_files
from musterpoint.core.job.hyperparameters import text_value
from musterpoint.core.job.model import Hyperparameter
from musterpoint.core.processes.beside import Beside, Task
from musterpoint.core.supervise.state import Outcome
from musterpoint.core.supervise.watcher import OUTPUTS, Watched, WatchedJob, Watcher
from musterpoint.embedded.programs.registry import UPLOADER


class Destination(NamedTuple):
    """Where the outputs go.

    ``text`` is the hyperparameter as given. ``bucket`` and ``prefix`` (a key prefix without a slash at its end) are
    empty for ``file://``, where a mount is all that is needed.
    """

    text: str
    bucket: str = ""
    prefix: str = ""

    @property
    def uri(self) -> str:
        return f"s3://{self.bucket}/{self.prefix}/"


def destination_of(hyperparameters: tuple[Hyperparameter, ...], environ: Mapping[str, str]) -> Destination | None:
    """The job's destination, None where it names none. Keys are those of sagemaker-training's
    ``intermediate_output.py``: the output path, the variable ``TRAINING_JOB_NAME``, ``output/intermediate``.

    Raises:
        UsageError: it is neither ``s3://BUCKET/…`` nor ``file://…``.
    """
    text = text_value(hyperparameters, OUTPUTS)
    if not text or text.startswith("file://"):
        return Destination(text) if text else None
    bucket, _, path = text.removeprefix("s3://").partition("/")
    if not text.startswith("s3://") or not bucket:
        raise UsageError(f"{OUTPUTS}={text!r}: expected s3://BUCKET/PREFIX or file://DIRECTORY")
    prefix = os.path.join(path.lstrip("/"), environ.get("TRAINING_JOB_NAME", ""), "output", "intermediate")
    return Destination(text, bucket, prefix)


class Uploads(Watcher):
    """The sync of ``directory``, a real path, which begins with the job's first ranks.

    Nothing here raises or changes how the job ends.
    """

    def __init__(self, seen: WatchedJob, directory: str, destination: Destination, access: Access) -> None:
        self._seen, self._directory, self._access, self._uri = seen, directory, access, destination.uri
        name, last = f"the sync to {self._uri}", "finish {}".format
        task = Task(UPLOADER, name, self._uri, access, self._request, self._hear, last)
        self._beside = Beside(task, seen.loop, seen.sidecars, seen.say, seen.grace)
        self._record_path = ""
        self._problems = 0

    def begins(self, watched: Watched) -> None:
        self._seen.loop.call_later(0, self.begin)

    def begin(self) -> None:
        """Starts the sidecar, once; call it in the main thread."""
        if not self._record_path:
            self._record_path = self._beside.texts.hold("outputs-record", "")
            self._seen.say(f"what is written to {self._directory} goes to {self._uri}")
            self._beside.start()

    def ends(self, outcome: Outcome) -> Mapping[str, Any]:
        """Uploads the rest. After a stop it gets the rest of the platform's grace."""
        self._seen.signals.route_to(self._beside.on_signal)
        if not self._beside.is_settled and (self._problems or has_files(self._directory)):
            self._report(self._beside.finish(self._seen.left(outcome)))
        self._beside.close()
        return {}

    def _request(self) -> dict[str, Any]:
        access = access_of(self._access)
        return {"directory": self._directory, "uri": self._uri, "access": access, "record": self._record_path}

    def _hear(self, fact: dict[str, Any]) -> None:
        if "problem" in fact:
            self._problems += 1
            meanwhile = "the job has ended" if self._beside.is_finishing else "the job goes on, and the files wait"
            self._seen.say(f"warning: uploading to {self._uri}: {fact['problem']}; {meanwhile}")
        elif "path" in fact:
            at, size = fact["at"] / 1024**2, fact["size"] / 1024**2
            self._seen.say(f"{self._uri}{fact['path']}: {at:.0f} of {size:.0f} MiB have gone up")

    def _report(self, seconds: float) -> None:
        over = self._beside.over
        if over is None:
            if not self._beside.why_not:
                self._seen.say(f"warning: after {seconds:.0f} s not everything had gone up to {self._uri}")
            self._seen.record("outputs-synced", seconds=round(seconds, 3))
            return
        self._seen.record("outputs-synced", seconds=round(seconds, 3), files=over["files"], left=over["left"])
        failures = ", ".join(f"{kind} {count}x" for kind, count in over["problems"].items())
        if over["files"]:
            self._seen.say(f"{_count(over['files'])}, {over['bytes'] / 1024**2:.1f} MiB, went up to {self._uri}")
        if over["left"]:
            named = ", ".join(over["named"]) + (", …" if over["left"] > len(over["named"]) else "")
            why = f"failures: {failures}" if failures else f"no more time after {seconds:.0f} s"
            self._seen.say(f"warning: {_count(over['left'])} didn't get to {self._uri}: {named} ({why})")
        elif failures:
            self._seen.say(f"failures on the way to {self._uri}: {failures}")


def watch(seen: WatchedJob) -> Watcher:
    """Makes the directory of the intermediate outputs; its watcher does nothing where others sync it.

    An existing directory is synced by the platform; below its toolkit perhaps by the sagemaker-training that started
    us.
    """
    interpreter, below_toolkit = seen.found
    access = Access(without_own(seen.environ), (interpreter,), seen.job.region)
    directory, say = seen.job.paths.output_intermediate, seen.say
    try:
        destination = destination_of(seen.job.hyperparameters, access.environ)
    except UsageError as error:
        say(f"warning: {error}; {directory} isn't synced")
        return Watcher()
    if destination is None or not directory:
        return Watcher()
    if os.path.isdir(directory):
        if destination.bucket and not below_toolkit:
            say(f"{directory} was there before the job: its sync to {destination.text} is the platform's")
        return Watcher()
    try:
        os.makedirs(directory)
    except OSError as error:
        say(f"warning: {directory} can't be made: {error.strerror}; nothing goes to {destination.text}")
        return Watcher()
    if destination.bucket and is_isolated(seen.job):
        say(f"{directory} isn't synced to {destination.text}: the job has EnableNetworkIsolation, and so no network")
    elif destination.bucket:
        return Uploads(seen, os.path.realpath(directory), destination, access)
    return Watcher()


def _count(number: int) -> str:
    return f"{number:,} file{'' if number == 1 else 's'}"
