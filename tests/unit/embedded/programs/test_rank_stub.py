"""The rank stub against a real control socket: registration, pipes, signals, statuses, its supervisor's end."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Sequence

import pytest

from musterpoint.core.launch.launch_plan import through_stub
from musterpoint.core.processes import process_tree
from musterpoint.core.processes.control_socket import Connection

from ...fixtures import closing_fixture
from .conftest import Listening

COMMAND = through_stub(sys.executable, [])


class Supervisor(Listening):
    """Gives a pipe to the one stub that comes, and keeps what it says."""

    said: list[str]  # type: ignore[assignment]

    def __init__(self) -> None:
        super().__init__()
        self.connection: Connection | None = None
        self.ended = False
        self.read, self.write = os.pipe()

    def on_connection(self, connection: Connection) -> None:
        self.connection = connection
        connection.route_to(self.on_line, self.on_end)

    def on_line(self, words: list[str], line: str) -> None:
        self.said.append(line)
        if words[0] == "rank" and self.connection is not None:
            self.connection.send("go", (self.write, self.write))

    def on_end(self) -> None:
        self.ended = True

    def wait_for(self, word: str) -> str:
        self.until(lambda: any(line.startswith(word) for line in self.said))
        return next(line for line in self.said if line.startswith(word))

    def start(
        self, *program: str, pass_fds: tuple[int, ...] = (), command: Sequence[str] = COMMAND, **environ: str
    ) -> subprocess.Popen[bytes]:
        environment = {
            **os.environ, "MUSTER_STUB": self.texts.path("rank_stub"), "MUSTER_SOCKET": self.control_socket.address,
            "MUSTER_SOCKET_TOKEN": self.control_socket.token,
            "RANK": "5", "LOCAL_RANK": "1", "WORLD_SIZE": "8", **environ,
        }  # fmt: skip
        return subprocess.Popen([*command, *program], env=environment, cwd="/", pass_fds=pass_fds)

    def release(self, stub: subprocess.Popen[bytes]) -> int:
        """Lets a stub end whose program has ended."""
        self.wait_for("ended")
        assert self.connection is not None
        self.connection.send("release")
        return stub.wait(500)

    def output(self) -> bytes:
        os.close(self.write)
        self.write = -1
        with open(self.read, "rb") as file:
            return file.read()


supervisor = closing_fixture(Supervisor)


def test_it_registers_runs_and_waits_for_its_release(supervisor: Supervisor, tmp_path: Path) -> None:
    program = "import os,sys; print(os.getcwd(), os.environ['PYTHONPATH'], 'MUSTER_STUB' in os.environ); sys.exit(7)"
    stub = supervisor.start(
        sys.executable, "-c", program, MUSTER_USER_CWD=str(tmp_path), MUSTER_USER_PYTHONPATH="/user/path"
    )
    assert supervisor.wait_for("rank") == f"rank 5 1 8 {stub.pid}"
    assert supervisor.wait_for("ended") == f"ended {7 << 8}"
    assert stub.poll() is None, "it holds its exit"
    assert supervisor.release(stub) == 7
    assert supervisor.output() == f"{tmp_path} /user/path False\n".encode()


@pytest.mark.parametrize("signo", [signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM])
def test_it_ends_as_its_program_did(supervisor: Supervisor, signo: signal.Signals) -> None:
    stub = supervisor.start(sys.executable, "-c", f"import os; os.kill(os.getpid(), {int(signo)})")
    assert supervisor.release(stub) == -signo


KILLED_EARLY = """
import os

wait = os.waitpid

def waitpid(*words):
    ended = wait(*words)
    if ended[0]:
        os.kill(os.getpid(), 9)
    return ended

os.waitpid = waitpid
exec(compile(open(os.environ["MUSTER_STUB"]).read(), "stub", "exec"))
"""


def test_a_launcher_that_kills_it_hides_no_status(supervisor: Supervisor) -> None:
    """mpirun does so after MPI_Abort: the stub may have reaped its program, and not come to say how it ended."""
    words = (sys.executable, "-c", KILLED_EARLY, "--", sys.executable, "-c", "raise SystemExit(7)")
    stub = supervisor.start(*words, command=())
    supervisor.until(lambda: supervisor.ended)
    assert stub.wait(500) == -signal.SIGKILL
    assert supervisor.said[-1] == f"ended {7 << 8}"


def test_it_swallows_and_reports_the_launchers_signals(supervisor: Supervisor) -> None:
    stub = supervisor.start(sys.executable, "-c", "import sys; sys.stdin.read()")
    supervisor.wait_for("started")
    stub.send_signal(signal.SIGTERM)
    assert supervisor.wait_for("signal") == f"signal {int(signal.SIGTERM)}"
    program = int(supervisor.wait_for("started").split()[1])
    os.kill(program, signal.SIGKILL)  # still there: the signal did not reach it
    assert supervisor.wait_for("ended") == f"ended {int(signal.SIGKILL)}"
    supervisor.release(stub)


INHERITS = """
import os, signal, sys
how, *words = sys.argv[1:]
if how == "blocked":
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
for signo in (signal.SIGTERM, signal.SIGCHLD, signal.SIGHUP) if how == "ignored" else ():
    signal.signal(signo, signal.SIG_IGN)
