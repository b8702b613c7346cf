"""What processes beside a job can do at its control socket: nothing, whoever they are and however many come."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from musterpoint.base.settings import OUTER, SOCKET_TOKEN
from musterpoint.core.supervise.loan import Lender

from .by_hand import Processes, leaving_none
from .conftest import Local

pytestmark = pytest.mark.skipif("linux" not in sys.platform, reason="reads /proc")

WAITS = "import time\nprint('waits', flush=True)\ntime.sleep(600)\n"


class Beside(Processes):
    """A job of one host in this network, beside which a test attacks its socket."""

    def job(self, program: str) -> subprocess.Popen[str]:
        """Returns when the program has said that it waits."""
        (self.folder / "program.py").write_text(program)
        words = ("-m", "musterpoint", "launch", "--launcher", "script", "program.py")
        process = self.popen(self.python, *words, environ={})
        assert process.stdout is not None
        while "waits" not in (line := process.stdout.readline()):
            assert line, f"it ended with {process.wait()} before its program waited"
        return process


beside = leaving_none(Beside)


def address(job: subprocess.Popen[str]) -> str:
    """Where the job listens: everybody in its network can see that, and who isn't its user gets no further."""
    [path] = Path(f"/tmp/musterpoint-{os.geteuid()}").glob(f"control-{job.pid}-*.socket")
    return str(path)


@pytest.mark.lane("suite")
def test_a_neighbour_learns_nothing_of_the_job(beside: Beside, tmp_path: Path) -> None:
    """A process of the same user in the same network, such as a sidecar of a pod, that knows the protocol."""
    job = beside.job(f"import os\nopen('token', 'w').write(os.environ[{SOCKET_TOKEN!r}])\n{WAITS}")
    for token in ("", "0" * 32 + "\n"):
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
            sock.settimeout(500)
            sock.connect(address(job))
            try:
                sock.sendall(f"{token}launch {os.getpid()}\n".encode())
                assert sock.recv(100) == b""
            except (ConnectionResetError, BrokenPipeError):
                pass
    lender = Lender.find({OUTER: address(job), SOCKET_TOKEN: (tmp_path / "token").read_text()})
    assert lender is not None and (loan := lender.borrow()) is not None, "with the token it is lent what there is"
    assert (loan.number, len(loan.hosts)) == (1, 1)
    lender.close()
    job.send_signal(signal.SIGTERM)
    job.communicate(timeout=500)
    assert job.returncode == 143


@pytest.mark.lane("suite")
def test_reports_that_are_none_are_told_once(beside: Beside, tmp_path: Path) -> None:
    """By a process that has the token: one line each would be a log without end."""
    job = beside.job(f"import os\nopen('token', 'w').write(os.environ[{SOCKET_TOKEN!r}])\n{WAITS}")
    token = (tmp_path / "token").read_text()
    for number in range(40):
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
            sock.settimeout(500)
            sock.connect(address(job))
            sock.sendall(f'{token}\nended {{"pid":1,"code":1,"warnings":[],"failure":{{"code":{number}}}}}\n'.encode())
            assert sock.recv(100) == b""
    job.send_signal(signal.SIGTERM)
    said, _ = job.communicate(timeout=500)
    assert job.returncode == 143
    assert said.count("warning") == 1 and "a failure lacks a key" in said, said


def test_the_token_is_in_nothing_that_we_print_or_write(local: Local) -> None:
    """The program may quote its whole environment."""
    program = local.program(
        f"import os\nopen({str(local.folder / 'token')!r}, 'w').write(os.environ['MUSTER_SOCKET_TOKEN'])\n"
        "raise RuntimeError(f'the environment is {os.environ[\"MUSTER_SOCKET_TOKEN\"]} {dict(os.environ)}')\n"
    )
    ran = local.run("--hosts", "1", "--launcher", "script", program)
    token = (local.folder / "token").read_text()
    assert len(token) == 64  # made from the job's secret
    assert ran.code == 1
    assert "the environment is ***" in ran.reason
    ours = [ran.stderr, *(line for line in ran.log("algo-1").splitlines() if line.startswith("musterpoint: "))]
    ours += [path.read_text() for path in local.output.rglob("*.json")] + [ran.left("algo-1", "failure")]
    assert [text for text in ours if token in text] == []
