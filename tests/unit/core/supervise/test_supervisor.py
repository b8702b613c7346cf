"""A supervisor alone with real processes: what it starts, what it makes of their ends, what it leaves."""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any, Callable, Iterator

import pytest

from musterpoint.base.failure import NO_FAILURES, Failure, Secondary
from musterpoint.base.loop import READ
from musterpoint.core.channel.lone import LoneChannel
from musterpoint.core.channel.peers import AllDone, PeerBack, PeerEvent, Peers, PeerSilent, StartAsked
from musterpoint.core.channel.topic import Topic
from musterpoint.core.channel.topics import start_requests
from musterpoint.core.fabric.setting import EnvSetting
from musterpoint.core.launch.launch_plan import Argument, LaunchPlan, ProcessPlan, through_stub
from musterpoint.core.processes import process_tree
from musterpoint.core.processes.received_signals import Signals
from musterpoint.core.rollcall.roster import Roster, Seat
from musterpoint.core.supervise import events as ev
from musterpoint.core.supervise.state import Outcome, Rules
from musterpoint.core.supervise.supervisor import Supervisor

from ....left_behind import adopt_orphans, children
from .bench import Piped, context_for, service

ROSTER = Roster("job", "session", (Seat("algo-1", "127.0.0.1", 1),), "127.0.0.1", 7777, "algo-1")
ENVIRON = {"PATH": os.environ.get("PATH", "/bin:/usr/bin")}


def shell(*scripts: str, cwd: str = "/") -> LaunchPlan:
    """A plan of one rank per shell script."""
    processes = tuple(
        ProcessPlan("rank", f"rank {rank}", (Argument("/bin/sh"), Argument("-c"), Argument(script)),
                    (EnvSetting("RANK", str(rank), ""),), cwd, rank, rank)
        for rank, script in enumerate(scripts)
    )  # fmt: skip
    return LaunchPlan("ranks", "algo-1", processes, (), len(scripts), len(scripts), 0, cwd, unset=("GONE",))


class Bench(Piped):
    """A supervisor with signals and a pump that writes into a pipe; ``said`` and ``events`` are what it printed and
    recorded."""

    def __init__(self) -> None:
        super().__init__()
        self.said: list[str] = []
        self.on_said: Callable[[str], Any] = lambda text: None
        self.events: list[str] = []
        self.signals = Signals(self.loop, lambda signo: None)
        self.peers: Peers = LoneChannel(self.loop)
        self.environ = {**ENVIRON, "GONE": "1"}

    def run(self, plan: LaunchPlan, refusal: Failure | None = None, **rules: Any) -> Outcome:
        context = context_for(self.loop, self.pump, self.record, self.say)
        supervisor = Supervisor(context, Rules(**{"host": "algo-1", "grace": 500.0, **rules}), self.peers, ROSTER)
        self.signals.route_to(supervisor.on_signal)
        outcome = supervisor.run(plan, self.environ) if refusal is None else supervisor.wait(refusal)
        context.sidecars.close(5.0)
        return outcome

    def fails(self, plan: LaunchPlan, refusal: Failure | None = None, **rules: Any) -> Failure:
        """How a job ends that fails; its code is the failure's."""
        outcome = self.run(plan, refusal, **rules)
        assert outcome.failure is not None and outcome.failure.code == outcome.code
        return outcome.failure

    def say(self, text: str) -> None:
        self.said.append(text)
        self.on_said(text)

    def record(self, event: str, /, **facts: Any) -> None:
        self.events.append(event)

    def stop_once_ready(self, fifo: Path) -> None:
        """SIGTERM for this host once a program has written a line to ``fifo``, which is made here and then removed."""

        def heard(_ready: int) -> None:
            self.loop.forget(end)
            os.close(end)
            os.kill(os.getpid(), signal.SIGTERM)
            fifo.unlink()

        os.mkfifo(fifo)
        end = os.open(fifo, os.O_RDWR)
        self.loop.watch(end, READ, heard)

    def close(self) -> None:
        self.signals.close()
        super().close()


@pytest.fixture
def bench() -> Iterator[Bench]:
    bench, before = Bench(), {*children()}
    yield bench
    bench.close()
    assert process_tree.descendants(os.getpid(), spared=before) == []
    adopt_orphans(False)


@pytest.fixture
def ready(tmp_path: Path) -> Path:
    """Where a fifo may be."""
    return tmp_path / "ready"


