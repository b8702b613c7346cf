"""The launch agent against a real control socket: what it asks, when it ends and with which status, what it says."""

from __future__ import annotations

import os
import pwd
import subprocess
import sys

import pytest

from musterpoint.core.processes.control_socket import Connection

from ...fixtures import closing_fixture
from .conftest import Listening


class Supervisor(Listening):
    """Keeps the agents' requests."""

    def __init__(self) -> None:
        super().__init__()
        self.before: list[str] = []
        self.asked: list[list[str]] = []
        self.connections: list[Connection] = []

    def on_connection(self, connection: Connection) -> None:
        self.connections.append(connection)
        connection.route_to(lambda words, line: self.asked.append(words))

    def start(self, *words: str | bytes, **environ: str) -> subprocess.Popen[bytes]:
        environment = {
            "PATH": os.environ["PATH"], "MUSTER_SOCKET": self.control_socket.address,
            "MUSTER_SOCKET_TOKEN": self.control_socket.token,
            **environ,
        }  # fmt: skip
        command = [*self.before, self.texts.path("launch_agent"), *words]
        return subprocess.Popen(command, env=environment, stderr=subprocess.PIPE)

    def request(self) -> tuple[str, list[str]]:
        """Host and command of the agent that asked last."""
        self.until(lambda: bool(self.asked))
        start, *words = self.asked.pop()
        assert start == "start"
        host, *command = (bytes.fromhex(word.strip("-")).decode() for word in words)
        return host, command


supervisor = closing_fixture(Supervisor)

BLOCKS = """
import os, signal, sys
signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
os.execv(sys.argv[1], sys.argv[1:])
"""


def end(agent: subprocess.Popen[bytes]) -> tuple[int, str]:
    _, stderr = agent.communicate(timeout=500)
    return agent.returncode, stderr.decode()


def test_it_hands_over_every_byte_and_ends_when_the_daemon_runs(supervisor: Supervisor) -> None:
    words = ["10.77.1.2", " orted", "-mca", '"a b"', '"$(id)"', "", "ünï", "line\nbreak"]
    agent = supervisor.start(*words)
    assert supervisor.request() == (words[0], words[1:])
    assert agent.poll() is None
    supervisor.connections[0].send("started")
    assert end(agent) == (0, "")


def test_hydras_agent_stays_until_the_daemon_ends(supervisor: Supervisor) -> None:
    agent = supervisor.start("algo-2", "hydra_pmi_proxy", MUSTER_AGENT_STAYS="1")
    assert supervisor.request() == ("algo-2", ["hydra_pmi_proxy"])
    supervisor.connections[0].send("started")
    with pytest.raises(subprocess.TimeoutExpired):
        agent.wait(0.3)
    supervisor.connections[0].send("ended 0 ")
    assert end(agent) == (0, "")


@pytest.mark.parametrize(("status", "code"), [(7, 7), (-9, 137), (127, 127)])
def test_it_says_what_the_daemon_said_and_ends_as_it_did(supervisor: Supervisor, status: int, code: int) -> None:
    agent = supervisor.start("algo-2", "orted")
    supervisor.request()
    supervisor.connections[0].send(f"ended {status} {b'no such file'.hex()}")
    assert end(agent) == (code, "no such file")


ME = pwd.getpwuid(os.geteuid()).pw_name
OPTIONS = {
    "Hydra's": ["-x", "algo-2"],
    "Intel MPI's": ["-q", "-x", "algo-2"],
    "of a connection": ["-p", "2222", "-o", "X=Y", "-oA=B", "-qp", "22", "algo-2"],
    "our own user": ["-l", ME, f"{ME}@algo-2"],
    "our own user, attached": [f"-l{ME}", "algo-2"],
    "none any more": ["-x", "--", "algo-2"],
}


@pytest.mark.parametrize("which", OPTIONS)
def test_options_of_a_remote_shell_are_dropped(supervisor: Supervisor, which: str) -> None:
    agent = supervisor.start(*OPTIONS[which], "orted", "-x")
    assert supervisor.request() == ("algo-2", ["orted", "-x"])
    supervisor.connections[0].send("started")
    assert end(agent) == (0, "")


@pytest.mark.parametrize("words", [["-l", "nobody", "algo-2"], ["-lno-such-user", "algo-2"], ["nobody@algo-2"]])
def test_another_user_is_refused_by_name(supervisor: Supervisor, words: list[str]) -> None:
    code, stderr = end(supervisor.start(*words, "orted"))
    assert code == 255
    assert "nobody" in stderr or "no-such-user" in stderr
    assert "all of this job runs as one user" in stderr
    assert supervisor.asked == []


@pytest.mark.parametrize("words", [[], ["algo-2"], ["-x", "algo-2"], ["-p", "22"]])
def test_too_few_words(supervisor: Supervisor, words: list[str]) -> None:
    code, stderr = end(supervisor.start(*words))
    assert (code, "expected [options] HOST COMMAND" in stderr) == (255, True)


def test_no_supervisor(supervisor: Supervisor) -> None:
    code, stderr = end(supervisor.start("algo-2", "orted", MUSTER_SOCKET="@nobody-listens"))
    assert code == 255
    assert "can't reach the supervisor that started mpirun (MUSTER_SOCKET='@nobody-listens'): " in stderr


def test_the_supervisor_goes_away(supervisor: Supervisor) -> None:
    agent = supervisor.start("algo-2", "orted")
    supervisor.request()
    supervisor.connections[0].close()
    code, stderr = end(agent)
    assert (code, "went away while algo-2 was to start its daemon" in stderr) == (255, True)


def test_two_hundred_at_once(supervisor: Supervisor) -> None:
    agents = [supervisor.start(f"host-{number}", "orted") for number in range(200)]
    supervisor.until(lambda: len(supervisor.asked) == 200)
    for connection in supervisor.connections:
        connection.send("started")
    assert {end(agent) for agent in agents} == {(0, "")}


def test_its_launcher_may_end_it_whatever_that_had_blocked(supervisor: Supervisor) -> None:
    supervisor.before = [sys.executable, "-c", BLOCKS]
    agent = supervisor.start("algo-2", "orted", MUSTER_AGENT_STAYS="1")
    assert supervisor.request() == ("algo-2", ["orted"])
    agent.terminate()
    assert end(agent) == (-15, "")
