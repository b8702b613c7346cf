"""The sync of the intermediate outputs, as the road sees it: begun with the ranks, finished when they have ended.

The uploads themselves are a sidecar's (:mod:`musterpoint.programs.uploader`), in a Python that has boto3.
"""

import json
import os
import sys
from typing import Any, Callable, Mapping, NamedTuple

from musterpoint.code.aws import endpoint_of, region_of
from musterpoint.code.source import is_isolated
from musterpoint.errors import UsageError
from musterpoint.job.model import Job
from musterpoint.loop import Loop
from musterpoint.outputs.target import Target, target_of
from musterpoint.processes.process import CannotStart
from musterpoint.processes.sidecars import Sidecar, Sidecars
from musterpoint.processes.signals import STOPPING
from musterpoint.programs.aws_reader import NO_BOTO3
from musterpoint.programs.registry import UPLOADER, Texts, module_of
from musterpoint.programs.upload_ledger import has_files

STARTER = """
import json, sys, types
with open(sys.argv[1]) as file:
    texts, request = json.load(file)
for name, path in texts:
    module = sys.modules[name] = types.ModuleType(name)
    with open(path, encoding="utf-8") as file:
        exec(compile(file.read(), name, "exec"), module.__dict__)
sys.exit(module.main(request))
"""
"""The sidecar's first steps: its modules are texts, as musterpoint isn't there."""
NO_WATCHDOG = 4
LONGEST = 1800.0
"""Seconds that the final sync may take where no stop presses."""
MARGIN = 3.0
"""Of a stop's grace, what is left for the last report (s)."""
SHORTEST = 1.0
LATE = 2.0
"""Seconds beyond its time in which the sidecar should have given up by itself."""
DEATHS = 3
"""After so many the final sync is given up."""
EXTRA = "pip install boto3 watchdog in the image (the extra musterpoint[aws])"


class Place(NamedTuple):
    """What is synced where. ``interpreter`` is the user's Python; ``grace`` is seconds between SIGTERM and SIGKILL."""

    directory: str
    target: Target
    region: str
    environ: Mapping[str, str]
    interpreter: str
    grace: float


class Means(NamedTuple):
    """What it takes beside that. ``say`` prints a line, ``record`` is the timeline."""

    loop: Loop
    sidecars: Sidecars
    say: Callable[[str], None]
    record: Callable[..., None]