def test_ranks_run_with_their_environment(bench: Bench) -> None:
    outcome = bench.run(shell("echo $RANK ${GONE-unset}", "echo $RANK ${GONE-unset}"))
    assert (outcome.code, outcome.failure, outcome.stopped_by, outcome.cut_off) == (0, None, "", False)
    assert bench.events.count("rank-ended") == 2
    assert sorted(bench.output.splitlines()) == ["0 unset", "1 unset"]


@pytest.mark.parametrize("last", ["exit 0", "exit 3"])
def test_an_end_costs_as_much_on_a_machine_of_many_processes(
    bench: Bench, last: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only a job that leaves processes behind has all of the machine's read."""
    walks: list[str] = []
    monkeypatch.setattr(process_tree, "_all_stats", lambda proc="/proc": walks.append(proc) or iter(()))
    bench.run(shell(*["exit 0"] * 7, last))
    assert bench.events.count("rank-ended") == 8
    assert walks == []


@pytest.mark.parametrize(
    ("script", "code", "how"), [("exit 7", 7, "exit code 7"), ("kill -9 $$", 137, "killed by SIGKILL"), ("true", 0, "")]
)
def test_the_first_failure_ends_the_others(bench: Bench, script: str, code: int, how: str) -> None:
    outcome = bench.run(shell("exec sleep 600" if code else "true", script))
    assert outcome.code == code
    assert how in (outcome.failure.reason if outcome.failure else "")
    assert outcome.secondary.total == 0, "what we ended is no failure of its own"


def test_what_ignores_the_signal_is_killed_after_its_grace(bench: Bench, ready: Path) -> None:
    os.mkfifo(ready)
    outcome = bench.run(shell(f"trap '' TERM; echo > {ready}; sleep 600", f"read _ < {ready}; exit 3"), grace=0.3)
    assert outcome.code == 3
    assert "processes-killed" in bench.events


@pytest.mark.parametrize("cut_off", [True, False])
def test_a_stop(bench: Bench, ready: Path, cut_off: bool) -> None:
    """Also: whether every rank ended with 0, so that nothing is half which they saved."""
    bench.stop_once_ready(ready)
    outcome = bench.run(shell(saves(ready), "exec sleep 600" if cut_off else "exit 0"))
    assert (outcome.code, outcome.failure, outcome.stopped_by) == (143, None, "algo-1")
    assert outcome.cut_off == cut_off
    assert bench.output == "saved\n"
    assert bench.said[-1] == "the job was stopped by SIGTERM, exit code 143"


@pytest.mark.parametrize(("plan", "code"), [(shell("true", cwd="/none"), 64), (LaunchPlan.nothing("algo-1"), 72)])
def test_what_cannot_start(bench: Bench, plan: LaunchPlan, code: int) -> None:
    refusal = None if plan.launcher else Failure("algo-1", 72, "muster", "infra", "muster: no torch here")
    failure = bench.fails(plan, refusal)
    assert (failure.code, failure.cause) == (code, "muster")


def test_no_room_for_the_pump(bench: Bench, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "has-said")

    def start(thread: threading.Thread) -> None:
        (tmp_path / "has-said").read_text()
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)
    failure = bench.fails(shell(f"echo said; : > {tmp_path}/has-said; exec sleep 600"))
    assert failure.code == 72
    assert failure.reason.startswith("muster: rank 0 on algo-1: no process can be started: Resource temp")
    assert bench.output == "said\n"


def test_a_daemon_of_the_programs_does_not_survive(bench: Bench) -> None:
    outcome = bench.run(shell("(trap '' TERM HUP; setsid sleep 600 >/dev/null 2>&1 &) ; exit 0"))
    assert outcome.code == 0
    assert "processes-killed" in bench.events


def test_a_launcher_that_ends_before_its_ranks_come_up(bench: Bench) -> None:
    launcher = ProcessPlan("launcher", "torchrun", (Argument("/bin/sh"), Argument("-c"), Argument("echo oh; exit 1")))
    failure = bench.fails(shell("true")._replace(processes=(launcher,)))
    assert failure.code == 72
    assert "torchrun ended before any of its ranks had come up (exit code 1)" in failure.reason
    assert "oh" in failure.reason


def beside(plan: LaunchPlan, *services: ProcessPlan) -> LaunchPlan:
    return plan._replace(processes=(*plan.processes, *services))


NO_RANKS = shell()._replace(world_size=2)


def saves(ready: Path, how: str = "echo saved") -> str:
    """Does ``how`` when it is signalled to stop, and says when it can."""
    return f"trap '{how}; exit 0' TERM; echo > {ready}; while :; do sleep 600 & wait; done"


