"""``muster local`` as people run it: the real entry point on two hosts of this machine."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import tarfile
from pathlib import Path

import pytest

from musterpoint.local.netns_hosts import why_unavailable

from .conftest import Local, Ran, pids

NO_NETNS = why_unavailable()
BACKENDS = {
    "process": ("--backend", "process"),
    "one-address": ("--backend", "process", "--one-address"),
    "netns": ("--backend", "netns"),
}
EACH = [
    pytest.param(name, marks=[pytest.mark.skipif(bool(NO_NETNS), reason=NO_NETNS)] if name == "netns" else [])
    for name in BACKENDS
]

PROGRAM = """
import os, signal, sys, time
rank, what = int(os.environ["RANK"]), sys.argv[1]
def save(*_):
    with open(os.environ["SM_MODEL_DIR"] + f"/checkpoint-{rank}", "w") as file:
        file.write("saved")
    sys.exit(0)
signal.signal(signal.SIGTERM, save)
if os.fork() == 0:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    os.setsid()
    time.sleep(3600)
os.write(1, f"rank {rank} is {what}\\n".encode())
if what == "failing" and rank == 1:
    raise ValueError("bad batch")
if what == "killed" and rank == 1:
    os.kill(os.getpid(), signal.SIGKILL)
if what != "done":
    while True:  # in one long sleep, a signal that comes just before it begins is heard when it ends
        time.sleep(0.05)
