"""``muster local`` on a disk that the job fills, and with a reader who doesn't read: it ends, with the job's code."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from .conftest import Local, eventually

TALKS = """
import os, signal, sys, time
def save(signo, frame):
    open(os.path.join(os.environ["SM_MODEL_DIR"], "saved"), "w").close()
    os._exit(0)
signal.signal(signal.SIGTERM, save)
open(os.path.join(os.environ["SM_MODEL_DIR"], "ready"), "w").close()
for n in range(int(sys.argv[1])):
    print("x" * 1000)
print("the last line", flush=True)
sys.exit(int(sys.argv[2]))
"""


def unread(local: Local, *words: str, both: bool) -> tuple[subprocess.Popen[bytes], int]:
    """Starts a job whose stdout (and, with ``both``, stderr in the same pipe) nobody reads."""
    read, write = os.pipe()
    process = subprocess.Popen(
        local.command("--backend", "process", "--launcher", "script", local.program(TALKS), *words), env=local.environ,
        cwd=local.folder, stdin=subprocess.DEVNULL, stdout=write, stderr=write if both else subprocess.DEVNULL,
        start_new_session=True,
    )  # fmt: skip
    local.started.append(process)  # type: ignore[arg-type]
    os.close(write)
    return process, read


def left(local: Local, name: str) -> Path:
    return local.output / "hosts/algo-1/opt/ml/model" / name


@pytest.mark.parametrize("both", [False, True])
def test_a_stop_is_heard_though_nobody_reads(local: Local, both: bool) -> None:
    """The program waits for its reader when the stop comes, and saves all the same."""
    process, read = unread(local, "100000", "0", both=both)
    eventually(left(local, "ready").exists)
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=500) == 143
    os.close(read)
    assert left(local, "saved").exists()
    assert json.loads((local.output / "job.json").read_text())["TrainingJobStatus"] == "Stopped"
