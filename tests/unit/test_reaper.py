"""What an interrupted run of the tests leaves: a word about what had failed, and nothing that still runs."""

from __future__ import annotations

import os
import signal
import socketserver
import subprocess
import textwrap
from pathlib import Path

import pytest

from gpus import ras

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


# as docs/userguide/source/troubleshooting/ras.rst of NCCL has it
STATUS = """Job summary
===========

  Nodes  Processes         GPUs  Processes     GPUs
(total)   per node  per process    (total)  (total)
      4          8            1         32       32

Communicators... (2.05s)
=============

Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors
    #  in group  per comm  per node  per comm  in group
    0         1         4       7-8        32        32   RUNNING  INCOMPLETE

Errors
======

INCOMPLETE
  Missing communicator data from 1 job process
  Process 3487984 on node 172.16.64.213 managing GPU 5
"""


def test_the_summary_has_the_table_and_what_is_wrong() -> None:
    lines = ras.summary(STATUS)
    assert lines[0] == "Communicators... (2.05s)"
    assert lines[3].split() == ["0", "1", "4", "7-8", "32", "32", "RUNNING", "INCOMPLETE"]
    assert lines[-1] == "  Process 3487984 on node 172.16.64.213 managing GPU 5"


def test_nobody_on_the_port(unused_port: int) -> None:
    assert ras.asked(("127.0.0.1", unused_port)).startswith(f"RAS can't be asked at 127.0.0.1:{unused_port}: ")


@pytest.fixture
def unused_port() -> int:
    with socketserver.TCPServer(("127.0.0.1", 0), socketserver.StreamRequestHandler) as server:
        return int(server.server_address[1])
