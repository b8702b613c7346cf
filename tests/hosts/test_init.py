"""``train`` as the container's first process (PID 1 of a namespace): it reaps, it is stopped, it leaves nothing."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

NAMESPACE = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child")


def works() -> bool:
    """Whether this machine can make a PID namespace."""
    if not shutil.which("unshare"):
        return False
    return subprocess.run([*NAMESPACE, "true"], capture_output=True, check=False).returncode == 0


pytestmark = [pytest.mark.netns, pytest.mark.skipif(not works(), reason="no PID namespaces here")]

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
    ran = train.run(*NAMESPACE)
    assert ran.returncode == code, ran.stderr
    assert ran.stdout == b"20 0 1\n", "orphans, those that nobody has reaped, and the program's parent"


SAVES = """
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
    train.program(SAVES)
    process = train.start(*NAMESPACE, MUSTER_LAUNCHER=launcher, MUSTER_SLOTS="2")
    train.ready(process, "ready-0", "ready-1")
    first = int(Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()[0])
    os.kill(first, signal.SIGTERM)
    process.communicate(timeout=500)
    assert process.returncode == 143
    assert train.left("checkpoint-0")
    assert train.left("checkpoint-1")
