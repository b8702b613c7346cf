"""What the watch makes of its tracer's lines and of its end."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Callable, Mapping, Sequence

import pytest

from musterpoint.processes import pid1
from musterpoint.processes.pid1 import Pid1Watch
from musterpoint.processes.process import CannotStart
from musterpoint.settings import LOCAL

WATCHED = "PID 1 of this container is bash, which keeps SIGTERM to itself: it is watched"


class Sidecars:
    """Remembers what it was to start, in place of the real ones; or refuses to."""

    def __init__(self, refusal: Exception | None = None) -> None:
        self.refusal = refusal

    def start(
        self, argv: Sequence[str], environ: Mapping[str, str], line: Callable[[str], None], ended: Callable[[int], None]
    ) -> None:
        if self.refusal is not None:
            raise self.refusal
        self.argv, self.line, self.ended = list(argv), line, ended
        self.text = Path(argv[3]).read_text()


class Watched:
    def __init__(self, sidecars: Sidecars, **environ: str) -> None:
        self.sidecars = sidecars
        self.said: list[str] = []
        self.stops = 0
        self.watch = Pid1Watch(sidecars, environ, "bash", self.said.append, self.stop)  # type: ignore[arg-type]

    def stop(self) -> None:
        self.stops += 1


def test_it_hears_one_stop() -> None:
    watched = Watched(Sidecars())
    tracer = watched.sidecars
    assert tracer.argv[:3] == [sys.executable, "-I", "-S"] and tracer.argv[4] == "1"
    assert "PTRACE_SEIZE" in tracer.text
    tracer.line("watching")
    assert len(watched.said) == 1 and watched.said[0].startswith(WATCHED)
    tracer.line("TERM")
    tracer.line("TERM")
    tracer.ended(0)
    watched.watch.close()
    assert (watched.stops, len(watched.said)) == (1, 1)
    assert not Path(tracer.argv[3]).exists()


@pytest.mark.parametrize(
    ("tracer", "local", "words"),
    [
        (0, "", "it can't be watched (ptrace: Operation not permitted): a stop will kill the job"),
        (77, "", "it can't be watched (process 77 traces it already)"),
        (77, "1", ""),
        (0, "1", "Operation not permitted"),
    ],
)
def test_a_refusal_is_said_once(monkeypatch: pytest.MonkeyPatch, tracer: int, local: str, words: str) -> None:
    """Hosts of this machine's own jobs share PID 1: one of them traces it, and stops all."""
    monkeypatch.setattr(pid1, "tracer_of_pid1", lambda proc="/proc": tracer)
    watched = Watched(Sidecars(), **{LOCAL: local})
    watched.sidecars.line("refused 1")
    watched.sidecars.ended(0)
    assert len(watched.said) == bool(words)
    assert all(words in line for line in watched.said)


def test_an_end_of_its_own() -> None:
    watched = Watched(Sidecars())
    watched.sidecars.line("ModuleNotFoundError: No module named '_ctypes'")
    watched.sidecars.ended(1)
    assert "(what watched it has ended with 1: ModuleNotFoundError: No module named '_ctypes')" in watched.said[0]


def test_the_end_that_was_wished_for() -> None:
    watched = Watched(Sidecars())
    watched.sidecars.line("watching")
    watched.watch.close()
    watched.sidecars.ended(-9)
    assert len(watched.said) == 1


@pytest.mark.parametrize("refusal", [OSError(24, "Too many open files"), CannotStart(OSError(2, "none"), "exec")])
def test_it_cannot_be_started(refusal: Exception) -> None:
    watched = Watched(Sidecars(refusal))
    assert f"it can't be watched ({refusal})" in watched.said[0]
