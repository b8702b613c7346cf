"""A start without ssh, both ends: agents at the leader's control socket, daemons (scripts) on every host."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any

import pytest

from musterpoint.base.loop import Loop
from musterpoint.core.channel.lone import LoneChannel
from musterpoint.core.channel.peers import StartAsked, Started, StartEnded
from musterpoint.core.channel.topic import Topic
from musterpoint.core.channel.topics import start_requests
from musterpoint.core.launch.launch_plan import LaunchPlan
from musterpoint.core.processes.control_socket import Connection
from musterpoint.core.processes.received_signals import Signals
from musterpoint.core.rollcall.roster import Roster, Seat
from musterpoint.core.supervise.events import ServiceOrLauncherEnded, ServiceOrLauncherStarted
from musterpoint.core.supervise.host_processes import HostProcesses
from musterpoint.core.supervise.mpi_daemons import MpiDaemons, find_daemon

from ...fixtures import closing_fixture
from ...turning import turn_until
from .bench import WithProcesses, context_for

PLAN = LaunchPlan("mpi", "algo-1", (), (), 0, 4, 0, "/", daemons=("orted",))
SEATS = (Seat("algo-1", "10.77.1.1", 1), Seat("algo-2", "10.77.1.2", 1), Seat("worker.x.example", "fd00::3", 1))
ROSTER = Roster("job", "session", SEATS, "10.77.1.1", 7777, "algo-1")


class FakePeers(LoneChannel):
    """Keeps what is said to the other hosts."""

    def __init__(self, loop: Loop) -> None:
        super().__init__(loop)
        self.said: list[tuple[Any, ...]] = []

    def topic(self, topic: Topic[Any]) -> Any:
        return self if topic is start_requests.TOPIC else super().topic(topic)

    def start(self, host: str, number: int, words: tuple[str, ...]) -> None:
        if not words[0]:
            raise ValueError("no words")
        self.said.append(("start", host, number, words))

    def started(self, number: int) -> None:
        self.said.append(("started", number))

    def start_ended(self, number: int, status: int, said: str = "") -> None:
        self.said.append(("ended", number, status, said))


def executable(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


class Host(WithProcesses):
    """A host with its processes and MPI daemons; the tests are its agents and its other hosts."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.bin = folder / "bin"
        executable(self.bin / "mpirun")  # the host's MPI is the one whose daemons the tests write
        self.environ = {"PATH": f"{self.bin}:{os.environ['PATH']}", "TMPDIR": str(folder)}
        self.peers = FakePeers(self.loop)
        context = context_for(self.loop, self.pump)
        self.processes = HostProcesses(context, self.events.append, self.take_connection)
        self.daemons = MpiDaemons(context, self.peers, self.processes, ROSTER, self.events.append)
        self.signals = Signals(self.loop, lambda signo: self.processes.reap())

    def take_connection(self, connection: Connection, line: str) -> bool:
        return self.daemons.asked(connection, line.split())

    def daemon(self, script: str, name: str = "orted") -> Path:
        path = self.bin / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
        return path

    def open(self, plan: LaunchPlan = PLAN) -> None:
        self.processes.start(plan, self.environ)
        self.daemons.plan_started()

    def agent(self, host: str, *words: str) -> socket.socket:
        return self.call("start " + " ".join(word.encode().hex() or "-" for word in (host, *words)))

    def until(self, what: str) -> tuple[Any, ...]:
        """The first thing of this kind that was said to the other hosts."""
        turn_until(self.loop, lambda: any(said[0] == what for said in self.peers.said), (self.peers.said, self.events))
        return next(said for said in self.peers.said if said[0] == what)

    def hear(self, agent: socket.socket) -> str:
        self.turn()
        return agent.recv(65536).decode()

    def close(self) -> None:
        self.signals.close()
        super().close()


host = closing_fixture(Host, "tmp_path")


def said(text: str) -> tuple[int, str]:
    """Status and text of what an agent was sent."""
    word, status, *rest = text.split()
    assert word == "ended"
    return int(status), bytes.fromhex(rest[0] if rest else "").decode()


# -- the leader --


