"""Entry points of one host that elect one which leads: who may follow, and who is missed."""

from __future__ import annotations

import fcntl
import os
import queue
import signal
import socket
import subprocess
import sys
import threading
import time
import uuid
from pathlib import Path
from typing import Callable, Iterator

import pytest

from musterpoint.base.errors import LauncherError
from musterpoint.base.loop import Loop
from musterpoint.base.settings import Settings
from musterpoint.core.job.platforms.azureml import read_job
from musterpoint.core.processes import process_tree
from musterpoint.core.processes.private_folder import FOLDERS, peer_of
from musterpoint.core.started_per_rank.election import MeetingFiles, elect, leave
from musterpoint.core.started_per_rank.meeting import name_of

from ....ports import free_port

pytestmark = pytest.mark.skipif("linux" not in sys.platform, reason="the locks of directories are Linux's")


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
        run = uuid.uuid4().hex  # entry points meet at a place of the whole machine, on which the tests may run twice
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
def taken(host: Host) -> Iterator[int]:
    """The lock of the directory where they meet, as another entry point holds it that was stopped meanwhile."""
    folder = Path(FOLDERS[0], f"musterpoint-{os.geteuid()}")
    folder.mkdir(0o700, exist_ok=True)
    fd = os.open(folder, os.O_RDONLY)
    fcntl.flock(fd, fcntl.LOCK_EX)
    yield fd
    os.close(fd)


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


def test_a_stop_ends_the_wait_for_one_that_stands_still(host: Host, taken: int) -> None:
    process = host.start(1, 1)
    eventually(
        lambda: int(process_tree.read_status(process.pid).get("SigCgt", "0"), 16) >> (signal.SIGTERM - 1) & 1 == 1
    )
    stopped(process)


