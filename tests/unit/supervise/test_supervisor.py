"""A supervisor alone with real processes: what it starts, what it makes of their ends, what it leaves."""

from __future__ import annotations

import os
import signal
from typing import Any, Callable, Iterator

import pytest

from musterpoint.fabric.setting import EnvSetting
from musterpoint.launch.plan import Argument, LaunchPlan, ProcessPlan
from musterpoint.loop import Loop
from musterpoint.peers import Failure
from musterpoint.report.explain import Explain
from musterpoint.rollcall.lone import LonePeers
from musterpoint.supervise import tree
from musterpoint.supervise.outcome import Outcome
from musterpoint.supervise.pump import Pump
from musterpoint.supervise.signals import Signals
from musterpoint.supervise.state import Rules
from musterpoint.supervise.supervisor import Supervisor

ENVIRON = {"PATH": os.environ.get("PATH", "/bin:/usr/bin")}


def shell(*scripts: str, cwd: str = "/") -> LaunchPlan:
    """A plan of one rank per shell script."""
    processes = tuple(
        ProcessPlan("rank", f"rank {rank}", (Argument("/bin/sh"), Argument("-c"), Argument(script)),
                    (EnvSetting("RANK", str(rank), ""),), cwd, rank, rank)
        for rank, script in enumerate(scripts)
    )  # fmt: skip
    return LaunchPlan("ranks", "algo-1", processes, (), len(scripts), len(scripts), 0, cwd, unset=("GONE",))


class Stage:
    """A supervisor with ears and a pump that writes into a pipe; ``said`` and ``events`` are what it told."""

    def __init__(self) -> None:
        self.loop = Loop()
        self.read, self.write = os.pipe()
        self.said: list[str] = []
        self.events: list[str] = []
        self.ears = Signals(self.loop, lambda signo: None)

    def run(self, plan: LaunchPlan | None, refusal: Failure | None = None, **rules: Any) -> Outcome:
        supervisor = Supervisor(
            self.loop, Rules(**{"host": "algo-1", "grace": 5.0, **rules}), LonePeers(self.loop),
            Pump(out_fd=self.write, err_fd=self.write), lambda: Explain("algo-1"), stop_signal=signal.SIGTERM,
            say=self.said.append, record=self.record, oom_kills=lambda: 0,
        )  # fmt: skip
        self.ears.hear = supervisor.hear
        return supervisor.run(plan, {**ENVIRON, "GONE": "1"}, refusal)

    def record(self, event: str, /, **facts: Any) -> None:
        self.events.append(event)

    def soon(self, call: Callable[[], None], seconds: float = 0.3) -> None:
        self.loop.call_later(seconds, call)

    @property
    def output(self) -> str:
        os.close(self.write)
        self.write = -1
        with open(self.read, closefd=False) as file:
            return file.read()

    def close(self) -> None:
        self.ears.close()
        self.loop.close()
        for fd in (self.read, self.write):
            if fd >= 0:
                os.close(fd)


@pytest.fixture
def stage() -> Iterator[Stage]:
    stage = Stage()
    yield stage
    stage.close()
    assert tree.descendants(os.getpid()) == []


def test_ranks_run_with_their_environment(stage: Stage) -> None:
    outcome = stage.run(shell("echo $RANK ${GONE-unset}", "echo $RANK ${GONE-unset}"))
    assert (outcome.code, outcome.failure, outcome.stopped_by) == (0, None, "")
    assert sorted(end.rank for end in outcome.ends) == [0, 1]
    assert sorted(stage.output.splitlines()) == ["0 unset", "1 unset"]


@pytest.mark.parametrize(
    ("script", "code", "how"),
    [("exit 7", 7, "exit code 7"), ("kill -9 $$", 137, "killed by SIGKILL"), ("true", 0, "")],
)
def test_the_first_failure_ends_the_others(stage: Stage, script: str, code: int, how: str) -> None:
    outcome = stage.run(shell("exec sleep 30" if code else "true", script))
    assert outcome.code == code
    assert how in (outcome.failure.reason if outcome.failure else "")
    assert outcome.secondary == 0, "what we ended is no failure of its own"


def test_what_ignores_the_signal_is_killed_after_its_grace(stage: Stage) -> None:
    outcome = stage.run(shell("trap '' TERM; sleep 30", "sleep 0.2; exit 3"), grace=0.3)
    assert outcome.code == 3
    assert "killed" in stage.events


def test_a_stop(stage: Stage) -> None:
    stage.soon(lambda: os.kill(os.getpid(), signal.SIGTERM))
    outcome = stage.run(shell("trap 'echo saved; exit 0' TERM; while :; do sleep 30 & wait; done", "exec sleep 30"))
    assert (outcome.code, outcome.failure, outcome.stopped_by) == (143, None, "algo-1")
    assert stage.output == "saved\n"


@pytest.mark.parametrize(("plan", "code"), [(shell("true", cwd="/nonexistent"), 64), (None, 72)])
def test_what_cannot_start(stage: Stage, plan: LaunchPlan | None, code: int) -> None:
    refusal = None if plan else Failure("algo-1", 72, "muster", "infra", "muster: no torch here")
    outcome = stage.run(plan, refusal)
    assert outcome.code == code
    assert outcome.failure is not None
    assert outcome.failure.reason.startswith("muster: ")


def test_a_daemon_of_the_programs_does_not_survive(stage: Stage) -> None:
    outcome = stage.run(shell("(trap '' TERM HUP; setsid sleep 30 >/dev/null 2>&1 &) ; exit 0"))
    assert outcome.code == 0
    assert "killed" in stage.events


def test_a_launcher_that_ends_before_its_ranks_come_up(stage: Stage) -> None:
    launcher = ProcessPlan("launcher", "torchrun", (Argument("/bin/sh"), Argument("-c"), Argument("echo oh; exit 1")))
    plan = shell("true")._replace(processes=(launcher,))
    outcome = stage.run(plan)
    assert outcome.code == 72
    assert outcome.failure is not None
    assert "torchrun ended before any of its ranks had come up (exit code 1)" in outcome.failure.reason
    assert "oh" in outcome.failure.reason