"""


@pytest.fixture
def local(local: Local) -> Local:
    """With lines as users see them."""
    del local.environ["MUSTER_LOG_PREFIX"]
    return local


def start(local: Local, *options: str, what: str, program: str = PROGRAM) -> subprocess.Popen[str]:
    return local.start("--hosts", "2", "--launcher", "ranks", *options, local.program(program), what)


def end(local: Local, running: subprocess.Popen[str]) -> Ran:
    ran = local.finish(running)
    assert pids(local.token) == [], ran.stderr
    return ran


def run(local: Local, *options: str, what: str, program: str = PROGRAM) -> Ran:
    return end(local, start(local, *options, what=what, program=program))


def model(ran: Ran) -> list[str]:
    with tarfile.open(ran.output / "model.tar.gz") as tar:
        return sorted(tar.getnames())


@pytest.mark.lane("suite")
@pytest.mark.parametrize("name", EACH)
def test_a_job_that_goes_well(local: Local, name: str) -> None:
    ran = run(local, *BACKENDS[name], "--slots", "2", what="done")
    assert ran.code == 0, ran.stderr
    said = sorted(line for line in ran.stdout.splitlines() if "is done" in line)
    assert said == [
        "algo-1 | [rank 0] rank 0 is done",
        "algo-1 | [rank 1] rank 1 is done",
        "algo-2 | [rank 2] rank 2 is done",
        "algo-2 | [rank 3] rank 3 is done",
    ]
    assert (ran.job["TrainingJobStatus"], ran.job["Backend"]) == ("Completed", name.replace("one-address", "process"))
    assert len(list((ran.output / "hosts/algo-2/ranks").iterdir())) == 2
    moments = json.loads((ran.output / "timeline.json").read_text())
    assert {moment["host"] for moment in moments} == {"control plane", "algo-1", "algo-2"}


@pytest.mark.lane("suite")
@pytest.mark.parametrize("name", EACH)
@pytest.mark.parametrize(
    ("what", "code", "words"), [("failing", 1, "ValueError: bad batch"), ("killed", 137, "SIGKILL")]
)
def test_the_second_host_fails(local: Local, name: str, what: str, code: int, words: str) -> None:
    ran = run(local, *BACKENDS[name], what=what)
    assert ran.code == code
    assert [host["ExitCode"] for host in ran.job["Hosts"]] == [code, code]
    assert ran.job["TrainingJobStatus"] == "Failed"
    for word in (words, "rank 1", "algo-2", f"exit code {code}"):
        assert word in ran.job["FailureReason"]
    failures = {(ran.output / f"hosts/{host}/opt/ml/output/failure").read_text() for host in ("algo-1", "algo-2")}
    assert len(failures) == 1


@pytest.mark.lane("suite")
def test_stop_training_job(local: Local) -> None:
    """The same stop as Ctrl-C, which is tried with every backend, after a time."""
    ran = run(local, *BACKENDS["process"], "--stop-after", "25", "--stop-grace", "10", "--json", what="busy")
    assert ran.code == 143
    assert json.loads(ran.stdout) == ran.job
    assert (ran.job["TrainingJobStatus"], ran.job["ExitCode"]) == ("Stopped", 143)
    assert "algo-1 | rank 0 is busy" in ran.stderr
    assert model(ran) == ["checkpoint-0", "checkpoint-1"]


def until_both_are_busy(running: subprocess.Popen[str]) -> None:
    assert running.stdout is not None
    busy = 0
    while busy < 2:
        line = running.stdout.readline()
        assert line, "muster local ended early"
        busy += "is busy" in line


@pytest.mark.lane("suite")
@pytest.mark.parametrize("name", EACH)
def test_ctrl_c_stops_and_saves(local: Local, name: str) -> None:
    running = start(local, *BACKENDS[name], "--stop-grace", "10", what="busy")
    until_both_are_busy(running)
    running.send_signal(signal.SIGINT)
    ran = end(local, running)
    assert (ran.code, ran.job["TrainingJobStatus"]) == (130, "Stopped")
    assert ": Ctrl-C; the hosts have " in ran.stderr
    assert model(ran) == ["checkpoint-0", "checkpoint-1"]


@pytest.mark.parametrize("name", EACH)
def test_a_second_ctrl_c_kills(local: Local, name: str) -> None:
    lingers = PROGRAM.replace("sys.exit(0)", "time.sleep(3600)")
    running = start(local, *BACKENDS[name], what="busy", program=lingers)
    until_both_are_busy(running)
    running.send_signal(signal.SIGINT)
    assert running.stderr is not None
    while "Stopping" not in running.stderr.readline():
        pass
    running.send_signal(signal.SIGINT)
    ran = end(local, running)
    assert (ran.code, ran.job["TrainingJobStatus"]) == (137, "Stopped")


@pytest.mark.parametrize("name", EACH)
def test_a_control_plane_that_dies_takes_its_hosts_along(local: Local, name: str) -> None:
    running = start(local, *BACKENDS[name], what="busy")
    until_both_are_busy(running)
    left = [os.pidfd_open(pid) for pid in pids(local.token) if pid != running.pid]
    assert len(left) >= 4
    running.kill()
    for pidfd in left:
        assert select.select([pidfd], [], [], 500)[0]
        os.close(pidfd)
    running.communicate()
    assert pids(local.token) == []


@pytest.mark.lane("suite")
@pytest.mark.skipif(bool(NO_NETNS), reason=NO_NETNS)
def test_a_host_that_is_killed_is_named(local: Local) -> None:
    running = start(local, *BACKENDS["netns"], what="busy")
    until_both_are_busy(running)
    first = [
        pid for pid in children(running.pid, 3)
        if b"musterpoint.cli.train" in Path(f"/proc/{pid}/cmdline").read_bytes()
        and "algo-2" in Path(f"/proc/{pid}/environ").read_text(errors="replace")
        and is_first(pid)
    ]  # fmt: skip
    assert len(first) == 1
    os.kill(first[0], signal.SIGKILL)
    ran = end(local, running)
    assert ran.code == 76
    assert "algo-2" in ran.job["FailureReason"]
    assert [host["ExitCode"] for host in ran.job["Hosts"]] == [76, 137]


def children(pid: int, depth: int) -> list[int]:
    if depth == 0:
        return []
    below = [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return below + [pid for child in below for pid in children(child, depth - 1)]


def is_first(pid: int) -> bool:
    """Whether the process is PID 1 in its namespace."""
    status = Path(f"/proc/{pid}/status").read_text()
    return next(line for line in status.splitlines() if line.startswith("NSpid:")).split()[-1] == "1"


def test_hyperparameters_and_arguments_reach_the_program(local: Local) -> None:
    options = ("--backend", "process", "--hyperparameters", '{"lr": 0.1, "b": true}', "--launcher", "script")
    ran = run(local, *options, what="--epochs=3", program="import sys; print(sys.argv[1:])")
    assert ran.code == 0, ran.stderr
    assert "algo-1 | ['--lr', '0.1', '-b', 'True', '--epochs=3']" in ran.stdout.splitlines()
