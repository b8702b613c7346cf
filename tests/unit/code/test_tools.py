from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Iterator

import pytest

from musterpoint.code import tools as module
from musterpoint.code.tools import Output, Tools
from musterpoint.errors import FetchError, StoppedEarly
from musterpoint.loop import Loop
from musterpoint.processes.signals import Signals


class Heard:
    """Tools in a loop of their own, and what they said."""

    def __init__(self, limit: float | None = None) -> None:
        self.loop = Loop()
        self.said: list[str] = []
        self.shown: list[str] = []
        self.lines: list[str] = []
        self.moments: list[tuple[str, dict[str, Any]]] = []
        self.tools = Tools(self.loop, "algo-1", Output(self.said.append, self.shown.append, self.record), limit)

    def record(self, name: str, **facts: Any) -> None:
        self.moments.append((name, facts))

    def run(self, script: str, **more: Any) -> int:
        words = [sys.executable, "-S", "-c", script]
        return self.tools.run(words, dict(os.environ), "/", self.lines.append, **more)


@pytest.fixture
def heard() -> Iterator[Heard]:
    made = Heard()
    yield made
    made.loop.close()


def test_output_comes_line_by_line(heard: Heard) -> None:
    script = (
        "import sys; print('one'); print('two', file=sys.stderr, flush=True); print('thr\\xe9e\\r'); print(end='end')"
    )
    assert heard.run(f"import sys; sys.stdout.reconfigure(line_buffering=True, encoding='latin-1'); {script}") == 0
    assert heard.lines == ["one", "two", "thr\ufffde", "end"]
    assert heard.shown == []


def test_stderr_apart_is_shown(heard: Heard) -> None:
    assert heard.run("import sys; print('out'); print('err', file=sys.stderr); sys.exit(3)", show_stderr=True) == 3
    assert (heard.lines, heard.shown) == (["out"], ["err"])


def test_what_is_given_and_kept(heard: Heard, tmp_path: Path) -> None:
    with open(tmp_path / "kept", "w") as kept:
        script = f"import os, sys; os.write({kept.fileno()}, sys.stdin.buffer.read())"
        assert heard.run(script, stdin=b"words", pass_fds=[kept.fileno()]) == 0
    assert (tmp_path / "kept").read_bytes() == b"words"
    assert heard.run("pass", stdin=b"nobody reads it" * 1000) == 0


def test_a_program_that_dies_or_is_not_there(heard: Heard) -> None:
    assert heard.run("import os; os.kill(os.getpid(), 9)") == -9
    with pytest.raises(FileNotFoundError):
        heard.tools.run(["/none/such"], {}, "/", heard.lines.append)


def test_a_line_without_an_end_is_cut(heard: Heard) -> None:
    assert heard.run("print('x' * 3_000_000, end='')") == 0
    assert sum(map(len, heard.lines)) == 3_000_000
    assert len(heard.lines) > 1


def test_what_a_program_left_in_the_background_is_not_waited_for(heard: Heard) -> None:
    began = time.monotonic()
    process = "import subprocess, sys; subprocess.Popen([sys.executable, '-S', '-c', 'import time; time.sleep(60)'],"
    assert heard.run(process + "start_new_session=True); print('left', flush=True)") == 0
    assert heard.lines == ["left"]
    assert time.monotonic() - began < 50


def left_of_group(group: int) -> list[str]:
    left = subprocess.run(["ps", "-o", "stat=", "-g", str(group)], capture_output=True, text=True, check=False)
    return [state for state in left.stdout.split() if not state.startswith("Z")]


SLOW = """
import os, signal, sys, time
signal.signal(signal.SIGINT, lambda *_: IGNORE or sys.exit(9))
if os.fork() == 0:
    time.sleep(60)
print(os.getpid(), flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize("ignores", [False, True])
def test_a_stop_ends_the_program_and_its_children(ignores: bool, heard: Heard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "STOP_GRACE", 0.2)
    pids: list[int] = []

    def line(text: str) -> None:
        pids.append(int(text))
        heard.loop.call_later(0, lambda: heard.tools.stop(signal.SIGTERM))

    with pytest.raises(StoppedEarly, match=r"^algo-1 was told to stop \(signal 15\) while its code was"):
        words = [sys.executable, "-S", "-c", SLOW.replace("IGNORE", str(ignores))]
        heard.tools.run(words, dict(os.environ), "/", line)
    deadline = time.monotonic() + 60
    while left_of_group(pids[0]):
        assert time.monotonic() < deadline, "a child of the program was left behind"
    with pytest.raises(StoppedEarly):
        heard.run("pass")


def test_a_real_signal_is_heard(heard: Heard) -> None:
    ears = Signals(heard.loop, heard.tools.stop)
    try:
        with pytest.raises(StoppedEarly):
            words = [sys.executable, "-S", "-c", "print(1, flush=True); import time; time.sleep(60)"]
            heard.tools.run(words, dict(os.environ), "/", lambda text: os.kill(os.getpid(), signal.SIGTERM))
    finally:
        ears.close()


def test_a_stop_is_noticed_in_work_of_our_own(heard: Heard) -> None:
    heard.loop.call_later(0.1, lambda: heard.tools.stop(15))
    began = time.monotonic()
    with pytest.raises(StoppedEarly):
        while time.monotonic() - began < 60:
            heard.tools.poll()
    with pytest.raises(StoppedEarly):
        heard.tools.pause(1)


def test_a_pause_is_as_long_as_it_says(heard: Heard) -> None:
    began = time.monotonic()
    heard.tools.pause(0.2)
    assert time.monotonic() - began >= 0.2


def test_all_work_has_a_limit() -> None:
    heard = Heard(limit=0.5)
    heard.tools.begin("installing requirements.txt with pip")
    with pytest.raises(
        FetchError, match=r"^installing requirements.txt with pip wasn't done within 0 s, and the other"
    ):
        heard.run("import time; time.sleep(60)")
    with pytest.raises(FetchError):
        heard.tools.poll()
    heard.loop.close()


def test_a_quiet_program_is_spoken_for(heard: Heard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "QUIET", 0.1)
    heard.tools.begin("building")
    heard.run("import time; time.sleep(0.5)")
    assert heard.said[0].startswith("still building, ")


def test_where_linux_tells_of_no_end_the_signal_does(heard: Heard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "pidfd_open", raising=False)
    ears = Signals(heard.loop, lambda signo: None)
    try:
        assert heard.run("print('done')") == 0
    finally:
        ears.close()
    assert heard.lines == ["done"]