class Others(LoneChannel):
    """Hosts that aren't done before we say so; ``said`` is what they heard."""

    def __init__(self, bench: Bench) -> None:
        super().__init__(bench.loop)
        self.said: list[str] = []
        self.first: tuple[PeerEvent, ...] = ()

    def listen(self, on_event: Callable[[PeerEvent], None]) -> None:
        super().listen(on_event)
        for event in self.first:
            on_event(event)

    def done(self, code: int, failures: Secondary = NO_FAILURES) -> None:
        self.said.append(f"done {code}")

    def topic(self, topic: Topic[Any]) -> Any:
        return self if topic is start_requests.TOPIC else super().topic(topic)

    def started(self, number: int) -> None:
        self.said.append(f"started {number}")

    def start_ended(self, number: int, status: int, said: str = "") -> None:
        self.said.append(f"ended {number} {status} {said}".strip())

    def finish_after(self, word: str) -> None:
        """The other hosts are done once this one has said ``word``."""
        say = getattr(self, word)

        def said(*arguments: Any) -> None:
            say(*arguments)
            LoneChannel.done(self, 0)

        setattr(self, word, said)


@pytest.fixture
def others(bench: Bench) -> Others:
    others = Others(bench)
    bench.peers = others
    return others


def test_services_end_with_the_ranks(bench: Bench, ready: Path) -> None:
    os.mkfifo(ready)
    outcome = bench.run(
        beside(shell(f"read _ < {ready}"), service("exec sleep 600"), service(saves(ready), True, "ps 1"))
    )
    assert (outcome.code, bench.output) == (0, "saved\n")


def test_a_service_that_dies_ends_the_job(bench: Bench) -> None:
    failure = bench.fails(beside(shell("exec sleep 600"), service("echo 'OSError: no disk' >&2; exit 3", True)))
    assert (failure.code, failure.reason) == (3, "OSError: no disk\nps 0 on algo-1, exit code 3")


@pytest.mark.parametrize("after", [":", "echo mine"])
def test_a_launchers_complaint_is_not_the_logs_last_word(bench: Bench, tmp_path: Path, after: str) -> None:
    """It complains when a rank is signalled, as mpirun does of the daemons that we end. Then the rank may speak; of two
    pipes that are full at a time either may be read first.
    """
    for name in ("ready", "told", "complained"):
        os.mkfifo(tmp_path / name)
    told = f"echo > told; read _ < complained; {after}; exit 0"
    rank = f"trap '{told}' TERM; echo > ready; while :; do sleep 600 & wait; done"
    box = service(f"cd {tmp_path}; read _ < told; echo BOX; echo > complained; exec sleep 600", name="mpirun")
    outcome = bench.run(beside(shell(rank, "read _ < ready; exit 3", cwd=str(tmp_path)), box))
    assert outcome.code == 3
    said, lines = bench.said[1:], bench.output.splitlines()
    assert sorted(lines) == (["BOX"] if after == ":" else ["BOX", "mine"])
    again = "what ended the job: rank 1 (local rank 1) on algo-1, exit code 3"
    assert said == ([again] if lines[-1] == "BOX" else [])


def test_a_service_has_the_whole_stop_though_the_other_hosts_are_done(
    bench: Bench, others: Others, ready: Path
) -> None:
    bench.stop_once_ready(ready)
    others.finish_after("stopping")
    ignored = "trap 'echo told' TERM; while :; do sleep 600 & wait; done"
    slow = saves(ready, "sleep 1; echo saved")
    outcome = bench.run(beside(NO_RANKS, service(ignored, False, "server"), service(slow, True)))
    assert (outcome.code, outcome.stopped_by) == (143, "algo-1")
    assert bench.output == "saved\n"


def mpi(folder: Path, *program: str, ranks: int = 1) -> LaunchPlan:
    """A worker's plan, whose daemon (a script) starts each rank through the stub."""
    (folder / "mpirun").touch(mode=0o755)
    stub = " ".join(f"'{word}'" for word in through_stub(sys.executable, program))
    each = "OMPI_COMM_WORLD_RANK=$(($1 + n)) OMPI_COMM_WORLD_LOCAL_RANK=$n OMPI_COMM_WORLD_SIZE=4"
    (folder / "orted").write_text(f"#!/bin/sh\nfor n in $2; do {each} {stub} & done\nwait\n")
    (folder / "orted").chmod(0o755)
    return shell()._replace(launcher="mpi", daemons=("orted",), local_ranks=ranks, world_size=4, first_rank=2)


