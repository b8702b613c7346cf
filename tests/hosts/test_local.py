"""``muster local`` as people run it: the real entry point on two hosts of this machine."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tarfile
import uuid
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from musterpoint.local.netns_hosts import why_unavailable

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
rank, mark, what = int(os.environ["RANK"]), *sys.argv[1:3]
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


class Ended(NamedTuple):
    code: int
    out: str
    err: str
    left: Path

    @property
    def job(self) -> dict[str, Any]:
        description: dict[str, Any] = json.loads((self.left / "job.json").read_text())
        return description

    def model(self) -> list[str]:
        with tarfile.open(self.left / "model.tar.gz") as tar:
            return sorted(tar.getnames())


class Muster:
    """Runs jobs whose processes all carry a mark, and knows when one of them is left."""

    def __init__(self, directory: Path, environ: dict[str, str]) -> None:
        self.directory = directory
        self.environ = environ
        self.mark = f"mark-{uuid.uuid4().hex}"
        (directory / "code").mkdir()
        (directory / "code" / "train.py").write_text(PROGRAM)

    def start(self, *options: str, what: str) -> subprocess.Popen[str]:
        command = [
            sys.executable, "-m", "musterpoint", "local", "--hosts", "2", "--launcher", "ranks",
            "--output", str(self.directory / "out"), *options, "code/train.py", self.mark, what,
        ]  # fmt: skip
        return subprocess.Popen(
            command, cwd=self.directory, env=self.environ, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )

    def end(self, muster: subprocess.Popen[str]) -> Ended:
        out, err = muster.communicate(timeout=500)
        assert self.pids() == set(), err
        return Ended(muster.returncode, out, err, self.directory / "out")

    def run(self, *options: str, what: str) -> Ended:
        return self.end(self.start(*options, what=what))

    def pids(self) -> set[int]:
        found = set()
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                if entry.name.isdigit() and self.mark.encode() in (entry / "cmdline").read_bytes():
                    found.add(int(entry.name))
        return found


@pytest.fixture
def muster(tmp_path: Path, environ: dict[str, str]) -> Muster:
    return Muster(tmp_path, environ)


@pytest.mark.lane("suite")
@pytest.mark.parametrize("name", EACH)
def test_a_job_that_goes_well(muster: Muster, name: str) -> None:
    ended = muster.run(*BACKENDS[name], "--slots", "2", what="done")
    assert ended.code == 0, ended.err
    said = sorted(line for line in ended.out.splitlines() if "is done" in line)
    assert said == [
        "algo-1 | [rank 0] rank 0 is done",
        "algo-1 | [rank 1] rank 1 is done",
        "algo-2 | [rank 2] rank 2 is done",
        "algo-2 | [rank 3] rank 3 is done",
    ]
    assert (ended.job["TrainingJobStatus"], ended.job["Backend"]) == (
        "Completed",
        name.replace("one-address", "process"),
    )
    assert len(list((ended.left / "hosts/algo-2/ranks").iterdir())) == 2
    moments = json.loads((ended.left / "timeline.json").read_text())
    assert {moment["host"] for moment in moments} == {"control plane", "algo-1", "algo-2"}


@pytest.mark.lane("suite")
@pytest.mark.parametrize("name", EACH)
@pytest.mark.parametrize(
    ("what", "code", "words"), [("failing", 1, "ValueError: bad batch"), ("killed", 137, "SIGKILL")]
)
def test_the_second_host_fails(muster: Muster, name: str, what: str, code: int, words: str) -> None:
    ended = muster.run(*BACKENDS[name], what=what)
    assert ended.code == code
    assert [host["ExitCode"] for host in ended.job["Hosts"]] == [code, code]
    assert ended.job["TrainingJobStatus"] == "Failed"
    for word in (words, "rank 1", "algo-2", f"exit code {code}"):
        assert word in ended.job["FailureReason"]
    failures = {(ended.left / f"hosts/{host}/opt/ml/output/failure").read_text() for host in ("algo-1", "algo-2")}
    assert len(failures) == 1


@pytest.mark.lane("suite")
def test_stop_training_job(muster: Muster) -> None:
    """The same stop as Ctrl-C, which is tried with every backend, after a time."""
    ended = muster.run(*BACKENDS["process"], "--stop-after", "25", "--stop-grace", "10", "--json", what="busy")
    assert ended.code == 143
    assert json.loads(ended.out) == ended.job
    assert (ended.job["TrainingJobStatus"], ended.job["ExitCode"]) == ("Stopped", 143)
    assert "algo-1 | rank 0 is busy" in ended.err
    assert ended.model() == ["checkpoint-0", "checkpoint-1"]


def until_both_are_busy(running: subprocess.Popen[str]) -> None:
    assert running.stdout is not None
    busy = 0
    while busy < 2:
        line = running.stdout.readline()
        assert line, "muster local ended early"
        busy += "is busy" in line


@pytest.mark.lane("suite")
@pytest.mark.parametrize("name", EACH)
def test_ctrl_c_stops_and_saves(muster: Muster, name: str) -> None:
    running = muster.start(*BACKENDS[name], "--stop-grace", "10", what="busy")
    until_both_are_busy(running)
    running.send_signal(signal.SIGINT)
    ended = muster.end(running)
    assert (ended.code, ended.job["TrainingJobStatus"]) == (143, "Stopped")
    assert ended.model() == ["checkpoint-0", "checkpoint-1"]


@pytest.mark.parametrize("name", EACH)
def test_a_second_ctrl_c_kills(muster: Muster, name: str) -> None:
    (muster.directory / "code" / "train.py").write_text(PROGRAM.replace("sys.exit(0)", "time.sleep(3600)"))
    running = muster.start(*BACKENDS[name], what="busy")
    until_both_are_busy(running)
    running.send_signal(signal.SIGINT)
    assert running.stderr is not None
    while "Stopping" not in running.stderr.readline():
        pass
    running.send_signal(signal.SIGINT)
    ended = muster.end(running)
    assert (ended.code, ended.job["TrainingJobStatus"]) == (137, "Stopped")


@pytest.mark.parametrize("name", EACH)
def test_a_control_plane_that_dies_takes_its_hosts_along(muster: Muster, name: str) -> None:
    import select

    running = muster.start(*BACKENDS[name], what="busy")
    until_both_are_busy(running)
    left = [os.pidfd_open(pid) for pid in muster.pids() - {running.pid}]
    assert len(left) >= 4
    running.kill()
    for pidfd in left:
        assert select.select([pidfd], [], [], 500)[0]
        os.close(pidfd)
    running.communicate()
    assert muster.pids() == set()


@pytest.mark.lane("suite")
@pytest.mark.skipif(bool(NO_NETNS), reason=NO_NETNS)
def test_a_host_that_is_killed_is_named(muster: Muster) -> None:
    running = muster.start(*BACKENDS["netns"], what="busy")
    until_both_are_busy(running)
    first = [
        pid for pid in children(running.pid, 3)
        if b"musterpoint.cli.train" in Path(f"/proc/{pid}/cmdline").read_bytes()
        and "algo-2" in Path(f"/proc/{pid}/environ").read_text(errors="replace")
        and is_first(pid)
    ]  # fmt: skip
    assert len(first) == 1
    os.kill(first[0], signal.SIGKILL)
    ended = muster.end(running)
    assert ended.code == 76
    assert "algo-2" in ended.job["FailureReason"]
    assert [host["ExitCode"] for host in ended.job["Hosts"]] == [76, 137]


def children(pid: int, depth: int) -> list[int]:
    if depth == 0:
        return []
    below = [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return below + [pid for child in below for pid in children(child, depth - 1)]


def is_first(pid: int) -> bool:
    """Whether the process is PID 1 in its namespace."""
    status = Path(f"/proc/{pid}/status").read_text()
    return next(line for line in status.splitlines() if line.startswith("NSpid:")).split()[-1] == "1"


def test_hyperparameters_and_arguments_reach_the_program(muster: Muster) -> None:
    (muster.directory / "code" / "train.py").write_text("import sys; print(sys.argv[1:])")
    options = ("--backend", "process", "--hyperparameters", '{"lr": 0.1, "b": true}', "--launcher", "script")
    ended = muster.run(*options, what="--epochs=3")
    assert ended.code == 0, ended.err
    assert f"algo-1 | ['--lr', '0.1', '-b', 'True', '{muster.mark}', '--epochs=3']" in ended.out.splitlines()
