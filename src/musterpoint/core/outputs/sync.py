"""Uploads intermediate outputs to S3 while the ranks run; the rest after they have ended.

The hyperparameter ``sagemaker_s3_output`` says where they go. The uploads themselves are done by a sidecar
(:mod:`musterpoint.embedded.programs.uploader`), by the store that moves all data, in a Python that has boto3.
"""

import os
from typing import Any, Callable, Mapping

from musterpoint.base.errors import UsageError
from musterpoint.base.loop import Loop
from musterpoint.base.records import NamedTuple
from musterpoint.core.code.source import is_isolated
from musterpoint.core.data.mover import Access, access_of
from musterpoint.core.data.moves import has_files
from musterpoint.core.job.hyperparameters import text_value
from musterpoint.core.job.model import Hyperparameter, Job
from musterpoint.core.outputs.beside import Beside, Task
from musterpoint.core.processes.sidecars import Sidecars
from musterpoint.embedded.programs.registry import UPLOADER

HYPERPARAMETER = "sagemaker_s3_output"


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
    text = text_value(hyperparameters, HYPERPARAMETER)
    if not text or text.startswith("file://"):
        return Destination(text) if text else None
    bucket, _, path = text.removeprefix("s3://").partition("/")
    if not text.startswith("s3://") or not bucket:
        raise UsageError(f"{HYPERPARAMETER}={text!r}: expected s3://BUCKET/PREFIX or file://DIRECTORY")
    prefix = os.path.join(path.lstrip("/"), environ.get("TRAINING_JOB_NAME", ""), "output", "intermediate")
    return Destination(text, bucket, prefix)


class SyncPlan(NamedTuple):
    """A plan of uploads: ``directory``, a real path, holds the outputs.

    ``grace`` is seconds between SIGTERM and SIGKILL.
    """

    directory: str
    destination: Destination
    access: Access
    grace: float


def sync_plan(
    job: Job, access: Access, grace: float, say: Callable[[str], None], below_toolkit: bool
) -> SyncPlan | None:
    """Makes the directory; None where nothing is to be synced. ``grace`` is seconds between SIGTERM and SIGKILL.

    An existing directory is synced by the platform; with ``below_toolkit`` perhaps by the sagemaker-training that
    started us. ``say`` prints why nothing is synced.
    """
    directory = job.paths.output_intermediate
    try:
        destination = destination_of(job.hyperparameters, access.environ)
    except UsageError as error:
        say(f"warning: {error}; {directory} isn't synced")
        return None
    if destination is None or not directory:
        return None
    if os.path.isdir(directory):
        if destination.bucket and not below_toolkit:
            say(f"{directory} was there before the job: its sync to {destination.text} is the platform's")
        return None
    try:
        os.makedirs(directory)
    except OSError as error:
        say(f"warning: {directory} can't be made: {error.strerror}; nothing goes to {destination.text}")
        return None
    if not destination.bucket:
        return None
    if is_isolated(job):
        say(f"{directory} isn't synced to {destination.text}: the job has EnableNetworkIsolation, and so no network")
        return None
    return SyncPlan(os.path.realpath(directory), destination, access, grace)


class Sync:
    """Carries a plan out. ``say`` prints a line, ``record`` adds an event to the timeline.

    Nothing here raises or changes how the job ends.
    """

    def __init__(
        self, plan: SyncPlan, loop: Loop, sidecars: Sidecars, say: Callable[[str], None], record: Callable[..., None]
    ) -> None:
        self._plan, self._uri, self._say, self._record = plan, plan.destination.uri, say, record
        name, last = f"the sync to {self._uri}", "finish {}".format
        task = Task(UPLOADER, name, self._uri, plan.access, self._request, self._hear, last)
        self._beside = Beside(task, loop, sidecars, say, plan.grace)
        self._record_path = ""
        self._problems = 0

    @property
    def grace(self) -> float:
        """Seconds between SIGTERM and SIGKILL."""
        return self._plan.grace

    def begin(self) -> None:
        """Starts the sidecar; call it in the main thread."""
        self._say(f"what is written to {self._plan.directory} goes to {self._uri}")
        self._beside.start()

    def finish(self, left: float | None) -> None:
        """Uploads the rest in ``left`` seconds, None: no stop limits it; call it when nothing is written any more."""
        if not self._beside.is_settled and (self._problems or has_files(self._plan.directory)):
            self._report(self._beside.finish(left))
        self._beside.close()

    def on_signal(self, signo: int) -> None:
        """A signal during the final sync."""
        self._beside.on_signal(signo)

    def _request(self) -> dict[str, Any]:
        self._record_path = self._record_path or self._beside.texts.hold("outputs-record", "")
        access = access_of(self._plan.access)
        return {"directory": self._plan.directory, "uri": self._uri, "access": access, "record": self._record_path}

    def _hear(self, fact: dict[str, Any]) -> None:
        if "problem" in fact:
            self._problems += 1
            meanwhile = "the job has ended" if self._beside.is_finishing else "the job goes on, and the files wait"
            self._say(f"warning: uploading to {self._uri}: {fact['problem']}; {meanwhile}")
        elif "path" in fact:
            at, size = fact["at"] / 1024**2, fact["size"] / 1024**2
            self._say(f"{self._uri}{fact['path']}: {at:.0f} of {size:.0f} MiB have gone up")

    def _report(self, seconds: float) -> None:
        over = self._beside.over
        if over is None:
            if not self._beside.why_not:
                self._say(f"warning: after {seconds:.0f} s not everything had gone up to {self._uri}")
            self._record("outputs-synced", seconds=round(seconds, 3))
            return
        self._record("outputs-synced", seconds=round(seconds, 3), files=over["files"], left=over["left"])
        failures = ", ".join(f"{kind} {count}x" for kind, count in over["problems"].items())
        if over["files"]:
            self._say(f"{_count(over['files'])}, {over['bytes'] / 1024**2:.1f} MiB, went up to {self._uri}")
        if over["left"]:
            named = ", ".join(over["named"]) + (", …" if over["left"] > len(over["named"]) else "")
            why = f"failures: {failures}" if failures else f"no more time after {seconds:.0f} s"
            self._say(f"warning: {_count(over['left'])} didn't get to {self._uri}: {named} ({why})")
        elif failures:
            self._say(f"failures on the way to {self._uri}: {failures}")


def _count(number: int) -> str:
    return f"{number:,} file{'' if number == 1 else 's'}"
