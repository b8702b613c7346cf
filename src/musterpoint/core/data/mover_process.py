"""Runs the mover in the first Python that has the store's library, and hears what it says."""

import contextlib
import queue
import subprocess
import sys
import threading
from typing import Any, Callable, Iterator, Mapping, Sequence

from musterpoint.base import settings
from musterpoint.base.errors import FetchError
from musterpoint.base.python_variables import for_tools
from musterpoint.base.records import NamedTuple
from musterpoint.embedded.programs.registry import MOVER, Program, Texts, fact_of

EVERY = 10.0
"""Seconds between two lines of progress."""
_LAST = 3
START = 60.0
"""Seconds in which the mover's Python starts and loads the store's library."""
ANSWER = 5.0
"""Seconds in which a place answers; a mount whose server is gone never does."""
MEASURE = 25.0
"""Seconds that measuring may take."""
UNKILLABLE = 2.0
"""Seconds to wait for a killed process: it may be stuck in the kernel."""


class Access(NamedTuple):
    """How stores are reached: the environment of whoever asks, for the SDK's own chain of credentials; the Pythons
    that may have the libraries, the first of which is asked first; and S3's region and endpoint, where they aren't the
    environment's.
    """

    environ: Mapping[str, str]
    pythons: tuple[str, ...] = ()
    region: str = ""
    endpoint: str = ""


class NotMoved(FetchError):
    """The mover couldn't. ``missing``: there is nothing at the place. ``passing``: it may go well later. ``killed``: a
    signal ended it, before it said anything.
    """

    def __init__(self, sentence: str, missing: bool, passing: bool, killed: bool = False) -> None:
        super().__init__(sentence)
        self.missing, self.passing, self.killed = missing, passing, killed


Say = Callable[[str], None]
Run = Callable[[tuple[str, ...], Mapping[str, str], Say], int]
"""Runs a program to its end and returns its exit status; each line of its output goes to the call. It may raise
OSError: the program can't be started.
"""


def run_here(argv: tuple[str, ...], environ: Mapping[str, str], on_line: Say) -> int:
    """A :data:`Run` that waits; the program ends with this process."""
    with started(argv, environ) as child:
        try:
            for line in lines_of(child):
                on_line(line)
            return child.wait()
        except BaseException:
            child.kill()
            raise


def started(argv: tuple[str, ...], environ: Mapping[str, str]) -> "subprocess.Popen[bytes]":
    """A program that ends with its stdin, which is ours."""
    return subprocess.Popen(
        argv, env=for_tools(environ), cwd="/", stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )


def lines_of(child: "subprocess.Popen[bytes]") -> Iterator[str]:
    """What it says, line by line, until it ends."""
    assert child.stdout is not None
    with child.stdout:
        for line in child.stdout:
            yield line.decode("utf-8", "replace").rstrip("\n")


def limited(answer: float) -> Run:
    """A :data:`Run` that ends where the place doesn't answer; a process that waits for a dead mount can't even be
    killed, and is left alone.
    """

    def run(argv: tuple[str, ...], environ: Mapping[str, str], on_line: Say) -> int:
        child = started(argv, environ)
        lines: queue.Queue[str | None] = queue.Queue()
        threading.Thread(target=_read, args=(child, lines), daemon=True).start()
        limit, what = START, "its library isn't loaded"
        try:
            while (line := lines.get(timeout=limit)) is not None:
                fact = fact_of(line) or {}
                if "opened" in fact:
                    limit, what = answer, "it doesn't answer (a mount whose server is gone, or no network)"
                elif "answers" in fact:
                    limit, what = MEASURE, "measuring it isn't over"
                else:
                    on_line(line)
        except queue.Empty:
            child.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(UNKILLABLE)
            raise FetchError(f"{what} after {limit:g} s") from None
        finally:
            assert child.stdin is not None
            child.stdin.close()
        return child.wait()

    return run


def _read(child: "subprocess.Popen[bytes]", lines: "queue.Queue[str | None]") -> None:
    for line in lines_of(child):
        lines.put(line)
    lines.put(None)
    child.wait()


def region_of(region: str, environ: Mapping[str, str]) -> str:
    """The AWS region; ``region`` is the job's. Empty: boto3's own configuration decides."""
    named = (environ.get(name, "") for name in ("AWS_REGION", "SAGEMAKER_REGION", "SM_REGION", "AWS_DEFAULT_REGION"))
    return next(filter(None, named), region)


