"""What runs beside the ranks: who is told to end, who is killed."""

from __future__ import annotations

import signal
import subprocess
from typing import Iterator

import pytest

from musterpoint.launch.plan import Argument, ProcessPlan
from musterpoint.supervise.unranked import Unranked, UnrankedProcesses


class HostProcesses:
    """UnrankedProcesses that are real processes."""

    def __init__(self) -> None:
        self.unranked = UnrankedProcesses()
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def add(self, name: str, role: str, session: int = 0, users: bool = False, script: str = "exec sleep 600") -> None:
        process = subprocess.Popen(["/bin/sh", "-c", script], stdout=subprocess.PIPE)
        self.processes[name] = process
        plan = ProcessPlan(role, name, (Argument("sh"),), users=users)
        self.unranked.add(Unranked(session, plan, process.pid, lambda status, tail: None))

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
def processes() -> Iterator[HostProcesses]:
    processes = HostProcesses()
    yield processes
    processes.close()


def test_only_services_of_the_users_are_told(processes: HostProcesses) -> None:
    processes.add("mpirun", "launcher")
    processes.add("server", "service")
    processes.add("ps", "service", users=True)
    processes.unranked.tell(signal.SIGTERM)
    assert processes.ended("ps") == -signal.SIGTERM
    assert processes.stays("mpirun") and processes.stays("server")


def test_each_is_told_once_and_past_its_shell(processes: HostProcesses) -> None:
    saves = (
        "import signal, time\ntold = []\nsignal.signal(15, lambda *_: told.append(print('told', flush=True)))\n"
        "print(flush=True)\nwhile not told:\n    time.sleep(0.01)\ntime.sleep(0.5)"
    )
    processes.add("ps", "service", users=True, script=f'python3 -c "{saves}"; exit 4')
    out = processes.processes["ps"].stdout
    assert out is not None
    out.readline()
    processes.unranked.tell(signal.SIGTERM)
    assert out.readline() == b"told\n"
    processes.unranked.tell(signal.SIGTERM)
    assert out.read() == b""
    assert processes.ended("ps") == 4


def test_a_signal_that_is_passed_on_may_come_again(processes: HostProcesses) -> None:
    counts = "trap 'echo got' USR1; echo; while :; do sleep 0.05; done"
    processes.add("ps", "service", users=True, script=counts)
    out = processes.processes["ps"].stdout
    assert out is not None
    out.readline()
    for _ in range(2):
        processes.unranked.pass_on(signal.SIGUSR1)
        assert out.readline() == b"got\n"


def test_a_session_or_a_role_is_killed_alone(processes: HostProcesses) -> None:
    processes.add("outer", "service")
    processes.add("inner", "service", session=1)
    processes.add("inner launcher", "launcher", session=1)
    processes.unranked.kill(1, "service")
    assert processes.ended("inner") == -9
    assert processes.stays("outer") and processes.stays("inner launcher")
    processes.unranked.kill()
    assert [processes.ended(name) for name in ("outer", "inner launcher")] == [-9, -9]


def test_who_runs_is_known_by_pid(processes: HostProcesses) -> None:
    processes.add("mpirun", "launcher")
    pid = processes.processes["mpirun"].pid
    assert pid in processes.unranked
    assert processes.unranked.pids == {pid}
    assert processes.unranked.ended(pid).process.name == "mpirun"
    assert pid not in processes.unranked
