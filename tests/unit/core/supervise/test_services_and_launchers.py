"""Services and launchers: which are asked to end, which are killed."""

from __future__ import annotations

import signal
import subprocess
from typing import Iterator

import pytest

from musterpoint.base.loop import Loop
from musterpoint.core.launch.launch_plan import Argument, ProcessPlan
from musterpoint.core.processes import process_tree
from musterpoint.core.processes.signal_once import SignalOnce
from musterpoint.core.supervise.services_and_launchers import ServiceOrLauncher, ServicesAndLaunchers

from ...turning import turn_until


class Bench:
    """Services and launchers that are real bench."""

    def __init__(self) -> None:
        self.loop = Loop()
        self.once = SignalOnce(self.loop)
        self.running = ServicesAndLaunchers(self.once)
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.signalled: list[int] = []

    def add(self, name: str, role: str, users: bool = False, script: str = "exec sleep 600", seconds: int = 0) -> None:
        process = subprocess.Popen(["/bin/sh", "-c", script], stdout=subprocess.PIPE)
        self.processes[name] = process
        plan = ProcessPlan(role, name, (Argument("sh"),), users=users, time_to_end=seconds)
        self.running.add(ServiceOrLauncher(plan, process.pid, lambda status, tail: None))

    def reads(self, name: str) -> bytes:
        """The next line that it printed."""
        out = self.processes[name].stdout
        assert out is not None
        return out.readline()

    def ended(self, name: str) -> int:
        turn_until(self.loop, lambda: self.processes[name].poll() is not None)
        return self.processes[name].wait()

    def untouched(self, name: str) -> bool:
        """Whether no signal was sent to it."""
        return self.processes[name].pid not in self.signalled

    def close(self) -> None:
        for process in self.processes.values():
            process.kill()
            process.communicate()
        self.once.close()
        self.loop.close()


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    bench = Bench()
    send = process_tree.send

    def note(pid: int, signo: int) -> bool:
        bench.signalled.append(pid)
        return send(pid, signo)

    monkeypatch.setattr(process_tree, "send", note)
    yield bench
    bench.close()


def test_only_services_of_the_users_are_signalled(bench: Bench) -> None:
    bench.add("mpirun", "launcher")
    bench.add("server", "service")
    bench.add("ps", "service", users=True)
    bench.running.signal(signal.SIGTERM)
    assert bench.ended("ps") == -signal.SIGTERM
    assert bench.untouched("mpirun") and bench.untouched("server")


def test_each_is_signalled_once_and_past_its_shell(bench: Bench) -> None:
    saves = (
        "import signal, time\ntold = []\nsignal.signal(15, lambda *_: told.append(print('told', flush=True)))\n"
        "print(flush=True)\nwhile not told:\n    time.sleep(0.01)\ntime.sleep(0.5)"
    )
    bench.add("ps", "service", users=True, script=f'python3 -c "{saves}"; exit 4')
    bench.reads("ps")
    bench.running.signal(signal.SIGTERM)
    assert bench.reads("ps") == b"told\n"
    bench.running.signal(signal.SIGTERM)
    assert bench.ended("ps") == -signal.SIGTERM, "the line behind the program doesn't run"
    assert bench.reads("ps") == b""


def test_a_signal_that_is_passed_on_may_come_again(bench: Bench) -> None:
    counts = "trap 'echo got' USR1; echo; while :; do sleep 0.05; done"
    bench.add("ps", "service", users=True, script=counts)
    bench.reads("ps")
    for _ in range(2):
        bench.running.pass_on(signal.SIGUSR1)
        assert bench.reads("ps") == b"got\n"


def test_a_role_is_killed_alone(bench: Bench) -> None:
    bench.add("server", "service")
    bench.add("mpirun", "launcher")
    bench.running.kill("launcher")
    assert bench.ended("mpirun") == -9
    assert bench.untouched("server")
    bench.running.kill()
    assert bench.ended("server") == -9


def test_who_runs_is_known_by_pid(bench: Bench) -> None:
    bench.add("mpirun", "launcher")
    pid = bench.processes["mpirun"].pid
    assert pid in bench.running
    assert bench.running.pids == {pid}
    assert bench.running.ended(pid).process.name == "mpirun"
    assert pid not in bench.running


def test_services_that_end_by_themselves_are_asked_to(bench: Bench) -> None:
    """Once; the answer is how long the slowest of them may take."""
    ends = "trap 'exit 1' TERM; echo; while :; do sleep 0.05; done"
    assert bench.running.end() == 0
    for name, seconds in (("head", 4), ("other", 2), ("server", 0)):
        bench.add(name, "service", script=ends, seconds=seconds)
        assert bench.reads(name) == b"\n"
    assert [bench.running.end(), bench.running.end()] == [4, 4]
    assert [bench.ended(name) for name in ("head", "other")] == [1, 1]
    assert bench.untouched("server")
    bench.running.ended(bench.processes["other"].pid)
    assert bench.signalled.count(bench.processes["head"].pid) == 1
    assert bench.running.are_ending
    bench.running.ended(bench.processes["head"].pid)
    assert not bench.running.are_ending