def test_a_stop_reaches_one_that_leads_in_place_of_another(host: Host) -> None:
    environ = {**host.environ, "RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "3"}
    met = elect(Loop(), name_of(read_job(environ, Settings()), environ))
    process = host.start(1, 1, 3)
    follower, greeting = accepted(met.sock)
    assert b'"local_rank": 1' in greeting
    met.sock.close()
    follower.close()
    eventually(lambda: leads(met.place.socket, process.pid))
    stopped(process)


def accepted(listener: socket.socket) -> tuple[socket.socket, bytes]:
    """An entry point that follows, and what it says; who only looks whether somebody listens here goes at once."""
    while True:
        follower, _ = listener.accept()
        try:
            follower.sendall(b'{"nonce": "0123"}\n')
            if greeting := follower.recv(4096):
                return follower, greeting
        except OSError:
            pass
        follower.close()


def leads(path: str, pid: int) -> bool:
    with socket.socket(socket.AF_UNIX) as sock:
        return sock.connect_ex(path) == 0 and peer_of(sock)[0] == pid


class Nodes:
    """Two nodes of one job on this machine, with two entry points each; ``lines`` are of the first one's."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._more = {"AZUREML_NODE_COUNT": "2", "MUSTER_ROLLCALL_LEADER": f"127.0.0.1:{free_port()}"}
        self._lines: queue.Queue[tuple[int, str]] = queue.Queue()
        self.texts: dict[int, list[str]] = {0: [], 1: []}
        self.first = [self.start(0, local) for local in range(2)]
        self._readers = [threading.Thread(target=self._read, args=(local,)) for local in range(2)]
        for reader in self._readers:
            reader.start()

    def start(self, node: int, local: int) -> subprocess.Popen[str]:
        more = {**self._more, "NODE_RANK": str(node), "HOSTNAME": f"node-{node}"}
        return self._host.start(2 * node + local, local, 4, **more)

    def _read(self, local: int) -> None:
        stdout = self.first[local].stdout
        assert stdout is not None
        for line in stdout:
            self.texts[local].append(line)
            self._lines.put((local, line))

    def wait_for(self, text: str) -> int:
        """The local rank of the entry point that says ``text``."""
        while True:
            local, line = self._lines.get(timeout=500)
            if text in line:
                return local

    def codes(self) -> list[int]:
        codes = [process.wait(timeout=500) for process in self.first]
        for reader, process in zip(self._readers, self.first, strict=True):
            reader.join()
            assert process.stdout is not None
            process.stdout.close()
        return codes


@pytest.mark.parametrize("victim", ["follows", "leads"])
def test_one_that_is_killed_while_the_other_node_is_awaited_ends_the_job(host: Host, victim: str) -> None:
    nodes = Nodes(host)
    leader = nodes.wait_for("1 of 2 hosts here")  # all of this host's are
    killed = leader if victim == "leads" else 1 - leader
    nodes.first[killed].kill()
    found = ended(nodes.start(1, 0), nodes.start(1, 1))
    codes = nodes.codes()
    texts = "".join(nodes.texts[1 - killed])
    assert codes[1 - killed] == 72, (codes, texts)
    assert [code for code, _ in found] == [72, 72], (found, texts)
    assert f"local rank {killed}" in texts
    assert "ended before" in texts or "has ended" in texts


def test_a_stranger_without_the_token_decides_nothing(host: Host) -> None:
    """Nor one that is in the directory: who knows no token is sent away, and the job runs as without it."""
    first = host.start(0, 0, 2)
    environ = {**host.environ, "RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "2"}
    path = Path(FOLDERS[0], f"musterpoint-{os.geteuid()}", name_of(read_job(environ, Settings()), environ) + ".socket")
    eventually(lambda: leads(str(path), first.pid))
    with socket.socket(socket.AF_UNIX) as stranger:
        stranger.connect(str(path))
        stranger.sendall(b'{"rank": 1, "local_rank": 1, "world_size": 7, "nonce": "a", "proof": "b", "lost": [1]}\n')
        stranger.sendall(b'{"signal": 15}\n')
        answer = stranger.makefile("rb")
        assert b'"nonce"' in answer.readline()
        assert answer.readline() == b""
        one, other = ended(first, host.start(1, 1, 2))
    assert (one[0], other[0]) == (0, 0), (one, other)
    assert not path.exists()


def test_with_a_secret_another_one_is_no_entry_point_of_the_job(host: Host) -> None:
    """The socket's directory is not all that counts: what leads has to know the token before anything is started."""
    environ = {**host.environ, "RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "2"}
    met = elect(Loop(), name_of(read_job(environ, Settings()), environ), "another secret of 32 characters.")
    process = host.start(1, 1, 2, MUSTER_SECRET="the secret of this job, a long one")
    follower, greeting = accepted(met.sock)
    assert b'"proof"' in greeting
    follower.sendall(b'{"start": {"argv": ["/usr/bin/touch", "stolen"], "set": {}, "unset": []}, "key": "00"}\n')
    ((code, text),) = ended(process)
    assert code == 72, text
    assert "doesn't know their token" in text
    assert not (host.folder / "stolen").exists()
    leave(met.place)
    for sock in (follower, met.sock):
        sock.close()


def test_what_was_left_by_a_killed_one_is_removed(tmp_path: Path) -> None:
    folders = (str(tmp_path),)
    gone = elect(Loop(), "gone", folders=folders)
    gone.sock.close()  # as SIGKILL does
    met = elect(Loop(), "next", folders=folders)
    assert sorted(os.listdir(met.place.folder)) == ["next.socket", "next.token"]
    leave(met.place)
    met.sock.close()
    assert not os.listdir(tmp_path)


def test_a_directory_that_others_can_enter_is_not_used(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    for folder in (one, other):
        folder.mkdir()
    (one / f"musterpoint-{os.geteuid()}").mkdir(0o755)
    with pytest.raises(LauncherError, match="can enter"):
        elect(Loop(), "name", folders=(str(one),))
    met = elect(Loop(), "name", folders=(str(one), str(other)))
    assert met.place.folder.startswith(str(other))
    met.sock.close()


def test_one_of_many_leads(tmp_path: Path) -> None:
    """Whoever comes when: one listens, and the others are connected to it."""
    met = [elect(Loop(), "name", folders=(str(tmp_path),)) for _ in range(8)]
    assert [each.leads for each in met] == [True] + [False] * 7
    assert len({each.token for each in met}) == 1
    for each in met:
        each.sock.close()


def test_another_jobs_socket_has_another_name() -> None:
    def named(**environ: str) -> str:
        found = {"AZUREML_RUN_ID": "a", "RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "2", **environ}
        return name_of(read_job({"AZUREML_NODE_COUNT": "1", **found}, Settings()), found)

    assert named() == named(RANK="1", LOCAL_RANK="1")
    assert len({named(), named(AZUREML_RUN_ID="b"), named(HOSTNAME="c"), named(AZUREML_RUN_ID="x" * 300 + "b")}) == 4
    assert len(Path(FOLDERS[-1], f"musterpoint-{os.geteuid()}", named(AZUREML_RUN_ID="/" * 300)).parts) == 5
    assert (
        len(os.fsencode(MeetingFiles("/dev/shm/musterpoint-4294967294", named(AZUREML_RUN_ID="é" * 300)).socket)) < 108
    )
