"""Launches of ours in a rank's program at the control socket: what they get and tell, and the failure that one is."""

from __future__ import annotations

import json
import select
import socket
import subprocess
from typing import Any

import pytest

from musterpoint.base.failure import Failure
from musterpoint.core.processes.control_socket import Connection, ControlSocket, address_of
from musterpoint.core.supervise.launches import Launches, encode_end
from musterpoint.core.supervise.rank_table import Rank

from ...fixtures import closing_fixture
from ...turning import turn_until
from .test_ranks import RAISED, Slot

TOLD = Failure("algo-2", 3, "user", "user", "KeyError: 'hush'\nrank 1 (local rank 0) on algo-2, exit code 3", rank=1)
OWN = "rank 0 (local rank 0) on algo-1, exit code"


class Job(Slot):
    """A rank, in whose program the tests are launches; ``said`` is what the control socket warned of."""

    def __init__(self) -> None:
        super().__init__(mpi=False)
        self.lent: list[tuple[int, tuple[int, ...]]] = []
        self.refuses = False
        self.said: list[str] = []
        self.callers: list[socket.socket] = []
        context = self.context._replace(lend=self.lend, mask=lambda text: text.replace("hush", "***"))
        self.launches = Launches(context, self.ranks, self.ends.hidden)
        self.control_socket = ControlSocket(self.loop, self.connected, self.said.append)

    def lend(self, number: int, running: tuple[int, ...]) -> dict[str, Any]:
        self.lent.append((number, running))
        return {"refused": "one at a time"} if self.refuses else {"number": number}

    def connected(self, connection: Connection) -> None:
        connection.route_to(lambda _words, line: self.launches.take(connection, line) or connection.close())

    def call(self, line: str) -> socket.socket:
        sock = socket.socket(socket.AF_UNIX)
        self.callers.append(sock)
        sock.connect(address_of(self.control_socket.address))
        self.say(sock, f"{self.control_socket.token}\n{line}")
        return sock

    def say(self, sock: socket.socket, line: str) -> None:
        sock.sendall(line.encode() + b"\n")

    def answer(self, sock: socket.socket) -> str:
        """The next line, or nothing where the connection ends."""
        turn_until(self.loop, lambda: bool(select.select([sock], [], [], 0)[0]))
        return sock.recv(65536).decode().strip()

    def begins(self, pid: int = 0) -> socket.socket:
        """A launch of the rank's, or of the process ``pid``, which has what it is lent."""
        sock = self.call(f"launch {pid or self.program.pid}")
        assert json.loads(self.answer(sock))
        return sock

    def over(self, sock: socket.socket, failure: Failure | None = TOLD, pid: int = 0) -> None:
        self.say(sock, encode_end(pid or self.program.pid, failure))
        assert self.answer(sock) == "heard"
        sock.close()

    def close(self) -> None:
        for sock in self.callers:
            sock.close()
        self.control_socket.close()
        super().close()


job = closing_fixture(Job)

WRAPPED = b"subprocess.CalledProcessError: Command '['muster', 'launch', 't.py']' returned non-zero exit status 3.\n"
AFTERWARDS = {
    "nothing": (b"", True),
    "an echo": (b"training has ended with exit code 3\n", True),
    "a script's own word": (b"error: training failed\n", True),
    "how it was called": (RAISED.replace(b"ValueError: boom\n", WRAPPED), True),
    "a command's complaint": (b"mv: cannot stat 'model': No such file or directory\n", False),
    "a shell's": (b"run.sh: line 3: no-such-command: command not found\n", False),
    "an exception": (RAISED, False),
}


@pytest.mark.parametrize("what", AFTERWARDS)
def test_a_launchs_failure_is_its_ranks_unless_another_programs_error_follows(job: Job, what: str) -> None:
    after, told = AFTERWARDS[what]
    job.says(RAISED)
    job.over(job.begins())
    job.says(after)
    job.ends.ended(job.rank, 3)
    (failure,) = job.failures
    assert (failure.code, "KeyError: '***'" in failure.reason) == (3, told)
    assert (failure.host, failure.rank) == (("algo-2", 1) if told else ("algo-1", 0))


def one_after_the_other(job: Job) -> None:
    job.over(job.begins(), TOLD._replace(reason="the first"))
    job.over(job.begins(), TOLD._replace(reason="the last"))


