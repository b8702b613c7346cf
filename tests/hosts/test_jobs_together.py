"""Jobs that begin on one machine at nearly the same time, and what two of them were given by name."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from fuzzers.jobs_together import PROGRAM, group

from ..ports import free_port
from .by_hand import Processes, leaving_none
from .conftest import eventually, finished, survivors

QUICK = ("ranks", "script", "local", "hosts", "tensorflow")
WAITS = """
import pathlib, time

folder = pathlib.Path({folder!r})
(folder / "here").touch()
while not (folder / "end").exists():
    time.sleep(0.02)
"""
RANKS = ("--launcher", "ranks")


@pytest.mark.lane("suite")
@pytest.mark.parametrize("number", range(4))
def test_each_job_is_a_world_of_its_own(number: int) -> None:
    assert group(number, QUICK) == []


@pytest.mark.parametrize("number", range(1))
def test_each_job_under_torchrun_is_a_world_of_its_own(number: int) -> None:
    assert group(number, ("torchrun", "standalone", "ranks")) == []


class Jobs(Processes):
    """Runs ``muster`` in ``folder``, where a job of :data:`WAITS` goes on until there is a file ``end``."""

    def __init__(self, python: str, environ: dict[str, str], folder: Path) -> None:
        super().__init__(python, environ, folder)
        self.waits = WAITS.format(folder=str(folder))
        (folder / "waits.py").write_text(self.waits)
        (folder / "world.py").write_text(PROGRAM)

    def start(self, *words: str, **environ: str) -> subprocess.Popen[str]:
        return self.popen(self.python, "-m", "musterpoint", *words, environ=environ, stderr=subprocess.PIPE)

    def waiting(self, *words: str) -> subprocess.Popen[str]:
        """A job whose program runs."""
        process = self.start(*words, "waits.py")
        eventually((self.folder / "here").exists)
        return process

    def run(self, *words: str, **environ: str) -> subprocess.CompletedProcess[str]:
        return finished(self.start(*words, **environ), 60)

    def end(self, process: subprocess.Popen[str]) -> int:
        (self.folder / "end").touch()
        return finished(process, 60).returncode


jobs = leaving_none(Jobs)


@pytest.mark.lane("suite")
@pytest.mark.parametrize("option", ["--master-port", "--tf-port"])
def test_a_port_given_by_name_is_one_jobs(jobs: Jobs, option: str) -> None:
    port = str(free_port())
    launcher = ("--launcher", "tensorflow" if option == "--tf-port" else "ranks")
    first = jobs.waiting("launch", *launcher, option, port)
    second = jobs.run("launch", *launcher, option, port, "world.py", JOB="second")
    assert second.returncode == 64
    assert f"{option} {port}: port {port} is held by another job on this host, process {first.pid} " in second.stderr
    assert jobs.end(first) == 0
    third = jobs.run("launch", *launcher, option, port, "world.py", JOB="third")
    assert (third.returncode, third.stdout) == (0, "world third\n")


@pytest.mark.lane("suite")
@pytest.mark.parametrize("how", ["launch", "local"])
def test_a_job_name_is_one_jobs(jobs: Jobs, how: str) -> None:
    first = jobs.waiting("launch", *RANKS, "--job-name", "mine")
    second = jobs.run(how, *RANKS, "--job-name", "mine", "world.py", JOB="second")
    assert second.returncode == 64
    assert str(jobs.folder / "muster-jobs/mine") in second.stderr
    other = jobs.run(how, *RANKS, "--job-name", "other", "world.py", JOB="other")
    assert other.returncode == 0, other.stderr
    assert jobs.end(first) == 0
    assert jobs.run("launch", *RANKS, "--job-name", "mine", "world.py", JOB="third").returncode == 0


def test_a_launch_does_not_share_the_directory_of_a_local_job(jobs: Jobs) -> None:
    first = jobs.start("local", *RANKS, "--job-name", "mine", "waits.py")
    eventually((jobs.folder / "muster-jobs/mine/hosts").exists)
    second = jobs.run("launch", *RANKS, "--job-name", "mine", "world.py", JOB="second")
    assert (second.returncode, "muster-jobs/mine is in use" in second.stderr) == (64, True)
    eventually((jobs.folder / "here").exists)
    assert jobs.end(first) == 0


def test_jobs_without_a_name_have_directories_of_their_own(jobs: Jobs) -> None:
    show = "print(__import__('os').environ['SM_MODEL_DIR'])"
    (jobs.folder / "waits.py").write_text(f"{show}\n{jobs.waits}")
    first = jobs.waiting("launch", *RANKS)
    (jobs.folder / "waits.py").write_text(show)
    second = jobs.run("launch", *RANKS, "waits.py")
    assert second.stdout == f"{jobs.folder}/muster-jobs/waits-2/model\n", second.stderr
    assert f"{jobs.folder}/muster-jobs/waits is in use by another job" in second.stderr
    assert (jobs.folder / "muster-jobs/waits-2/hosts").is_dir()
    assert jobs.end(first) == 0
    assert jobs.run("launch", *RANKS, "waits.py").stdout == f"{jobs.folder}/muster-jobs/waits/model\n"


def test_a_directory_is_one_jobs_of_unnamed_hosts(jobs: Jobs) -> None:
    def hosts(program: str) -> list[subprocess.Popen[str]]:
        words = ("--nnodes", "2", "--master-addr", "127.0.0.1", "--muster-rollcall-port", str(free_port()))
        return [jobs.start("torchrun", *words, "--node-rank", str(place), program, JOB="second") for place in range(2)]

    first = hosts("waits.py")
    eventually((jobs.folder / "here").exists)
    for process in hosts("waits.py"):
        done = finished(process, 60)
        assert (done.returncode, "muster-jobs/waits is in use" in done.stderr) == (64, True), done.stderr
    assert [jobs.end(process) for process in first] == [0, 0]


def test_two_jobs_of_one_program_are_two_worlds(jobs: Jobs) -> None:
    """A sweep in a ``run.sh``: both are planned inside of the outer job."""
    lines = [f"JOB={name} muster launch --launcher ranks --slots 2 world.py & {name}=$!" for name in ("one", "two")]
    script = jobs.folder / "sweep.sh"
    script.write_text("\n".join(("#!/bin/bash", *lines, "wait $one && wait $two")))
    bin_folder = os.path.dirname(jobs.python)
    done = jobs.run("launch", "--launcher", "script", "sweep.sh", PATH=f"{bin_folder}:{os.environ['PATH']}")
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == ["world one one"] * 2 + ["world two two"] * 2


def test_a_log_directory_is_one_jobs(jobs: Jobs) -> None:
    first = jobs.waiting("launch", *RANKS, "--log-dir", "logs")
    second = jobs.run("launch", *RANKS, "--log-dir", "logs", "world.py", JOB="second")
    assert (second.returncode, "--log-dir logs: another job" in second.stderr) == (64, True)
    assert jobs.end(first) == 0
    assert jobs.run("launch", *RANKS, "--log-dir", "logs", "world.py", JOB="third").returncode == 0
    assert (jobs.folder / "logs/rank-0.log").read_text() == "world third\n"


@pytest.mark.parametrize("launcher", ["script", "ranks", "torchrun"])
def test_the_next_job_meets_no_rank_of_one_whose_supervisor_was_killed(jobs: Jobs, launcher: str) -> None:
    next_job_after_a_kill(jobs, launcher)


def next_job_after_a_kill(jobs: Jobs, launcher: str) -> None:
    """The supervisor of a job is killed when its ranks are about to listen; another job has the same port then."""
    late = "import os, pathlib, time\npathlib.Path('here').touch()\ntime.sleep(2)\n"
    (jobs.folder / "late.py").write_text(late + PROGRAM)
    port, size = str(free_port()), 1 if launcher == "script" else 2
    words = ("launch", "--launcher", launcher, "--master-port", port, "--job-name")
    more = {"WITH_TORCH": "1"} if launcher == "torchrun" else {}
    more |= {"MUSTER_SLOTS": "2"} if size == 2 else {}
    first = jobs.start(*words, "first", "late.py", JOB="first", **more)
    eventually((jobs.folder / "here").exists)
    first.send_signal(signal.SIGKILL)
    finished(first, 60)
    second = jobs.run(*words, "second", "world.py", JOB="second", **more)
    expected = [" ".join(["world", *["second"] * size])] * size
    assert (second.returncode, second.stdout.splitlines()) == (0, expected), second.stderr
    eventually(lambda: not survivors(jobs.token))