@pytest.mark.parametrize(
    ("named", "name"),
    [
        ("algo-2", "algo-2"),
        ("10.77.1.2", "algo-2"),
        ("worker.x.example", "worker.x.example"),
        ("worker", "worker.x.example"),
        ("fd00::3", "worker.x.example"),
        ("[fd00::3]", "worker.x.example"),
    ],
)
def test_an_agents_words_go_to_the_host_that_mpirun_means(host: Host, named: str, name: str) -> None:
    host.open()
    host.agent(named, " orted", '"a b"', "")
    (start, to, _number, words), *more = host.peers.said
    assert (start, to, words, more) == ("start", name, (" orted", '"a b"', ""), [])


def test_what_the_other_host_answers_goes_to_the_agent_that_asked(host: Host) -> None:
    host.open()
    first, second = host.agent("algo-2", "orted"), host.agent("worker", "orted")
    numbers = [said[2] for said in host.peers.said]
    host.daemons.started(Started("worker.x.example", numbers[1]))
    assert host.hear(second) == "started\n"
    host.daemons.start_ended(StartEnded("worker.x.example", numbers[1], 0))
    assert said(host.hear(second)) == (0, "")
    host.daemons.started(Started("algo-2", numbers[0]))
    assert host.hear(first) == "started\n"
    assert host.broken == []


def test_a_daemon_that_never_ran_ends_the_job_with_what_was_said_about_it(host: Host) -> None:
    host.open()
    agent = host.agent("algo-2", "orted")
    host.daemons.start_ended(StartEnded("algo-2", host.peers.said[0][2], 127, "orted is not there"))
    assert said(host.hear(agent)) == (127, "orted is not there")
    (failure,) = host.broken
    assert failure.reason == "muster: mpirun's daemon could not be started on algo-2: orted is not there"


def test_a_host_that_is_none_of_the_jobs(host: Host) -> None:
    host.open()
    assert said(host.hear(host.agent("elsewhere", "orted")))[0] == 255
    assert (host.peers.said, len(host.broken)) == ([], 1)


def test_words_that_cannot_be_sent(host: Host) -> None:
    host.open()
    assert said(host.hear(host.agent("algo-2", ""))) == (255, "no words")
    assert said(host.hear(host.call("start 616c676f2d32 ff")))[0] == 255, "no text"


@pytest.mark.parametrize("line", ["start", "start aa", "stop aa bb"])
def test_what_is_no_agent(host: Host, line: str) -> None:
    host.open()
    assert host.call(line).recv(10) == b""


def test_an_agent_may_have_left_before_its_answer(host: Host) -> None:
    host.open()
    host.agent("algo-2", "orted").close()
    host.turn()
    host.daemons.started(Started("algo-2", host.peers.said[0][2]))
    host.daemons.start_ended(StartEnded("algo-2", host.peers.said[0][2], 1, "x"))
    assert host.broken == []


def test_a_daemon_on_the_leader_itself_is_started_there(host: Host) -> None:
    host.daemon("echo here: $1; exec sleep 600")
    host.open()
    agent = host.agent("10.77.1.1", "orted", '"a b"')
    assert host.hear(agent) == "started\n"
    assert host.peers.said == []
    assert ServiceOrLauncherStarted("orted", "launcher") in host.events


# -- every host --


def test_a_daemon_is_started_with_the_plans_environment(host: Host) -> None:
    host.daemon('echo "$@" ${MUSTER_STUB:+stub}; echo oh >&2; exit 3')
    host.open()
    host.daemons.start_asked(StartAsked(7, (" orted", "--daemonize", "-mca", '"$(id)"')))
    assert host.until("started") == ("started", 7)
    _ended, number, status, text = host.until("ended")
    assert (number, status) == (7, 3)
    assert text.splitlines() == ["-mca $(id) stub", "oh"]
    ended = [event for event in host.events if isinstance(event, ServiceOrLauncherEnded)]
    assert [(event.name, event.role, event.vital) for event in ended] == [("orted", "launcher", True)]
    host.pump.drain(5)
    assert "-mca $(id) stub" in host.output


def test_only_the_end_of_what_it_wrote_travels(host: Host) -> None:
    host.daemon("i=0; while [ $i -lt 3000 ]; do echo line $i; i=$((i+1)); done; exit 1")
    host.open()
    host.daemons.start_asked(StartAsked(0, ("orted",)))
    text = host.until("ended")[3]
    assert text.endswith("line 2999\n")
    assert len(text) == 4096


def test_a_request_that_comes_before_the_plan_waits_for_it(host: Host) -> None:
    host.daemon("exec sleep 600")
    host.daemons.start_asked(StartAsked(1, ("orted",)))
    assert host.peers.said == []
    host.open()
    assert host.until("started") == ("started", 1)
    assert ServiceOrLauncherStarted("orted", "launcher") in host.events


