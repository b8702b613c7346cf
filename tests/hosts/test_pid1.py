"""Stops with a PID 1 that keeps SIGTERM to itself, such as a shell that doesn't exec, in a PID namespace."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

NAMESPACE = ("unshare", "--pid", "--net", "--fork", "--mount-proc", "--kill-child")


def works() -> bool:
    """Whether this machine can make a PID namespace."""
    if not shutil.which("unshare"):
        return False
    return subprocess.run([*NAMESPACE, "true"], capture_output=True, check=False).returncode == 0


pytestmark = [pytest.mark.netns, pytest.mark.skipif(not works(), reason="no PID namespaces here")]

NOT_EXEC = '"$@"; code=$?; grep TracerPid /proc/1/status; exit $code'
DRIVER = """#!/bin/bash
"$@"
code=$?
grep TracerPid /proc/1/status
exit $code
"""
THREADED = """
import subprocess, sys, threading, time
for _ in range(3):
    threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
def more():
    while True:
        thread = threading.Thread(target=time.sleep, args=(0.01,))
        thread.start()
        thread.join()
threading.Thread(target=more, daemon=True).start()
code = subprocess.call(sys.argv[1:])
print([line for line in open("/proc/1/status") if "TracerPid" in line][0], end="", flush=True)
sys.exit(code)
"""
FIRST: dict[str, tuple[str, ...]] = {
    "job control": ("bash", "-m", "-c", NOT_EXEC, "bash"),
    "sh": ("sh", "-c", NOT_EXEC, "sh"),
    "sm_train.sh": ("/bin/bash", "-c", 'chmod +x driver.sh && ./driver.sh "$@"', "bash"),
    "threads": (sys.executable, "-c", THREADED),
}
"""Programs as PID 1 that wait for what they start."""

SAVES = """
import os, pathlib, signal, sys, time
folder = pathlib.Path(os.environ["SM_MODEL_DIR"])
signal.signal(signal.SIGTERM, lambda *_: (time.sleep(0.3), (folder / "checkpoint").touch(), sys.exit(0)))
(folder / "ready").touch()
while not (folder / "go").exists():
    time.sleep(0.02)
sys.exit(7)
"""


class Inside:
    """A host whose PID 1 is another program than ``train``."""

    def __init__(self, train: Any, first: tuple[str, ...], **environ: str) -> None:
        self.train = train
        (train.base / "driver.sh").write_text(DRIVER)
        enter = ("env", "-C", str(train.base))
        self.process = train.start(*NAMESPACE, *enter, *first, **environ)
        self.stderr = ""

    @property
    def pid1(self) -> int:
        """As this machine counts."""
        return int(Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()[0])

    @property
    def tracer(self) -> int:
        return int(Path(f"/proc/{self.pid1}/status").read_text().partition("TracerPid:")[2].split()[0])

    def until(self, words: str) -> None:
        """Reads stderr up to the line with these words."""
        while words not in self.stderr:
            line = self.process.stderr.readline().decode()
            assert line, self.stderr
            self.stderr += line

    def end(self) -> str:
        """Its stdout."""
        stdout, stderr = self.process.communicate(timeout=500)
        self.stderr += stderr.decode()
        return str(stdout.decode())


@pytest.mark.lane("suite")
@pytest.mark.parametrize("first", FIRST)
def test_a_stop_reaches_the_program(train, first: str) -> None:  # type: ignore[no-untyped-def]
    train.program(SAVES)
    host = Inside(train, FIRST[first])
    host.until("it is watched, so that a stop reaches the job")
    train.ready(host.process, "ready")
    os.kill(host.pid1, signal.SIGTERM)
    assert host.end() == "TracerPid:\t0\n", "PID 1 goes on, and nobody traces it any more"
    assert (host.process.returncode, train.left("checkpoint")) == (143, True), host.stderr
    assert host.stderr.count("PID 1") == 1


ALONE = '"$@"; code=$?; until set -- /proc/[0-9]*; [ $# -eq 1 ]; do :; done; exit $code'


@pytest.mark.lane("suite")
def test_a_killed_supervisor_leaves_no_tracer(train) -> None:  # type: ignore[no-untyped-def]
    train.program(SAVES)
    host = Inside(train, ("bash", "-c", ALONE, "bash"))
    host.until("it is watched")
    train.ready(host.process, "ready")
    supervisor = Path(f"/proc/{host.tracer}/stat").read_text().rpartition(")")[2].split()[1]
    os.kill(int(supervisor), signal.SIGKILL)
    host.end()
    assert host.process.returncode == 137, host.stderr


@pytest.mark.parametrize(("watch", "words"), [("auto", "it is watched"), ("off", "a stop will kill the job")])
def test_the_plan_says_so(python: str, environ: dict[str, str], tmp_path: Path, watch: str, words: str) -> None:
    (tmp_path / "program.py").touch()
    plan = (python, "-m", "musterpoint", "plan", "--launcher", "script", "--pid1-watch", watch, "program.py")
    done = subprocess.run(
        [*NAMESPACE, *FIRST["sh"], *plan], env=environ, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert f"PID 1 of this container is sh, which keeps SIGTERM to itself: {words}" in " ".join(done.stdout.split())
    assert "TracerPid:\t0" in done.stdout
