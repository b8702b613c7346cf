"""The launch agent against a real control socket: what it asks, when it ends and with which status, what it says."""

from __future__ import annotations

import os
import pwd
import subprocess
from typing import Callable, Iterator

import pytest

from musterpoint.loop import Loop
from musterpoint.processes.control_socket import Connection, ControlSocket
from musterpoint.programs.registry import Texts


class Office:
    """The supervisor's side: keeps what agents ask."""

    def __init__(self) -> None:
        self.loop = Loop()
        self.control_socket = ControlSocket(self.loop, self.greet)
        self.texts = Texts()
        self.asked: list[list[str]] = []
        self.connections: list[Connection] = []

    def greet(self, connection: Connection) -> None:
        self.connections.append(connection)
        connection.route_to(lambda words, line: self.asked.append(words))

    def start(self, *words: str | bytes, **environ: str) -> subprocess.Popen[bytes]:
        environment = {
            "PATH": os.environ["PATH"], "MUSTER_SOCKET": self.control_socket.address,
            "MUSTER_SOCKET_TOKEN": self.control_socket.token,
            **environ,
        }  # fmt: skip
        return subprocess.Popen([self.texts.path("launch_agent"), *words], env=environment, stderr=subprocess.PIPE)

    def until(self, done: Callable[[], bool]) -> None:
        deadline = self.loop.clock() + 60
        while not done():
            assert self.loop.clock() < deadline, self.asked
            self.loop.turn(0.5)

    def hears(self) -> tuple[str, str, list[str]]:
        """Session, host and command of the agent that asked last."""
        self.until(lambda: bool(self.asked))
        start, session, *words = self.asked.pop()
        assert start == "start"
        host, *command = (bytes.fromhex(word.strip("-")).decode() for word in words)
        return session, host, command

    def close(self) -> None:
        self.control_socket.close()
        self.texts.close()
        self.loop.close()


@pytest.fixture
def office() -> Iterator[Office]:
    office = Office()
    yield office
    office.close()


def end(agent: subprocess.Popen[bytes]) -> tuple[int, str]:
    _, said = agent.communicate(timeout=60)
    return agent.returncode, said.decode()


def test_it_hands_over_every_byte_and_ends_when_the_daemon_runs(office: Office) -> None:
    words = ["10.77.1.2", " orted", "-mca", '"a b"', '"$(id)"', "", "ünï", "line\nbreak"]
    agent = office.start(*words, MUSTER_SESSION_NUMBER="3")
    assert office.hears() == ("3", words[0], words[1:])
    assert agent.poll() is None
    office.connections[0].send("started")
    assert end(agent) == (0, "")


def test_hydras_agent_stays_until_the_daemon_ends(office: Office) -> None:
    agent = office.start("algo-2", "hydra_pmi_proxy", MUSTER_AGENT_STAYS="1")
    assert office.hears() == ("0", "algo-2", ["hydra_pmi_proxy"])
    office.connections[0].send("started")
    with pytest.raises(subprocess.TimeoutExpired):
        agent.wait(0.3)
    office.connections[0].send("ended 0 ")
    assert end(agent) == (0, "")


@pytest.mark.parametrize(("status", "code"), [(7, 7), (-9, 137), (127, 127)])
def test_it_says_what_the_daemon_said_and_ends_as_it_did(office: Office, status: int, code: int) -> None:
    agent = office.start("algo-2", "orted")
    office.hears()
    office.connections[0].send(f"ended {status} {b'no such file'.hex()}")
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
def test_options_of_a_remote_shell_are_dropped(office: Office, which: str) -> None:
    agent = office.start(*OPTIONS[which], "orted", "-x")
    assert office.hears() == ("0", "algo-2", ["orted", "-x"])
    office.connections[0].send("started")
    assert end(agent) == (0, "")


@pytest.mark.parametrize("words", [["-l", "nobody", "algo-2"], ["-lno-such-user", "algo-2"], ["nobody@algo-2"]])
def test_another_user_is_refused_by_name(office: Office, words: list[str]) -> None:
    code, said = end(office.start(*words, "orted"))
    assert code == 255
    assert "nobody" in said or "no-such-user" in said
    assert "all of this job runs as one user" in said
    assert office.asked == []


@pytest.mark.parametrize("words", [[], ["algo-2"], ["-x", "algo-2"], ["-p", "22"]])
def test_too_few_words(office: Office, words: list[str]) -> None:
    code, said = end(office.start(*words))
    assert (code, "expected [options] HOST COMMAND" in said) == (255, True)


def test_no_supervisor(office: Office) -> None:
    code, said = end(office.start("algo-2", "orted", MUSTER_SOCKET="@nobody-listens"))
    assert code == 255
    assert "can't reach the supervisor that started mpirun (MUSTER_SOCKET='@nobody-listens'): " in said


def test_the_supervisor_goes_away(office: Office) -> None:
    agent = office.start("algo-2", "orted")
    office.hears()
    office.connections[0].close()
    code, said = end(agent)
    assert (code, "went away while algo-2 was to start its daemon" in said) == (255, True)


def test_two_hundred_at_once(office: Office) -> None:
    agents = [office.start(f"host-{number}", "orted") for number in range(200)]
    office.until(lambda: len(office.asked) == 200)
    for connection in office.connections:
        connection.send("started")
    assert {end(agent) for agent in agents} == {(0, "")}