os.execv(words[0], words)
"""
"""Becomes a program as a launcher starts it whose own signals are blocked or ignored."""


@pytest.mark.parametrize(("how", "hangup"), [("blocked", 0), ("ignored", 1)])
def test_it_hears_what_its_launcher_did_not(supervisor: Supervisor, how: str, hangup: int) -> None:
    """Its program has no signal blocked, and ignores a hang-up only, as below nohup."""
    wait, go = os.pipe()
    program = f"import os; os.system('grep ^Sig /proc/self/status'); os.read({wait}, 1)"
    words = [sys.executable, "-c", program]
    stub = supervisor.start(*words, command=[sys.executable, "-c", INHERITS, how, *COMMAND], pass_fds=(wait,))
    supervisor.wait_for("started")
    stub.send_signal(signal.SIGTERM)
    assert supervisor.wait_for("signal") == f"signal {int(signal.SIGTERM)}"
    os.close(wait)
    os.close(go)
    assert supervisor.release(stub) == 0
    said = dict(line.split(b":\t") for line in supervisor.output().splitlines())
    assert (int(said[b"SigBlk"], 16), int(said[b"SigIgn"], 16) & 1 << signal.SIGHUP - 1) == (0, hangup)
    assert not int(said[b"SigIgn"], 16) & (1 << signal.SIGTERM - 1 | 1 << signal.SIGCHLD - 1)


def test_its_program_dies_with_the_supervisor(supervisor: Supervisor) -> None:
    stub = supervisor.start(sys.executable, "-c", "import time; time.sleep(60)")
    program = int(supervisor.wait_for("started").split()[1])
    supervisor.control_socket.close()
    assert stub.wait(500) == 70
    deadline = time.monotonic() + 500
    while (stat := process_tree.read_stat(program)) is not None and stat.state != "Z":
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_program_that_is_missing(supervisor: Supervisor) -> None:
    stub = supervisor.start("/nonexistent/program")
    assert supervisor.wait_for("ended") == f"ended {127 << 8}"
    assert supervisor.release(stub) == 127
    assert b"No such file" in supervisor.output()


def test_it_exits_when_it_is_not_wanted(supervisor: Supervisor) -> None:
    stub = supervisor.start(sys.executable, "-c", "pass")
    supervisor.connection = None
    supervisor.line = lambda words, line: None  # type: ignore[method-assign]
    supervisor.until(lambda: supervisor.connection is not None)
    assert supervisor.connection is not None
    supervisor.connection.close()
    assert stub.wait(500) == 70


def test_slots_are_numbered_and_named_as_the_plan_says(supervisor: Supervisor) -> None:
    """For DeepSpeed: its launcher said LOCAL_RANK 1 of the host whose first rank is 3."""
    program = "import os,sys; print(sys.argv[1:], os.environ['LOCAL_RANK'], 'MUSTER_FIRST_RANK' in os.environ)"
    stub = supervisor.start(
        sys.executable, "-c", program, "--lr", "1", MUSTER_LOCAL_RANK_AT="3--local_rank", MUSTER_FIRST_RANK="3"
    )
    assert supervisor.wait_for("rank") == f"rank 5 2 8 {stub.pid}"
    assert supervisor.release(stub) == 0
    assert supervisor.output() == b"['--local_rank=2', '--lr', '1'] 2 False\n"


PLACES = {
    "torchrun": ({"RANK": "5", "LOCAL_RANK": "1", "WORLD_SIZE": "8"}, "5 1 8"),
    "torchrun below an mpirun": (
        {"RANK": "5", "LOCAL_RANK": "1", "WORLD_SIZE": "8", "OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2"},
        "5 1 8",
    ),
    "Open MPI, of another world than planned": (
        {"OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_LOCAL_RANK": "1", "OMPI_COMM_WORLD_SIZE": "4"},
        "3 1 4",
    ),
    "Hydra": ({"PMI_RANK": "3", "MPI_LOCALRANKID": "1", "PMI_SIZE": "4", "WORLD_SIZE": "8"}, "3 1 4"),
    "PMIx alone": ({"PMIX_RANK": "3", "WORLD_SIZE": "8"}, "3 0 8"),
    "nobody": ({}, "0 0 1"),
}


@pytest.mark.parametrize("launcher", PLACES)
def test_every_launchers_words_for_a_ranks_place(supervisor: Supervisor, launcher: str) -> None:
    """They are registered, and the program gets RANK and LOCAL_RANK where its launcher sets none."""
    environ, place = PLACES[launcher]
    bare = {"RANK": "", "LOCAL_RANK": "", "WORLD_SIZE": "8" if environ else ""}
    stub = supervisor.start("/bin/sh", "-c", "echo $RANK $LOCAL_RANK", **{**bare, **environ})
    assert supervisor.wait_for("rank") == f"rank {place} {stub.pid}"
    supervisor.release(stub)
    assert supervisor.output().decode().split() == place.split()[:2]


@pytest.mark.parametrize(
    ("at", "flag", "words"),
    [(2, "--local_rank", "a b --local_rank=1 c"), (0, "--local-rank", "--local-rank=1 a b c"),
     (-9, "--local_rank", "a b c")],
)  # fmt: skip
def test_a_local_rank_goes_where_the_plan_says(supervisor: Supervisor, at: int, flag: str, words: str) -> None:
    program = ["/bin/sh", "-c", 'shift; echo "$@"', "sh", "-"]
    stub = supervisor.start(*program, "a", "b", "c", MUSTER_LOCAL_RANK_AT=f"{at + len(program)}{flag}")
    supervisor.release(stub)
    assert supervisor.output().decode().strip() == words


@pytest.mark.parametrize(("users", "shown"), [("/mine", "/mine"), ("", "unset")])
def test_the_launchers_private_folder_is_not_the_programs(supervisor: Supervisor, users: str, shown: str) -> None:
    stub = supervisor.start("/bin/sh", "-c", "echo ${TMPDIR-unset}", TMPDIR="/private", MUSTER_USER_TMPDIR=users)
    supervisor.release(stub)
    assert supervisor.output().decode().strip() == shown


def test_where_programs_and_libraries_are_found_is_the_hosts_own(supervisor: Supervisor) -> None:
    """mpirun's own folders come first in what it hands on."""
    environ = {"PATH": "/usr/bin:/mine:/bin", "LD_LIBRARY_PATH": "/usr/lib"}
    users = {"MUSTER_USER_PATH": "/mine:/bin:/usr/bin", "MUSTER_USER_LD_LIBRARY_PATH": ""}
    stub = supervisor.start("/bin/sh", "-c", "echo $PATH ${LD_LIBRARY_PATH-unset}", **environ, **users)
    supervisor.release(stub)
    assert supervisor.output().decode().strip() == "/mine:/bin:/usr/bin unset"


