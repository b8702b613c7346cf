"""Uploads intermediate outputs to S3 while the ranks run; the rest after they have ended.

The hyperparameter ``sagemaker_s3_output`` says where they go. The uploads themselves are done by a sidecar
(:mod:`musterpoint.embedded.programs.uploader`), by the store that moves all data, in a Python that has boto3.
"""

import os
from typing import Any, Callable, Mapping

from musterpoint.base.errors import UsageError
from musterpoint.base.loop import Loop
from musterpoint.base.records import NamedTuple
from musterpoint.base.stop_budget import UPLOAD_OVERTIME, UPLOAD_RESERVE, upload_time
from musterpoint.core.code.source import is_isolated
from musterpoint.core.data.mover import Access, access_of, advice, pythons_of
from musterpoint.core.job.hyperparameters import text_value
from musterpoint.core.job.model import Hyperparameter, Job
from musterpoint.core.processes.process import CannotStart
from musterpoint.core.processes.received_signals import STOPPING
from musterpoint.core.processes.sidecars import Sidecar, Sidecars
from musterpoint.embedded.programs.registry import UPLOADER, Texts, fact_of

HYPERPARAMETER = "sagemaker_s3_output"
MOST_DEATHS = 3
"""Unexpected ends of the sidecar after which the final sync is given up."""


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
    """What is uploaded where: ``directory`` holds the outputs. ``grace`` is seconds between SIGTERM and SIGKILL."""

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
    return SyncPlan(directory, destination, access, grace)


class Sync:
    """Carries a plan out. ``say`` prints a line, ``record`` adds an event to the timeline.

    Nothing here raises or changes how the job ends.
    """

    def __init__(
        self, plan: SyncPlan, loop: Loop, sidecars: Sidecars, say: Callable[[str], None], record: Callable[..., None]
    ) -> None:
        self._plan, self._uri = plan, plan.destination.uri
        self._loop, self._sidecars, self._say, self._record = loop, sidecars, say, record
        self._texts = Texts()
        self._record_path = ""
        self._sidecar: Sidecar | None = None
        self._pythons: list[str] = []
        self._lacking: dict[str, str] = {}
        self._last_lines: list[str] = []
        self._until: float | None = None
        self._over: dict[str, Any] | None = None
        self._deaths = self._problems = 0
        self._is_impossible = False

    @property
    def grace(self) -> float:
        """Seconds between SIGTERM and SIGKILL."""
        return self._plan.grace

    def begin(self) -> None:
        """Starts the sidecar; call it in the main thread."""
        self._say(f"what is written to {self._plan.directory} goes to {self._uri}")
        self._launch()

    def finish(self, left: float | None) -> None:
        """Uploads the rest; call it when nothing is written any more.

        Takes what :func:`~musterpoint.base.stop_budget.upload_time` gives of the ``left`` seconds; None: no stop limits
        it.
        """
        began = self._loop.clock()
        if not self._is_impossible and (self._problems or _has_files(self._plan.directory)):
            self._until = began + upload_time(left)
            if self._sidecar is not None:
                self._send_finish()
            else:
                self._launch()
            while not self._is_settled and (remaining := self._until + UPLOAD_OVERTIME - self._loop.clock()) > 0:
                self._loop.turn(remaining)
            self._report(self._loop.clock() - began)
        self._over = self._over or {}  # how the sidecar ends isn't reported any more
        self._texts.close()

    def on_signal(self, signo: int) -> None:
        """A signal during the final sync: after the first stop only the grace is left."""
        if signo in STOPPING and self._until is not None:
            deadline = self._loop.clock() + self._plan.grace - UPLOAD_RESERVE
            if deadline < self._until:
                self._until = deadline
                self._send_finish()

    # -- the sidecar --

    def _launch(self) -> None:
        """Starts the sidecar in the first Python that has boto3."""
        self._lacking = {}
        self._pythons = list(pythons_of(self._plan.access))
        self._try_next_python()

    def _try_next_python(self) -> None:
        self._sidecar = None
        while self._pythons:
            self._last_lines = []
            try:
                argv = self._texts.command(self._pythons[0], UPLOADER, self._request())
                self._sidecar = self._sidecars.start(argv, self._plan.access.environ, self._on_line, self._on_end)
            except CannotStart as error:
                if error.step == "fork":
                    self._cannot_start(error.error)
                    return
                self._lacking[self._pythons.pop(0)] = error.error.strerror or "it can't be started"
                continue
            except OSError as error:
                self._cannot_start(error)
                return
            if self._until is not None:
                self._send_finish()
            return
        self._is_impossible = True
        self._say(f"warning: nothing goes up to {self._uri}: {advice(self._uri, self._lacking)}")

    def _cannot_start(self, error: OSError) -> None:
        """No process, memory or descriptor is left; tries again at the job's end."""
        self._is_impossible = self._until is not None
        later = "" if self._is_impossible else "; it is tried again when the job has ended"
        self._say(f"warning: the sync to {self._uri} can't be started: {error.strerror}{later}")

    def _request(self) -> dict[str, Any]:
        plan = self._plan
        self._record_path = self._record_path or self._texts.hold("outputs-record", "")
        return {
            "directory": plan.directory,
            "uri": self._uri,
            "access": access_of(plan.access),
            "record": self._record_path,
        }

    def _send_finish(self) -> None:
        if self._sidecar is not None and self._until is not None:
            self._sidecar.send(f"finish {max(0.0, self._until - self._loop.clock()):.3f}")

    def _on_line(self, line: str) -> None:
        fact = fact_of(line)
        if fact is None:
            self._last_lines = [*self._last_lines[-2:], line]
        elif "lacks" in fact:
            self._lacking[self._pythons[0]] = f"no {fact['lacks']}"
        elif "over" in fact:
            self._over = fact["over"]
        elif "problem" in fact:
            self._problems += 1
            meanwhile = "the job goes on, and the files wait" if self._until is None else "the job has ended"
            self._say(f"warning: uploading to {self._uri}: {fact['problem']}; {meanwhile}")
        elif "path" in fact:
            at, size = fact["at"] / 1024**2, fact["size"] / 1024**2
            self._say(f"{self._uri}{fact['path']}: {at:.0f} of {size:.0f} MiB have gone up")

    def _on_end(self, code: int) -> None:
        self._sidecar = None
        if self._is_settled:
            return
        if self._pythons and self._pythons[0] in self._lacking:
            self._pythons.pop(0)
            self._try_next_python()
            return
        self._deaths += 1
        how = f"was killed by signal {-code}" if code < 0 else f"ended with code {code}"
        words = f" ({' '.join(self._last_lines)})" if self._last_lines else ""
        if self._until is None:
            self._say(f"warning: the sync to {self._uri} {how}{words}; the rest goes up at the job's end")
        elif self._deaths < MOST_DEATHS:
            self._launch()
        else:
            self._is_impossible = True
            self._say(f"warning: the sync to {self._uri} {how}{words}")

    # -- its end --

    @property
    def _is_settled(self) -> bool:
        return self._over is not None or self._is_impossible

    def _report(self, seconds: float) -> None:
        over = self._over
        if over is None:
            if not self._is_impossible:
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


def _has_files(directory: str) -> bool:
    return any(files for _folder, _folders, files in os.walk(directory))