def endpoint_of(environ: Mapping[str, str]) -> str:
    """The URL of an S3 service other than AWS's, from the SDKs' and sagemaker-training's variables; empty: AWS."""
    names: tuple[str, ...] = ("AWS_ENDPOINT_URL_S3", "S3_ENDPOINT_URL", "AWS_ENDPOINT_URL")
    if environ.get("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", "").lower() == "true":
        names = ("S3_ENDPOINT_URL",)
    return next(filter(None, (environ.get(name, "") for name in names)), "")


def access_of(access: Access) -> dict[str, str]:
    """What the mover has to know of the access beside the environment."""
    region, endpoint = region_of(access.region, access.environ), access.endpoint or endpoint_of(access.environ)
    return {"region": region, "endpoint": endpoint}


class Progress(NamedTuple):
    """How far a transfer is: bytes and files of all, and since when, in seconds."""

    at: int
    size: int
    files: int
    of: int
    seconds: float

    @property
    def sentence(self) -> str:
        rate = self.at / self.seconds if self.seconds else 0.0
        left = f", {(self.size - self.at) / rate:.0f} s left" if rate else ""
        return (
            f"{mib(self.at)} of {mib(self.size)}, {self.files:,} of {self.of:,} files after {self.seconds:.0f} s "
            f"({mib(rate)}/s{left})"
        )


def mib(size: float) -> str:
    """``size`` bytes for people."""
    for unit, bytes_of in (("GiB", 1024**3), ("MiB", 1024**2), ("KiB", 1024)):
        if size >= bytes_of:
            return f"{size / bytes_of:.1f} {unit}"
    return f"{size:.0f} bytes"


class Heard:
    """What the mover has said, line by line; notes and progress go to ``say``."""

    def __init__(self, what: str, say: Say) -> None:
        self.done: dict[str, Any] | None = None
        self.error = self.lacks = ""
        self.missing = self.passing = False
        self.words: list[str] = []
        self._what, self._say = what, say
        self._shown = 0.0

    def line(self, text: str) -> None:
        fact = fact_of(text)
        if fact is None:
            self.words = [*self.words[1 - _LAST :], text]
        elif "done" in fact:
            self.done = fact["done"]
        elif "error" in fact:
            self.error = fact["error"]
            self.missing, self.passing = bool(fact.get("missing")), bool(fact.get("passing"))
        elif "lacks" in fact:
            self.lacks = fact["lacks"]
        elif "note" in fact:
            self._say(f"{self._what}: {fact['note']}")
        elif "progress" in fact:
            progress = Progress(*fact["progress"])
            if progress.seconds - self._shown >= EVERY:
                self._shown = progress.seconds
                self._say(f"{self._what}: {progress.sentence}")


def pythons_of(access: Access) -> tuple[str, ...]:
    return tuple(dict.fromkeys(filter(None, (sys.executable, *access.pythons))))


def advice(uri: str, lacking: Mapping[str, str], takes: str = "") -> str:
    """What to do where no Python has what ``uri`` takes; ``lacking``: what each of them lacks."""
    wanted = "musterpoint[aws]" if uri.startswith("s3://") else "musterpoint[data]"
    tried = ", ".join(f"{python} ({why})" for python, why in lacking.items())
    if takes:
        return f"no Python here has what this takes: {tried}; {takes}"
    library = "boto3" if uri.startswith("s3://") else "fsspec and its package for this kind of URI"
    return f"this takes {library}, which no Python here has: {tried}; pip install it in the image (the extra {wanted})"


def move(
    what: str,
    request: Mapping[str, Any],
    access: Access,
    say: Say,
    run: Run = run_here,
    program: Sequence[Program] = MOVER,
    takes: str = "",
) -> dict[str, Any]:
    """Carries ``request`` out; ``what`` it is, for messages, such as "channel train". Returns what was done.
    ``takes``: what to install where no Python has what ``program`` needs; empty: the store's library.

    Raises:
        FetchError: it can't be done, and why; :class:`NotMoved` where the program itself says so.
    """
    environ = settings.without_own(access.environ)
    complete = {**request, "access": access_of(access)}
    texts, lacking = Texts(), dict[str, str]()
    try:
        for python in pythons_of(access):
            heard = Heard(what, say)
            try:
                status = run(texts.command(python, program, complete), environ, heard.line)
            except OSError as error:
                lacking[python] = error.strerror or str(error)
                continue
            if heard.lacks:
                lacking[python] = f"no {heard.lacks}"
                continue
            if heard.done is not None:
                return heard.done
            why = heard.error or " ".join(heard.words) or f"the mover ended with code {status}"
            raise NotMoved(f"{what}: {why}", heard.missing, heard.passing, killed=status < 0 and not heard.error)
    finally:
        texts.close()
    raise FetchError(f"{what}: {advice(str(request['uri']), lacking, takes)}")