def test_a_worker_under_mpi(bench: Bench, others: Others, tmp_path: Path) -> None:
    """The leader asks before our plan is started; the daemon brings the ranks, and leaves when it is released."""
    bench.environ["PATH"] = f"{tmp_path}:{ENVIRON['PATH']}"
    others.first = (StartAsked(1, ("orted", "2", '"0 1"')),)
    others.done = lambda code, failures=None: others.emit(AllDone())  # type: ignore[method-assign]
    outcome = bench.run(mpi(tmp_path, "/bin/sh", "-c", "echo $RANK $LOCAL_RANK", ranks=2))
    assert outcome.code == 0
    assert sorted(bench.output.splitlines()) == ["2 0", "3 1"]
    assert others.said == ["started 1", "ended 1 0"]


def test_the_platforms_clock_runs_though_a_failure_came_first(bench: Bench, ready: Path) -> None:
    bench.stop_once_ready(ready)
    until_stopped = f"echo > {ready}; while [ -e {ready} ]; do sleep 0.01; done; exit 0"
    armed = ready.with_name("armed")
    os.mkfifo(armed)
    rank = f"trap '{until_stopped}' TERM; echo > {armed}; while :; do sleep 0.1; done"
    before = bench.loop.clock()
    outcome = bench.run(shell(f"read _ < {armed}; exit 7", rank))
    assert outcome.code == 7
    assert outcome.stopped_at is not None and before < outcome.stopped_at <= bench.loop.clock()


def test_the_timeline_keeps_its_words_whatever_the_classes_are_called(bench: Bench) -> None:
    context = context_for(bench.loop, bench.pump, bench.record, bench.said.append)
    supervisor = Supervisor(context, Rules("algo-1", 5.0), bench.peers, ROSTER)
    for event in (ev.RootCauseDue(), ev.KillDue(), ev.LeaveDue(), PeerSilent("algo-2", 15.0), PeerBack("algo-2")):
        supervisor.on_event(event)
    supervisor.wait(Failure("algo-1", 64, "muster", "user", "no program"))
    assert bench.events == [
        "root-cause-due", "stop-grace-over", "leave-due", "host-silent", "host-back",
        "failure-seen", "job-failed", "group-ended", "all-hosts-done", "job-ended",
    ]  # fmt: skip


def ending(script: str, seconds: int, name: str = "head") -> ProcessPlan:
    return service(script, name=name)._replace(time_to_end=seconds)


def test_services_that_end_by_themselves_get_their_time(bench: Bench, ready: Path) -> None:
    """They are told when the ranks have ended, whatever they end with; others are killed after them."""
    os.mkfifo(ready)
    head = ending(saves(ready, "sleep 0.3; echo its servers are gone; exit 1"), 60)
    outcome = bench.run(
        beside(shell(f"read _ < {ready}; echo trained"), head, service("exec sleep 600", name="server"))
    )
    assert outcome.code == 0
    assert bench.output.splitlines() == ["trained", "its servers are gone"]


def test_a_service_that_does_not_end_in_its_time_is_killed(bench: Bench, ready: Path) -> None:
    os.mkfifo(ready)
    head = ending(f"trap '' TERM; echo > {ready}; while :; do sleep 600; done", 1)
    began = bench.loop.clock()
    assert bench.run(beside(shell(f"read _ < {ready}; exit 3"), head)).code == 3
    assert 1 <= bench.loop.clock() - began < 60


def test_such_a_service_outlives_the_ranks_of_a_stop(bench: Bench, ready: Path, tmp_path: Path) -> None:
    """The program saves while it is there."""
    fifo = tmp_path / "head-ready"
    os.mkfifo(fifo)
    head = ending(saves(fifo, "echo head"), 60)
    bench.stop_once_ready(ready)
    outcome = bench.run(beside(shell(f"read _ < {fifo}; trap 'sleep 0.3; echo rank; exit 0' TERM; echo > {ready}; "
                                     "while :; do sleep 0.05; done"), head))  # fmt: skip
    assert outcome.code == 143
    assert [line for line in bench.output.splitlines() if line != "Terminated"] == ["rank", "head"]


@pytest.mark.parametrize("script", ["exit 0", "echo oh >&2; exit 3", "kill -9 $$", "exec sleep 600"])
def test_the_job_goes_on_without_an_optional_service_and_ends_it(bench: Bench, script: str) -> None:
    assert bench.run(beside(shell("sleep 0.3"), service(script)._replace(optional=True))).code == 0
