"""The machine that the parts run on: jobs of ours on it, and what they leave."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from musterpoint.embedded.programs.process_files import children_of, tree

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = Path(__file__).resolve().parent / "programs"
FACTS = "facts of a part: "
"""Begins the line with a JSON object that a program prints for its part."""


class Wrong(Exception):
    """Something isn't as it must be."""


class NotHere(Exception):
    """The part can't run on this machine; the text says what is missing."""


class TimeOver(Exception):
    """A part's time is over; what it had started has been killed."""


class Job(NamedTuple):
    """A finished ``muster local`` job of one host.

    ``code``: its exit code; ``reason``: the failure reason as the platform has it; ``outcome``: the host's
    ``outcome.json``; ``log``: all that was printed.
    """

    code: int
    reason: str
    outcome: dict[str, Any]
    log: str
    folder: Path

    def expect(self, code: int, *words: str) -> Job:
        """This job, if it ended with ``code`` and its reason has ``words``.

        Raises:
            Wrong: it is otherwise; the text has the end of the log.
        """
        if self.code != code:
            why = self.reason or "no reason"
            raise Wrong(f"code {self.code}, expected {code}; {why}; the log ends: {self.log[-1500:]}")
        for each in words:
            if not re.search(each, self.reason):
                raise Wrong(f"the reason lacks {each!r}: {self.reason!r}")
        return self

    def facts(self) -> dict[str, Any]:
        """What the program said, of all its ranks; later lines go before."""
        found: dict[str, Any] = {}
        for line in self.log.splitlines():
            if FACTS in line:
                found.update(json.loads(line.partition(FACTS)[2]))
        if not found:
            raise Wrong(f"the program said no facts; its log ends: {self.log[-1500:]}")
        return found


class Machine:
    """Where jobs run. ``dry``: on the CPU, whatever there is. ``folder`` is the part's own.

    ``found``: what the part has found so far; its report has it however the part ends.
    """

    def __init__(self, folder: Path, dry: bool, deadline: float, quick: bool, site: str = "") -> None:
        self.folder, self.dry, self.deadline, self.quick = folder, dry, deadline, quick
        path = [str(ROOT / "src"), *([site] if site else []), os.environ.get("PYTHONPATH", "")]
        self.environ = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, path)), "PYTHONUNBUFFERED": "1"}
        if dry:
            self.environ |= {"CUDA_VISIBLE_DEVICES": "", "JAX_PLATFORMS": "cpu"}
        self.found: dict[str, Any] = {}
        self._jobs = 0

    @property
    def brief(self) -> bool:
        """Whether a job that differs from another one on a GPU only is left out."""
        return self.dry and self.quick

    @property
    def left(self) -> float:
        """Seconds that this part has left."""
        return max(self.deadline - time.monotonic(), 1.0)

    def run(self, words: Sequence[str | Path], **more: str) -> subprocess.CompletedProcess[str]:
        """Runs this Python with ``words``."""
        argv = [sys.executable, *map(str, words)]
        return subprocess.CompletedProcess(argv, *self.done(argv, more), "")

    def done(
        self, argv: list[str], more: Mapping[str, str], when: tuple[str, Callable[[Any], object]] | None = None
    ) -> tuple[int, str]:
        """Runs a command: its code, and all that it printed.

        Raises:
            Wrong: the part's time was over before.
        """
        child = subprocess.Popen(
            argv, env={**self.environ, **more}, cwd=self.folder, text=True, errors="replace",
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
        said: list[str] = []
        assert child.stdout is not None
        try:
            with child.stdout, limit(self.left, child.pid):
                for line in child.stdout:
                    said.append(line)
                    if when is not None and when[0] in line:
                        act, when = when[1], None
                        act(child)
                return child.wait(), "".join(said)
        except TimeOver:
            child.wait()
            words = " ".join(argv[1:]).replace(str(ROOT), "")
            raise Wrong(f"the part's time was over before the end of {words}; it said: {''.join(said)[-1500:]}")

    def job(
        self,
        program: str,
        *arguments: str,
        slots: int = 1,
        launcher: str = "torchrun",
        words: Sequence[str] = (),
        when: tuple[str, Callable[[subprocess.Popen[str]], object]] | None = None,
        environ: Mapping[str, str] = {},
    ) -> Job:
        """Runs a program of ours as a job of one host with ``slots`` ranks.

        ``words`` are more options of ``muster local``, ``environ`` the program's variables; ``when`` is a text of
        the log, and what to do when it comes.
        """
        self._jobs += 1
        output = self.folder / f"job-{self._jobs}"
        argv = [sys.executable, "-m", "musterpoint", "local", "--backend", "process", "--hosts", "1"]
        argv += ["--slots", str(slots), "--launcher", launcher, "--output", str(output), "--stop-grace", "20", *words]
        for name, value in environ.items():
            argv += ["--env", f"{name}={value}"]
        code, log = self.done([*argv, str(PROGRAMS / program), *arguments], {}, when)
        described = _json(output / "job.json")
        outcome = _json(next(output.glob("hosts/*/opt/ml/output/outcome.json"), output / "none"))
        reason = str(described.get("FailureReason") or "")
        return Job(code, reason, outcome, log, output)


@contextlib.contextmanager
def limit(seconds: float, process: int) -> Iterator[None]:
    """Kills a command and all below it when its time is over.

    Then it raises TimeOver. The end of its output isn't waited for: what outlives it may hold the pipe.
    """

    def ring(_number: int, _frame: object) -> None:
        for pid in tree(process, children_of()):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        raise TimeOver

    handler, timer = signal.signal(signal.SIGALRM, ring), signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, *timer)
        signal.signal(signal.SIGALRM, handler)


def _json(path: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return found


def close(name: str, found: Mapping[str, Any], key: str, most: float) -> None:
    """Checks that a number that a part found isn't over ``most``.

    Raises:
        Wrong: it is, or isn't a number.
    """
    value = found.get(key)
    if not isinstance(value, (int, float)) or not value <= most:
        raise Wrong(f"{name}: {key} is {value}, expected at most {most:g}")
