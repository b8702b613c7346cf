"""Our side of the rank stubs' protocol over a real socket, and how processes are started and end."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any

import pytest

from musterpoint.core.fabric.setting import EnvSetting
from musterpoint.core.launch.launch_plan import Argument, LaunchPlan, Meeting, ProcessPlan, program_of_ours
from musterpoint.core.processes.control_socket import Connection
from musterpoint.core.supervise import foreign_ranks
from musterpoint.core.supervise.events import PlanStarted, RankEnded, ServiceOrLauncherEnded, ServiceOrLauncherStarted
from musterpoint.core.supervise.host_processes import HostProcesses

from ...fixtures import closing_fixture
from .bench import WithProcesses, context_for, service

PLAN = LaunchPlan(
    "torchrun", "algo-1", (ProcessPlan("launcher", "torchrun", (Argument("sleep"), Argument("600"))),), (), 2, 2, 0, "/"
)


class Bench(WithProcesses):
    """Processes of a host whose launcher sleeps; the tests are its stubs."""

    def __init__(self, plan: LaunchPlan = PLAN) -> None:
        super().__init__()
        self.started: list[str] = []
        context = context_for(self.loop, self.pump, self.record)
        self.processes = HostProcesses(context, self.events.append, self.take_connection)
        self.processes.start(plan, {"PATH": os.environ.get("PATH", "/bin:/usr/bin")})

    def record(self, event: str, /, **facts: Any) -> None:
        if event.endswith("-started") and "name" in facts:
            self.started.append(facts["name"])

    def take_connection(self, connection: Connection, line: str) -> bool:
        return line.startswith("launch ") and self.processes.take_launch(connection, line)

    def say(self, sock: socket.socket, line: str) -> None:
        sock.sendall(line.encode() + b"\n")
        self.turn()

    def go(self, sock: socket.socket) -> None:
        data, descriptors, _flags, _address = socket.recv_fds(sock, 16, 4)
        assert data == b"go\n"
        for fd in descriptors:
            os.close(fd)

    @property
    def ends(self) -> list[tuple[int, int]]:
        """Keys and codes of the ranks that have ended."""
        ended = [event for event in self.events if isinstance(event, RankEnded)]
        return [(event.key, event.failure.code if event.failure else 0) for event in ended]


bench = closing_fixture(Bench)


def test_a_plan_says_what_it_will_bring(bench: Bench) -> None:
    assert bench.events == [
        PlanStarted((0, 1), foreign=True), ServiceOrLauncherStarted("torchrun", "launcher")
    ]  # fmt: skip


def test_stubs_report_their_ranks_ends(bench: Bench) -> None:
    first, second = of_two(bench)
    for sock, status in ((second, 7 << 8), (first, 9)):
        bench.say(sock, f"ended {status}")
    assert bench.ends == [(1, 7), (0, 137)]
    bench.processes.ranks.send_stubs("release")
    assert first.recv(64) == b"release\n"


NO_STUBS = (
    "", " ", "started", "started x", "started -1", "started 1", "started 0", "started OURS", "started ٣٤٥",
    f"started {'9' * 5000}", "started 99999999999", "ended", "ended x", "ended 4991", "ended 65535", "signal",
    "signal \0", "launched 5", "\ufffd",
)  # fmt: skip


@pytest.mark.parametrize("line", NO_STUBS)
def test_what_no_stub_says_ends_its_own_connection(bench: Bench, line: str) -> None:
    """The rank is then one whose stub was lost; the other goes on."""
    first, second = (bench.call(f"rank {rank} {rank} 2 {os.getppid()}") for rank in (0, 1))
    bench.go(first)
    bench.go(second)
    bench.say(first, line.replace("OURS", str(os.getpid())))
    known = line.split()[:1] == ["launched"]
    if not known:
        assert first.recv(1) == b""
    assert [key for key, _code in bench.ends] == ([] if known else [0])
    bench.say(second, f"started {os.getppid()}")
    bench.say(second, f"ended {7 << 8}")
    assert (1, 7) in bench.ends


@pytest.mark.parametrize(
    "line",
    ["", "rank", "rank 0 0 2", "rank 0 0 2 77 0", "rank -1 0 2 77", "rank 0 x 2 77", "rank 0 0 ² 77",
     f"rank 0 0 2 {'9' * 5000}", "start 0 zz", "GET / HTTP/1.1", "\0"],
)  # fmt: skip
def test_who_says_no_first_line_of_ours_is_sent_away(bench: Bench, line: str) -> None:
    assert bench.call(line).recv(1) == b""
    assert bench.ends == bench.broken == []
    bench.go(bench.call(f"rank 0 0 2 {os.getppid()}"))


def test_another_world_than_planned(bench: Bench) -> None:
    bench.call("rank 0 0 1 77")
    assert [failure.code for failure in bench.broken] == [72]
    assert "world of 1 rank(s), but 2 were planned" in bench.broken[0].reason


def test_a_rank_that_comes_too_late(bench: Bench) -> None:
    bench.processes.is_ending = True
    assert bench.call("rank 0 0 2 78").recv(16) == b""


UNPLANNED = {"a slot that isn't planned": "rank 1 2 2 77", "a slot that is taken": "rank 0 0 2 78"}


@pytest.mark.parametrize("which", UNPLANNED)
def test_a_rank_that_nobody_planned_here(bench: Bench, which: str) -> None:
    """Its stub is kept waiting, or its launcher would talk of it before we have ended everything."""
    bench.go(bench.call("rank 0 0 2 77"))
    stub = bench.call(UNPLANNED[which])
    assert [failure.code for failure in bench.broken] == [72]
    assert "on algo-1, where 2 rank(s) were planned" in bench.broken[0].reason
    stub.settimeout(0.1)
    with pytest.raises(TimeoutError):
        stub.recv(16)
    assert bench.ends == []


def test_a_stub_that_leaves_before_its_program_ran(bench: Bench) -> None:
    sock = bench.call("rank 0 0 2 77")
    bench.go(sock)
    sock.close()
    bench.turn()
    assert bench.ends == [(0, 1)]


def test_ranks_that_never_came_are_given_up(bench: Bench) -> None:
    bench.processes.signal_ranks(15, 500.0)
    assert bench.ends == [(0, 0), (1, 0)]


def end_of_service(bench: Bench, plan: LaunchPlan) -> ServiceOrLauncherEnded:
    """Starts ``plan`` too, and waits for the end of its one process."""
    bench.processes.start(plan, {"PATH": os.environ.get("PATH", "/bin:/usr/bin")})
    while True:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)
        bench.processes.reap()
        ended = [event for event in bench.events if isinstance(event, ServiceOrLauncherEnded)]
        if ended:
            return ended[0]


EMPTY = PLAN._replace(local_ranks=0, processes=())


@pytest.mark.parametrize(
    ("script", "users", "code", "words"),
    [
        ("echo oh >&2; exit 3", False, 72, "ps 0 ended before the job was done (exit code 3) on algo-1"),
        ("exit 0", False, 72, "ps 0 ended before the job was done (exit code 0) on algo-1"),
        ("echo ValueError: no parameters >&2; exit 3", True, 3, "ValueError: no parameters"),
        ("kill -9 $$", True, 137, "ps 0 on algo-1, killed by SIGKILL (exit code 137)"),
        ("exit 0", True, 0, ""),
    ],
)
def test_a_service_that_ends(bench: Bench, script: str, users: bool, code: int, words: str) -> None:
    event = end_of_service(bench, EMPTY._replace(processes=(service(script, users),)))
    assert (event.name, event.role, event.vital) == ("ps 0", "service", True)
    assert (event.failure.code if event.failure else 0) == code
    assert words in (event.failure.reason if event.failure else "")


def test_an_mpis_launcher_is_vital_and_its_own_end_a_symptom(bench: Bench) -> None:
    """It ends when a rank or a host does; who knows better has a moment to say so."""
    mpirun = ProcessPlan("launcher", "mpirun", (Argument("/bin/sh"), Argument("-c"), Argument("exit 5")))
    event = end_of_service(bench, EMPTY._replace(processes=(mpirun,), daemons=("orted",)))
    assert event.vital and event.failure is not None
    assert event.failure.kind == "infra", "no rank had come up"


def test_services_are_started_first(bench: Bench, tmp_path: Path) -> None:
    rank = ProcessPlan("rank", "rank 0", (Argument("/bin/true"),), rank=0, local_rank=0)
    bench.processes.start(
        EMPTY._replace(local_ranks=1, processes=(rank, service("sleep 600"))), {"PATH": "/bin:/usr/bin"}
    )
    assert bench.started == ["torchrun", "ps 0", "rank 0"]


def test_our_own_programs_stand_where_the_plan_names_them(bench: Bench) -> None:
    script = (
        'test -r "$0" && test -x "$AGENT" && test "$1 $MINE" = "{muster:nothing} {muster:launch_agent}" && echo found'
    )
    process = service(script, name="server")
    process = process._replace(
        argv=(*process.argv, program_of_ours("horovod_rendezvous"), Argument("{muster:nothing}")),
        environment=(
            EnvSetting("AGENT", *program_of_ours("launch_agent")),
            EnvSetting("MINE", "{muster:launch_agent}", "theirs"),
        ),
    )
    event = end_of_service(bench, EMPTY._replace(processes=(process,)))
    assert event.failure is not None
    assert "found" in event.failure.reason


def test_a_launchers_folder_for_passing_things_is_private_and_goes(tmp_path: Path) -> None:
    script = 'test "$MUSTER_USER_TMPDIR" = "$MINE" && touch "$TMPDIR/left" && pwd && echo "$TMPDIR" && exit 1'
    launcher = ProcessPlan("launcher", "mpirun", (Argument("/bin/sh"), Argument("-c"), Argument(script)))
    bench = Bench(EMPTY)
    bench.processes.start(EMPTY._replace(processes=(launcher,)), {"TMPDIR": str(tmp_path), "MINE": str(tmp_path)})
    os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)
    (folder,) = tmp_path.iterdir()
    assert (folder.stat().st_mode & 0o777, [path.name for path in folder.iterdir()]) == (0o700, ["left"])
    bench.processes.reap()
    bench.close()
    assert list(tmp_path.iterdir()) == []


MPI = PLAN._replace(launcher="mpi", under_mpi=True, processes=(PLAN.processes[0]._replace(name="mpirun"),))


def of_two(bench: Bench) -> tuple[socket.socket, socket.socket]:
    """The stubs of two running ranks."""
    first, second = (bench.call(f"rank {rank} {rank} 2 {os.getpid()}") for rank in (0, 1))
    for sock in (first, second):
        bench.go(sock)
        bench.say(sock, f"started {os.getppid()}")
    return first, second


def test_an_mpi_learns_that_a_rank_has_ended_long_before_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(foreign_ranks, "LEFT_ALONE", 0.0)
    bench = Bench(MPI)
    first, _ = of_two(bench)
    bench.say(first, "ended 0")
    bench.turn()
    assert first.recv(16) == b"release\n"
    bench.close()


@pytest.mark.parametrize("said", ["signal 15", "gone"])
@pytest.mark.parametrize("left", [True, False])
def test_an_mpi_that_ends_ranks_for_no_other_reason_ends_the_job(
    monkeypatch: pytest.MonkeyPatch, said: str, left: bool
) -> None:
    for name in ("LEFT_ALONE", "UNEXPLAINED"):
        monkeypatch.setattr(foreign_ranks, name, 0.0)
    bench = Bench(MPI)
    first, second = of_two(bench)
    if left:
        bench.say(first, "ended 0")
        bench.turn()
    second.close() if said == "gone" else bench.say(second, said)
    bench.turn()
    failure = bench.broken[0]
    assert (failure.code, failure.kind) == ((1, "user") if left else (72, "peer"))
    assert ("rank 0 (local rank 0) on algo-1 ended with exit code 0, but without" in failure.reason) == left
    bench.close()


@pytest.mark.parametrize("plan", [PLAN, MPI])
def test_other_launchers_may_signal_what_they_like(monkeypatch: pytest.MonkeyPatch, plan: LaunchPlan) -> None:
    """And an MPI when the ranks were signalled to end."""
    monkeypatch.setattr(foreign_ranks, "UNEXPLAINED", 0.0)
    bench = Bench(plan)
    _, second = of_two(bench)
    if plan is MPI:
        monkeypatch.setattr(bench.processes, "is_ending", True)
    bench.say(second, "signal 15")
    bench.turn()
    assert bench.broken == []
    bench.close()


MEETING = Meeting(7777, (), True, "libtorch", ("torch",), "call it")
WORLD = LaunchPlan(
    "accelerate", "algo-1", (ProcessPlan("rank", "rank 0", (Argument("sleep"), Argument("0")), rank=0, local_rank=0),),
    (), 1, 2, 0, "/", meeting=MEETING,
)  # fmt: skip


@pytest.mark.parametrize("launches", [False, True])
def test_a_world_whose_ranks_never_met_is_broken(launches: bool) -> None:
    """Not where they are launchers, which meet nobody."""
    bench = Bench(WORLD)
    try:
        if launches:
            bench.call("launch 7")
        while not any(isinstance(event, RankEnded) for event in bench.events):
            os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)
            bench.processes.reap()
        assert [failure.code for failure in bench.broken] == ([] if launches else [72])
        assert bench.events[-1] == RankEnded(0, None)
        bench.events.clear()
        bench.processes.signal_ranks(9, 500.0)
    finally:
        bench.close()
    assert bench.broken == []