class Sync:
    """Nothing here raises or changes how the job ends."""

    def __init__(self, place: Place, means: Means) -> None:
        self._place, (self._loop, self._sidecars, self._say, self._record) = place, means
        self._texts = Texts()
        self._record_path = ""
        self._sidecar: Sidecar | None = None
        self._pythons: list[str] = []
        self._codes: dict[str, int] = {}
        self._watch = True
        self._words: list[str] = []
        self._until: float | None = None
        self._over: dict[str, Any] | None = None
        self._requests = self._deaths = self._problems = 0
        self._is_impossible = False

    @property
    def grace(self) -> float:
        """Seconds between SIGTERM and SIGKILL."""
        return self._place.grace

    def begin(self) -> None:
        """Starts the sidecar; call it in the main thread."""
        self._say(f"what is written to {self._place.directory} goes to {self._place.target.uri}")
        self._launch(watch=True)

    def finish(self, left: float | None) -> None:
        """Uploads what isn't there yet: to be called when nothing is written any more.

        Takes ``left`` seconds at most, less :data:`MARGIN`; None: nobody presses.
        """
        began = self._loop.clock()
        if not self._is_impossible and (self._problems or has_files(self._place.directory)):
            self._until = began + (LONGEST if left is None else max(SHORTEST, min(LONGEST, left - MARGIN)))
            if self._sidecar is not None:
                self._tell_finish()
            else:
                self._launch(watch=False)
            while not self._is_settled and (patience := self._until + LATE - self._loop.clock()) > 0:
                self._loop.turn(patience)
            self._report(self._loop.clock() - began)
        self._over = self._over or {}  # how the sidecar ends is no news any more
        self._texts.close()

    def hear(self, signo: int) -> None:
        """A signal came while the final sync runs: the first stop sets the platform's clock going."""
        if signo in STOPPING and self._until is not None:
            pressed = self._loop.clock() + self._place.grace - MARGIN
            if pressed < self._until:
                self._until = pressed
                self._tell_finish()

    # -- the sidecar --

    def _launch(self, watch: bool) -> None:
        """Starts it in the first Python that has what it takes; with ``watch``, a watcher library too."""
        self._watch, self._codes = watch, {}
        self._pythons = list(dict.fromkeys(filter(None, (sys.executable, self._place.interpreter))))
        self._next()

    def _next(self) -> None:
        self._sidecar = None
        while self._pythons:
            self._words = []
            try:
                argv = (self._pythons[0], "-W", "ignore", "-c", STARTER, self._request())
                self._sidecar = self._sidecars.start(argv, self._place.environ, self._heard, self._ended)
            except CannotStart as refusal:
                if refusal.step == "fork":
                    self._cannot(refusal.error)
                    return
                self._codes[self._pythons.pop(0)] = NO_BOTO3
                continue
            except OSError as error:
                self._cannot(error)
                return
            if self._until is not None:
                self._tell_finish()
            return
        self._nowhere()

    def _cannot(self, error: OSError) -> None:
        """No process, memory or descriptor is to be had; at the job's end there may be."""
        self._is_impossible = self._until is not None
        later = "" if self._is_impossible else "; it is tried again when the job has ended"
        self._say(f"warning: the sync to {self._place.target.uri} can't be started: {error.strerror}{later}")

    def _request(self) -> str:
        place = self._place
        self._record_path = self._record_path or self._texts.hold("outputs-record", "")
        request = {
            "directory": place.directory, "bucket": place.target.bucket, "prefix": place.target.prefix,
            "region": region_of(place.region, place.environ), "endpoint": endpoint_of(place.environ),
            "record": self._record_path, "watch": self._watch,
        }  # fmt: skip
        texts = [(module_of(name), self._texts.path(name)) for name in UPLOADER]
        self._requests += 1
        return self._texts.hold(f"outputs-request-{self._requests}", json.dumps([texts, request]))

    def _nowhere(self) -> None:
        """No Python has what it takes."""
        tried = ", ".join(self._codes)
        if NO_WATCHDOG not in self._codes.values():
            self._is_impossible = True
            self._say(
                f"warning: nothing goes up to {self._place.target.uri}: that takes boto3, which no Python here has "
                f"({tried}); {EXTRA}"
            )
        elif self._until is not None:
            self._launch(watch=False)
        else:
            self._say(
                f"{self._place.directory} goes up when the job has ended, not before: for that it takes watchdog, "
                f"which no Python with boto3 has here ({tried}); {EXTRA}"
            )

    def _tell_finish(self) -> None:
        if self._sidecar is not None and self._until is not None:
            self._sidecar.tell(f"finish {max(0.0, self._until - self._loop.clock()):.3f}")

    def _heard(self, line: str) -> None:
        try:
            fact = json.loads(line)
        except ValueError:
            fact = None
        if not isinstance(fact, dict):
            self._words = [*self._words[-2:], line]
        elif "over" in fact:
            self._over = fact["over"]
        elif "problem" in fact:
            self._problems += 1
            meanwhile = "the job goes on, and the files wait" if self._until is None else "the job has ended"
            self._say(f"warning: uploading to {self._place.target.uri}: {fact['problem']}; {meanwhile}")
        elif "blind" in fact:
            self._say(f"warning: {fact['blind']}; what is written goes up when the job has ended")
        elif "path" in fact:
            at, size = fact["at"] / 1024**2, fact["size"] / 1024**2
            self._say(f"{self._place.target.uri}{fact['path']}: {at:.0f} of {size:.0f} MiB have gone up")

    def _ended(self, code: int) -> None:
        self._sidecar = None
        if self._is_settled:
            return
        if code in (NO_BOTO3, NO_WATCHDOG) and self._pythons:
            self._codes[self._pythons.pop(0)] = code
            self._next()
            return
        self._deaths += 1
        how = f"was killed by signal {-code}" if code < 0 else f"ended with code {code}"
        said = f" ({' '.join(self._words)})" if self._words else ""
        if self._until is None:
            self._say(f"warning: the sync to {self._place.target.uri} {how}{said}; the rest goes up at the job's end")
        elif self._deaths < DEATHS:
            self._launch(watch=False)
        else:
            self._is_impossible = True
            self._say(f"warning: the sync to {self._place.target.uri} {how}{said}")

    # -- its end --

    @property
    def _is_settled(self) -> bool:
        return self._over is not None or self._is_impossible

    def _report(self, seconds: float) -> None:
        place, over = self._place, self._over
        if over is None:
            if not self._is_impossible:
                self._say(f"warning: after {seconds:.0f} s not everything had gone up to {place.target.uri}")
            self._record("outputs-synced", seconds=round(seconds, 3))
            return
        self._record("outputs-synced", seconds=round(seconds, 3), files=over["files"], left=over["left"])
        failures = ", ".join(f"{kind} {count}x" for kind, count in over["problems"].items())
        if over["files"]:
            self._say(f"{_count(over['files'])}, {over['bytes'] / 1024**2:.1f} MiB, went up to {place.target.uri}")
        if over["left"]:
            named = ", ".join(over["named"]) + (", …" if over["left"] > len(over["named"]) else "")
            why = f"failures: {failures}" if failures else f"no more time after {seconds:.0f} s"
            self._say(f"warning: {_count(over['left'])} didn't get to {place.target.uri}: {named} ({why})")
        elif failures:
            self._say(f"failures on the way to {place.target.uri}: {failures}")


def _count(number: int) -> str:
    return f"{number:,} file{'' if number == 1 else 's'}"


def sync_of(
    job: Job, environ: Mapping[str, str], interpreter: str, grace: float, means: Means, below_toolkit: bool
) -> Sync | None:
    """Makes the directory; None where nothing is to be synced. ``grace`` is seconds between SIGTERM and SIGKILL.

    A directory that is there already is the platform's, which syncs it; ``below_toolkit`` says that it may as well be
    sagemaker-training's, which started us.
    """
    directory, say = job.paths.output_intermediate, means.say
    try:
        target = target_of(job.hyperparameters, environ)
    except UsageError as error:
        say(f"warning: {error}; {directory} isn't synced")
        return None
    if target is None or not directory:
        return None
    if os.path.isdir(directory):
        if target.bucket and not below_toolkit:
            say(f"{directory} was there before the job: its sync to {target.place} is the platform's")
        return None
    try:
        os.makedirs(directory)
    except OSError as error:
        say(f"warning: {directory} can't be made: {error.strerror}; nothing goes to {target.place}")
        return None
    if not target.bucket:
        return None
    if is_isolated(job):
        say(f"{directory} isn't synced to {target.place}: the job has EnableNetworkIsolation, and so no network")
        return None
    return Sync(Place(directory, target, job.region, environ, interpreter, grace), means)