def test_a_request_that_comes_after_the_stop_is_refused(host: Host) -> None:
    host.daemon("exec sleep 600")
    host.open()
    host.processes.signal_ranks(15, 500.0)
    host.daemons.start_asked(StartAsked(0, ("orted",)))
    assert host.peers.said == [("ended", 0, 255, "this host is stopping")]


def test_other_programs_are_refused(host: Host) -> None:
    host.daemon("exec sleep 600", "prted")
    host.open()
    host.daemons.start_asked(StartAsked(0, ("/bin/sh", "-c", "id")))
    host.daemons.start_asked(StartAsked(1, ("prted",)))
    assert [(said[0], said[2]) for said in host.peers.said] == [("ended", 126), ("ended", 126)]
    assert "'/bin/sh' is not what this job's mpirun starts on other hosts (orted)" in host.peers.said[0][3]


def test_a_daemon_that_is_not_installed(host: Host) -> None:
    host.open(PLAN._replace(daemons=("no-such-daemon",)))
    host.daemons.start_asked(StartAsked(0, ("/opt/mpi/bin/no-such-daemon",)))
    assert host.peers.said[0][2] == 127
    assert f"no-such-daemon is not on this host's PATH ({host.bin}:" in host.peers.said[0][3]


def test_a_daemon_that_cannot_be_executed(host: Host) -> None:
    host.daemon("").write_text("#!/nonexistent/interpreter\n")
    host.open()
    host.daemons.start_asked(StartAsked(0, ("orted",)))
    assert host.peers.said[0][2] == 126
    assert f"{host.bin}/orted" in host.peers.said[0][3]


SETTINGS = "PATH={0}:$PATH ; export PATH ; LD_LIBRARY_PATH={0}/lib:${{LD_LIBRARY_PATH:-}} ; {0}/orted"


@pytest.mark.parametrize("same", [True, False])
def test_mpiruns_settings_hold_for_the_mpi_they_are_meant_for(host: Host, same: bool) -> None:
    host.daemon("echo $LD_LIBRARY_PATH")
    host.environ["LD_LIBRARY_PATH"] = "/mine"
    host.open()
    folder = host.bin if same else "/opt/another"
    host.daemons.start_asked(StartAsked(0, (SETTINGS.format(folder),)))
    assert host.until("ended")[3] == (f"{folder}/lib:/mine\n" if same else "/mine\n")


def test_the_leaders_agent_becomes_this_hosts_own(host: Host) -> None:
    """Open MPI 4's daemon ends if the agent that mpirun was given isn't there on its own host."""
    host.daemon('test -x "$2" && echo "$@"')
    host.open()
    words = ("orted", "plm_rsh_agent", '"/proc/999999/fd/7"', "/proc/x/fd/7", "/proc/1")
    host.daemons.start_asked(StartAsked(0, words))
    found = host.until("ended")[3].split()
    assert found[1].startswith(f"/proc/{os.getpid()}/fd/")
    assert found[2:] == ["/proc/x/fd/7", "/proc/1"]


# -- where a daemon is found --


def test_the_daemon_beside_mpirun_comes_before_others_on_path(tmp_path: Path) -> None:
    executable(tmp_path / "other/orted")
    own = executable(tmp_path / "own/orted")
    executable(tmp_path / "own/mpirun")
    assert find_daemon("orted", f"{tmp_path}/other:{tmp_path}/own") == str(own)


def test_mpirun_may_be_a_link(tmp_path: Path) -> None:
    own = executable(tmp_path / "opt/mpi/bin/orted")
    executable(tmp_path / "opt/mpi/bin/mpirun")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/mpirun").symlink_to(tmp_path / "opt/mpi/bin/mpirun")
    assert find_daemon("orted", f"{tmp_path}/bin") == str(own)


def test_what_is_no_program_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "one/orted").mkdir(parents=True)
    executable(tmp_path / "two/orted").chmod(0o644)
    own = executable(tmp_path / "three/orted")
    path = f"{tmp_path}/one:{tmp_path}/two:{tmp_path}/three"
    assert find_daemon("orted", path) == str(own)
    with pytest.raises(FileNotFoundError, match="prted is not on this host's PATH"):
        find_daemon("prted", path)
