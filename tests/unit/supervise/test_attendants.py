"""What runs beside the ranks: who is told to end, who is killed."""

from __future__ import annotations

import signal
import subprocess
from typing import Iterator

import pytest

from musterpoint.launch.plan import Argument, ProcessPlan
from musterpoint.supervise.attendants import Attendant, Attendants


class Crew:
    """Attendants that are real processes."""

    def __init__(self) -> None:
        self.attendants = Attendants()
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def add(self, name: str, role: str, session: int = 0, users: bool = False, script: str = "exec sleep 600") -> None:
        process = subprocess.Popen(["/bin/sh", "-c", script], stdout=subprocess.PIPE)
        self.processes[name] = process
        plan = ProcessPlan(role, name, (Argument("sh"),), users=users)
        self.attendants.add(Attendant(session, plan, process.pid, lambda status, tail: None))

    def ended(self, name: str) -> int:
        return self.processes[name].wait(60)

    def stays(self, name: str) -> bool:
        """Whether it is still there a moment later."""
        try:
            self.processes[name].wait(0.5)
        except subprocess.TimeoutExpired:
            return True
        return False

    def close(self) -> None:
        for process in self.processes.values():
            process.kill()
            process.communicate()


@pytest.fixture
def crew() -> Iterator[Crew]:
    crew = Crew()
    yield crew
    crew.close()


def test_only_services_of_the_users_are_told(crew: Crew) -> None:
    crew.add("mpirun", "launcher")
    crew.add("server", "service")
    crew.add("ps", "service", users=True)
    crew.attendants.tell(signal.SIGTERM)
    assert crew.ended("ps") == -signal.SIGTERM
    assert crew.stays("mpirun") and crew.stays("server")


def test_each_is_told_once_and_past_its_shell(crew: Crew) -> None:
    saves = (
        "import signal, time\ntold = []\nsignal.signal(15, lambda *_: told.append(print('told', flush=True)))\n"
        "print(flush=True)\nwhile not told:\n    time.sleep(0.01)\ntime.sleep(0.5)"
    )
    crew.add("ps", "service", users=True, script=f'python3 -c "{saves}"; exit 4')
    out = crew.processes["ps"].stdout
    assert out is not None
    out.readline()
    crew.attendants.tell(signal.SIGTERM)
    assert out.readline() == b"told\n"
    crew.attendants.tell(signal.SIGTERM)
    assert out.read() == b""
    assert crew.ended("ps") == 4


def test_a_signal_that_is_passed_on_may_come_again(crew: Crew) -> None:
    counts = "trap 'echo got' USR1; echo; while :; do sleep 0.05; done"
    crew.add("ps", "service", users=True, script=counts)
    out = crew.processes["ps"].stdout
    assert out is not None
    out.readline()
    for _ in range(2):
        crew.attendants.pass_on(signal.SIGUSR1)
        assert out.readline() == b"got\n"


def test_a_session_or_a_role_is_killed_alone(crew: Crew) -> None:
    crew.add("outer", "service")
    crew.add("inner", "service", session=1)
    crew.add("inner launcher", "launcher", session=1)
    crew.attendants.kill(1, "service")
    assert crew.ended("inner") == -9
    assert crew.stays("outer") and crew.stays("inner launcher")
    crew.attendants.kill()
    assert [crew.ended(name) for name in ("outer", "inner launcher")] == [-9, -9]


def test_who_runs_is_known_by_pid(crew: Crew) -> None:
    crew.add("mpirun", "launcher")
    pid = crew.processes["mpirun"].pid
    assert pid in crew.attendants
    assert crew.attendants.pids == {pid}
    assert crew.attendants.ended(pid).process.name == "mpirun"
    assert pid not in crew.attendants
