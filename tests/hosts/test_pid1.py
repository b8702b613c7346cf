"""``train`` as PID 1 of a namespace, and stops with a PID 1 that keeps SIGTERM, such as a shell that doesn't exec."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from musterpoint.embedded.programs import pid1_tracer

OF_ITS_OWN = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child")
NAMESPACE = (*OF_ITS_OWN, "--net")


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


def test_a_stop_during_the_roll_call(train) -> None:  # type: ignore[no-untyped-def]
    train.program(SAVES)
    hosts = {"current_host": "algo-1", "hosts": ["algo-1", "algo-2"]}
    (train.base / "input/config/resourceconfig.json").write_text(json.dumps(hosts))
    (train.base / "hosts").write_text("127.0.0.1 algo-1\n")
    host = Inside(train, FIRST["job control"], MUSTER_HOSTS_FILE=str(train.base / "hosts"))
    host.until("it is watched")
    os.kill(host.pid1, signal.SIGTERM)
    host.end()
    assert host.process.returncode == 143, host.stderr
    assert "algo-1 was told to stop (signal 15)" in host.stderr
    assert not train.left("ready")


@pytest.mark.parametrize("why", ["off", "traced"])
def test_where_it_is_not_watched_one_line_says_so(train, why: str) -> None:  # type: ignore[no-untyped-def]
    train.program(SAVES)
    if why == "off":
        host = Inside(train, FIRST["job control"], MUSTER_PID1_WATCH="off")
        host.until("a stop will kill the job without a checkpoint; let its script end with exec")
    else:
        waits = 'coproc "$0" -I -S "$TRACER" 1; read line <&${COPROC[0]}; ' + '"$@"; code=$?; exit $code'
        host = Inside(train, ("bash", "-c", waits, sys.executable), TRACER=pid1_tracer.__file__)
        host.until("traces it already): a stop will kill the job")
    train.ready(host.process, "ready")
    os.kill(host.pid1, signal.SIGTERM)
    (train.base / "model" / "go").touch()
    host.end()
    assert (host.process.returncode, train.left("checkpoint")) == (7, False), host.stderr
    assert host.stderr.count("PID 1") == 1


def test_the_tracers_death_changes_nothing(train) -> None:  # type: ignore[no-untyped-def]
    train.program(SAVES)
    host = Inside(train, FIRST["job control"])
    host.until("it is watched")
    train.ready(host.process, "ready")
    os.kill(host.tracer, signal.SIGKILL)
    host.until("it can't be watched (what watched it has ended with -9)")
    assert host.tracer == 0
    (train.base / "model" / "go").touch()
    assert host.end() == "TracerPid:\t0\n"
    assert host.process.returncode == 7


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


ORPHANS = """
import os, signal, sys, time
read, write = os.pipe()
for _ in range(20):
    child = os.fork()
    if child == 0:
        if os.fork() == 0:
            os.write(write, b"%d\\n" % os.getpid())
            time.sleep(0.05)
            os._exit(3)
        os._exit(0)
    os.waitpid(child, 0)
os.close(write)
orphans = open(read).read().split()  # at its end every one has closed its own, and may still have to become a zombie

def left():
    return sum(os.path.exists(f"/proc/{pid}") for pid in orphans)

until = time.monotonic() + 300
while left() and time.monotonic() < until:
    time.sleep(0.05)
print(len(orphans), left(), os.getppid(), flush=True)
if HOW == "stays":
    if os.fork() == 0:
        os.setsid()
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        time.sleep(60)
elif HOW < 0:
    os.kill(os.getpid(), -HOW)
else:
    sys.exit(HOW)
"""


@pytest.mark.lane("suite")
@pytest.mark.parametrize(("how", "code"), [(7, 7), (-9, 137), (-11, 139), ("stays", 0)])
def test_it_reaps_orphans_and_ends_with_the_programs_code(train, how: object, code: int) -> None:  # type: ignore[no-untyped-def]
    train.program(f"HOW = {how!r}\n{ORPHANS}")
    ran = train.run(*OF_ITS_OWN)
    assert ran.returncode == code, ran.stderr
    assert ran.stdout == b"20 0 1\n", "orphans, those that nobody has reaped, and the program's parent"


SAVE_ALL = """
import os, pathlib, signal, sys, time
folder, rank = pathlib.Path(os.environ["SM_MODEL_DIR"]), os.environ["RANK"]
signal.signal(signal.SIGTERM, lambda *_: (time.sleep(0.3), (folder / f"checkpoint-{rank}").touch(), sys.exit(0)))
(folder / f"ready-{rank}").touch()
while True:
    time.sleep(0.05)
"""


@pytest.mark.lane("suite")
@pytest.mark.torch
@pytest.mark.parametrize("launcher", ["ranks", "torchrun"])
def test_it_is_stopped(train, launcher: str) -> None:  # type: ignore[no-untyped-def]
    train.program(SAVE_ALL)
    process = train.start(*OF_ITS_OWN, MUSTER_LAUNCHER=launcher, MUSTER_SLOTS="2")
    train.ready(process, "ready-0", "ready-1")
    first = int(Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()[0])
    os.kill(first, signal.SIGTERM)
    process.communicate(timeout=500)
    assert process.returncode == 143
    assert train.left("checkpoint-0")
    assert train.left("checkpoint-1")
