"""Entry points of one host that elect one which leads: who may follow, and who is missed."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import uuid
from pathlib import Path
from typing import Callable, Iterator

import pytest

from musterpoint.base.settings import Settings
from musterpoint.core.job.platforms.azureml import read
from musterpoint.core.processes import tree
from musterpoint.core.processes.control_socket import peer_of
from musterpoint.core.started_per_rank import name_of

pytestmark = pytest.mark.skipif("linux" not in sys.platform, reason="an abstract socket is Linux's")


PROGRAM = """
import os, sys, time
print("ran", os.environ["RANK"], flush=True)
open(os.environ["RANK"], "w").close()
while sys.argv[1] != "0" and not os.path.exists("0"):
    time.sleep(0.01)
sys.exit(int(sys.argv[1]))
"""


class Host:
    """One host on which AzureML starts entry points; each job has a name that no other run of these tests has."""

    def __init__(self, python: str, environ: dict[str, str], folder: Path) -> None:
        self.python, self.folder = python, folder
        run = uuid.uuid4().hex  # entry points meet at a name of the whole machine, on which the tests may run twice
        self.environ = {**environ, "AZUREML_RUN_ID": run, "AZUREML_NODE_COUNT": "1", "HOSTNAME": "node-0"}
        (folder / "train.py").write_text(PROGRAM)

    def start(self, rank: int, local: int, world: int = 2, **more: str) -> subprocess.Popen[str]:
        environ = {**self.environ, "RANK": str(rank), "LOCAL_RANK": str(local), "WORLD_SIZE": str(world), **more}
        return subprocess.Popen(
            [self.python, "-m", "musterpoint", "launch", "train.py", more.get("CODE", "0")], env=environ,
            cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip


def ended(*processes: subprocess.Popen[str]) -> list[tuple[int, str]]:
    texts = [process.communicate(timeout=500)[0] for process in processes]
    return [(process.returncode, text) for process, text in zip(processes, texts, strict=True)]


@pytest.fixture
def host(python: str, environ: dict[str, str], tmp_path: Path) -> Host:
    return Host(python, environ, tmp_path)


def test_each_has_its_own_stdout_and_all_the_code(host: Host) -> None:
    one, other = ended(host.start(0, 0), host.start(1, 1, CODE="5"))
    assert (one[0], other[0]) == (5, 5), (one, other)
    assert ("ran 0" in one[1], "ran 1" in one[1], "ran 1" in other[1]) == (True, False, True), (one, other)
    assert (one[1] + other[1]).count("AzureML: a PyTorch job, started once per process") == 1, "one speaks for the host"


def test_the_missing_are_named(host: Host) -> None:
    ((code, text),) = ended(host.start(0, 0, 3, MUSTER_ROLLCALL_TIMEOUT="0.2"))
    assert code == 69
    assert "this host's entry points of local rank 1, 2 weren't here within 0.2 s: the platform starts 3" in text


@pytest.mark.parametrize(
    ("second", "why"), [((0, 0, 2), "two entry points of this host have the local rank 0"), ((1, 1, 3), "has")]
)
def test_one_that_does_not_fit_ends_all(host: Host, second: tuple[int, int, int], why: str) -> None:
    found = ended(host.start(0, 0, 2), host.start(*second))
    assert [code for code, _ in found] == [72, 72], found
    assert all(why in text for _, text in found)
    assert not any("ran" in text.split() for _, text in found)


@pytest.fixture
def taken(host: Host) -> Iterator[socket.socket]:
    """The host's socket as another entry point has bound it, which doesn't listen yet."""
    environ = {**host.environ, "RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "2"}
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(name_of(read(environ, Settings()), environ))
        yield sock


def eventually(check: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 500
    while not check():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def stopped(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGTERM)
    ((code, text),) = ended(process)
    assert code == 143, text
    assert "node-0 was told to stop (signal 15) while its code was being made ready" in text


def test_a_stop_ends_the_wait_for_one_that_does_not_listen(host: Host, taken: socket.socket) -> None:
    process = host.start(1, 1)
    eventually(lambda: int(tree.read_status(process.pid).get("SigCgt", "0"), 16) >> (signal.SIGTERM - 1) & 1 == 1)
    stopped(process)


def test_a_stop_reaches_one_that_leads_in_place_of_another(host: Host, taken: socket.socket) -> None:
    taken.listen()
    process = host.start(1, 1)
    leader, _ = taken.accept()
    name = taken.getsockname()
    assert b'"local_rank": 1' in leader.recv(4096)
    taken.close()
    leader.close()
    eventually(lambda: leads(name, process.pid))
    stopped(process)


def leads(name: bytes, pid: int) -> bool:
    with socket.socket(socket.AF_UNIX) as sock:
        return sock.connect_ex(name) == 0 and peer_of(sock)[0] == pid


def test_another_jobs_socket_has_another_name() -> None:
    def named(**environ: str) -> str:
        found = {"AZUREML_RUN_ID": "a", "RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "2", **environ}
        return name_of(read({"AZUREML_NODE_COUNT": "1", **found}, Settings()), found)

    assert named() == named(RANK="1", LOCAL_RANK="1")
    assert len({named(), named(AZUREML_RUN_ID="b"), named(HOSTNAME="c")}) == 3
    assert len(named(AZUREML_RUN_ID="x" * 300)) < 108
    assert str(os.geteuid()) in named()