def test_nothing_of_ours_is_left_in_the_programs_environment(supervisor: Supervisor) -> None:
    ours = {
        "MUSTER_AGENT_STAYS": "1", "MUSTER_LOCAL_RANK_AT": "-1", "MUSTER_USER_CWD": "/", "MUSTER_USER_PYTHONPATH": "",
        "MUSTER_USER_TMPDIR": "", "MUSTER_USER_PATH": os.environ["PATH"], "MUSTER_USER_LD_LIBRARY_PATH": "",
    }  # fmt: skip
    stub = supervisor.start("/bin/sh", "-c", "env", **ours)
    supervisor.release(stub)
    names = {line.partition("=")[0] for line in supervisor.output().decode().splitlines()}
    for_launchers_below_it = {"MUSTER_SOCKET_TOKEN"}
    assert {name for name in names if name.startswith("MUSTER_")} - for_launchers_below_it <= {
        name for name in os.environ if name.startswith("MUSTER_")
    }


def test_the_process_managers_descriptor_outlives_the_program(supervisor: Supervisor) -> None:
    """Hydra's PMI_FD: the program has it, and the stub keeps it, or Hydra would take every rank's end for a crash."""
    here, there = socket.socketpair()
    there.set_inheritable(True)
    stub = supervisor.start(
        sys.executable, "-c", "import os; os.write(int(os.environ['PMI_FD']), b'finalized')",
        pass_fds=(there.fileno(),), PMI_FD=str(there.fileno()),
    )  # fmt: skip
    there.close()
    supervisor.wait_for("ended")
    here.settimeout(500)
    assert here.recv(16) == b"finalized"
    here.settimeout(0.2)
    with pytest.raises(TimeoutError):
        here.recv(16)
    supervisor.release(stub)
    here.settimeout(500)
    assert here.recv(16) == b"", "released, it ends"
    here.close()
