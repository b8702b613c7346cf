"""What an interrupted run of the tests leaves: a word about what had failed, and nothing that still runs."""

from __future__ import annotations

import os
import signal
import subprocess
import textwrap
from pathlib import Path

import pytest

TESTS = """
    import os, signal, subprocess, sys

    def test_that_fails():
        assert 1 == 2

    def test_that_waits():
        orphan = "sleep 1000 >/dev/null 2>&1 </dev/null & echo $! > {pid}"
        subprocess.Popen(["setsid", "sh", "-c", orphan]).wait()
        with open({ready!r}, "w"):
            pass
        signal.pause()
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted(number: int, tmp_path: Path, root: Path, python: str) -> None:
    ready, pid = tmp_path / "ready", tmp_path / "pid"
    os.mkfifo(ready)
    (tmp_path / "test_it.py").write_text(textwrap.dedent(TESTS).format(ready=str(ready), pid=pid))
    words = [python, root / "scripts" / "reaper.py", python, "-m", "pytest", "-p", "no:cacheprovider", "test_it.py"]
    child = subprocess.Popen(words, cwd=tmp_path, stdout=subprocess.PIPE, text=True)
    ready.read_text()
    orphan = os.pidfd_open(int(pid.read_text()))
    child.send_signal(number)
    said, _ = child.communicate()
    assert "1 failed" in said and "KeyboardInterrupt" in said
    assert child.returncode == 2  # pytest's own
    with pytest.raises(ProcessLookupError):
        signal.pidfd_send_signal(orphan, 0)
    os.close(orphan)


def test_the_code_is_the_commands(root: Path, python: str) -> None:
    done = subprocess.run([python, root / "scripts" / "reaper.py", "sh", "-c", "exit 7"], check=False)
    assert done.returncode == 7


def test_what_is_left_is_named_and_killed(root: Path, python: str) -> None:
    # it is told once that program runs, else it may still be the shell
    command = "sleep 1001 >/dev/null 2>&1 & until grep -qx sleep /proc/$!/comm; do :; done; echo $!"
    done = subprocess.run(
        [python, root / "scripts" / "reaper.py", "sh", "-c", command], capture_output=True, text=True, check=False
    )
    assert "still running at the end, and killed (1):\n  sleep 1001" in done.stdout
    assert not Path("/proc", done.stdout.split()[0]).exists()
