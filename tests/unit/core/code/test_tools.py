from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from musterpoint.base.errors import FetchError, StoppedEarly
from musterpoint.core.code import tools as module
from musterpoint.core.code.tools import Execution, Output, Tools
from musterpoint.core.processes.received_signals import Signals

from ...fixtures import closing_fixture
from .conftest import Bench


class Trial(Bench):
    """Runs programs with the bench's tools, and keeps their lines."""

    def __init__(self, folder: Path, limit: float | None = None) -> None:
        super().__init__(folder)
        self.lines: list[str] = []
        if limit is not None:
            self.tools = Tools(self.loop, "algo-1", Output(self.said.append, self.shown.append, self.record), limit)

    def run(self, script: str, show_stderr: bool = False, **more: Any) -> int:
        words = [sys.executable, "-S", "-c", script]
        return self.tools.run(Execution(words, os.environ, "/", **more), self.lines.append, show_stderr)


trial = closing_fixture(Trial, "tmp_path")


def test_output_comes_line_by_line(trial: Trial) -> None:
    script = (
        "import sys; print('one'); print('two', file=sys.stderr, flush=True); print('thr\\xe9e\\r'); print(end='end')"
    )
    assert trial.run(f"import sys; sys.stdout.reconfigure(line_buffering=True, encoding='latin-1'); {script}") == 0
    assert trial.lines == ["one", "two", "thr\ufffde", "end"]
    assert trial.shown == []


def test_stderr_apart_is_shown(trial: Trial) -> None:
    assert trial.run("import sys; print('out'); print('err', file=sys.stderr); sys.exit(3)", show_stderr=True) == 3
    assert (trial.lines, trial.shown) == (["out"], ["err"])


def test_a_descriptor_that_is_kept(trial: Trial, tmp_path: Path) -> None:
    with open(tmp_path / "kept", "w") as kept:
        assert trial.run(f"import os; os.write({kept.fileno()}, b'words')", pass_fds=[kept.fileno()]) == 0
    assert (tmp_path / "kept").read_bytes() == b"words"


def test_a_program_that_ends_with_its_stdin(trial: Trial) -> None:
    """It needs no signal, and may ignore them."""
    script = (
        "import signal, sys; signal.signal(2, signal.SIG_IGN); print('on', flush=True); sys.stdin.read(); print('off')"
    )
    assert trial.run(script) == 0
    trial.lines.clear()

    def line(text: str) -> None:
        trial.lines.append(text)
        trial.tools.stop(15)

    with pytest.raises(StoppedEarly):
        words = [sys.executable, "-S", "-u", "-c", script]
        trial.tools.run(Execution(words, os.environ, "/", ends_with_stdin=True), line)
    assert trial.lines[0] == "on"


def test_a_program_that_dies_or_is_not_there(trial: Trial) -> None:
    assert trial.run("import os; os.kill(os.getpid(), 9)") == -9
    with pytest.raises(FileNotFoundError):
        trial.tools.run(Execution(["/none/such"], {}, "/"), trial.lines.append)


def test_a_line_without_an_end_is_cut(trial: Trial) -> None:
    assert trial.run("print('x' * 3_000_000, end='')") == 0
    assert sum(map(len, trial.lines)) == 3_000_000
    assert len(trial.lines) > 1


def test_what_a_program_left_in_the_background_is_not_waited_for(trial: Trial) -> None:
    began = time.monotonic()
    process = "import subprocess, sys; subprocess.Popen([sys.executable, '-S', '-c', 'import time; time.sleep(60)'],"
    assert trial.run(process + "start_new_session=True); print('left', flush=True)") == 0
    assert trial.lines == ["left"]
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
def test_a_stop_ends_the_program_and_its_children(ignores: bool, trial: Trial, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "STOP_GRACE", 0.2)
    pids: list[int] = []

    def line(text: str) -> None:
        pids.append(int(text))
        trial.loop.call_later(0, lambda: trial.tools.stop(signal.SIGTERM))

    with pytest.raises(StoppedEarly, match=r"^algo-1 was told to stop \(signal 15\) while its code was"):
        words = [sys.executable, "-S", "-c", SLOW.replace("IGNORE", str(ignores))]
        trial.tools.run(Execution(words, os.environ, "/"), line)
    deadline = time.monotonic() + 500
    while left_of_group(pids[0]):
        assert time.monotonic() < deadline, "a child of the program was left behind"
    with pytest.raises(StoppedEarly):
        trial.run("pass")


def test_a_real_signal_is_noticed(trial: Trial) -> None:
    signals = Signals(trial.loop, trial.tools.stop)
    try:
        with pytest.raises(StoppedEarly):
            words = [sys.executable, "-S", "-c", "print(1, flush=True); import time; time.sleep(60)"]
            trial.tools.run(Execution(words, os.environ, "/"), lambda text: os.kill(os.getpid(), signal.SIGTERM))
    finally:
        signals.close()


def test_a_stop_is_noticed_in_work_of_our_own(trial: Trial) -> None:
    trial.loop.call_later(0, lambda: trial.tools.stop(15))
    began = time.monotonic()
    with pytest.raises(StoppedEarly):
        while time.monotonic() - began < 60:
            trial.tools.poll()
    with pytest.raises(StoppedEarly):
        trial.tools.pause(1)


def test_a_pause_is_as_long_as_it_says(trial: Trial) -> None:
    began = time.monotonic()
    trial.tools.pause(0.2)
    assert time.monotonic() - began >= 0.2


def test_all_work_has_a_limit(tmp_path: Path) -> None:
    trial = Trial(tmp_path, limit=0.5)
    trial.tools.begin("installing requirements.txt with pip")
    with pytest.raises(
        FetchError, match=r"^installing requirements.txt with pip wasn't done within 0 s, and the other"
    ):
        trial.run("import time; time.sleep(60)")
    with pytest.raises(FetchError):
        trial.tools.poll()
    trial.close()


def test_a_quiet_program_is_reported(trial: Trial, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(module, "QUIET", 0.1)
    trial.tools.say = lambda text: (tmp_path / "said").write_text(text) and None
    trial.tools.begin("building")
    trial.run(f"import os, time\nwhile not os.path.exists({str(tmp_path / 'said')!r}): time.sleep(0.02)")
    assert (tmp_path / "said").read_text().startswith("still building, ")


def test_where_linux_tells_of_no_end_the_signal_does(trial: Trial, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "pidfd_open", raising=False)
    signals = Signals(trial.loop, lambda signo: None)
    try:
        assert trial.run("print('done')") == 0
    finally:
        signals.close()
    assert trial.lines == ["done"]