def side_by_side(job: Job) -> None:
    first, second = job.begins(), job.begins()
    job.over(first, TOLD._replace(reason="the one"))
    job.over(second, TOLD._replace(code=5, reason="the other"))


def well_in_the_end(job: Job) -> None:
    job.over(job.begins())
    job.over(job.begins(), None)


def for_nothing(job: Job) -> None:
    """Before it knows its host."""
    nothing = TOLD._replace(reason="no such file", host="")
    assert job.answer(job.call(encode_end(job.program.pid, nothing))) == "heard"


def well_in_the_end_beside_another_ranks(job: Job) -> None:
    job.ranks.expect(2, 1)
    job.ranks.up[1] = other = Rank(1, 1)
    with subprocess.Popen(["sleep", "600"]) as program:
        job.ranks.set_pid(other, program.pid)
        job.begins(program.pid)
        well_in_the_end(job)
        program.kill()


def of_a_stranger(job: Job) -> None:
    job.over(job.begins(1), pid=1)


@pytest.mark.parametrize(
    ("launches", "status", "reason"),
    [
        (one_after_the_other, 3, "the last"),
        (one_after_the_other, 4, f"{OWN} 4"),
        (side_by_side, 3, "the one"),
        (side_by_side, 5, "the other"),
        (well_in_the_end, 3, f"{OWN} 3"),
        (well_in_the_end_beside_another_ranks, 3, f"{OWN} 3"),
        (for_nothing, 3, "no such file"),
        (of_a_stranger, 3, f"{OWN} 3"),
    ],
)
def test_which_launchs_failure_it_is(job: Job, launches: Any, status: int, reason: str) -> None:
    launches(job)
    job.ends.ended(job.rank, status)
    assert job.end == (status, "user", reason)


def test_launches_are_counted_and_those_that_run_are_known(job: Job) -> None:
    """One that gets nothing isn't counted, so that the numbers are the same on all hosts."""
    first, pid = job.begins(), job.program.pid
    job.refuses = True
    job.over(job.begins())
    assert job.rank.launches.running
    job.refuses = False
    job.begins().close()
    first.close()
    turn_until(job.loop, lambda: not job.rank.launches.running)
    assert job.lent == [(1, ()), (2, (pid,)), (2, (pid,))]


def test_events_and_warnings_of_a_launch_are_the_jobs_too(job: Job) -> None:
    launch = job.begins()
    job.say(launch, 'event ["rank-ended", {"rank": 1, "host": "algo-2"}]')
    job.say(launch, encode_end(job.program.pid, None, ["half\0 of it", "x" * 3000, *["more"] * 50]))
    assert job.answer(launch) == "heard"
    assert job.records == ["launch-began", "rank-ended", "launch-ended"]
    warnings = job.ends.hidden.told_by_launches
    assert (len(warnings), len(warnings[1]) < 2001) == (16, True)
    assert "\0" not in warnings[0]


@pytest.mark.parametrize("line", ["launch", "launch ", "launch x", "launch -1", "launch 12345678901", "ended", "GET /"])
def test_what_is_no_launch_is_sent_away(job: Job, line: str) -> None:
    """And so is each where the job lends nothing."""
    assert job.answer(job.call(line)) == ""
    assert (job.lent, job.said) == ([], [])
    job.launches = Launches(job.context, job.ranks, job.ends.hidden)
    assert job.answer(job.call("launch 7")) == ""


MALFORMED = [
    "", "hello", "launch 7", "event", "event 1", "event []", 'event ["a", 1]', 'event ["a", {}, 1]',
    'event ["a", {"b": NaN}]', "event " + "[" * 100_000, "ended", "ended {}", "ended []", 'ended {"warnings": []}',
    'ended {"pid": 1, "warnings": 1}', 'ended {"pid": "x", "warnings": []}',
    'ended {"pid": 1, "failure": {"host": "a"}, "warnings": []}', f"ended {'9' * 5000}",
]  # fmt: skip


@pytest.mark.parametrize("line", MALFORMED, ids=range(len(MALFORMED)))
def test_what_no_launch_says_ends_its_own_connection(job: Job, line: str) -> None:
    """The next one is heard."""
    launch = job.begins()
    job.say(launch, line)
    assert job.answer(launch) == ""
    assert len(job.said) == 1
    assert not job.rank.launches.running
    job.over(job.begins())
    job.ends.ended(job.rank, 3)
    assert job.end[2].startswith("KeyError")
