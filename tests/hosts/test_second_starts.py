"""A host's command is typed again while its job gathers, trains or restarts: who answers keeps the seat."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path

import pytest

from ..ports import free_port
from .by_hand import Processes, leaving_none, meeting
from .conftest import eventually, finished

PROGRAM = """
import os, pathlib, time

folder, rank = pathlib.Path({folder!r}), os.environ["RANK"]
(folder / f"rank-{{rank}}-{{os.environ['MUSTER_ATTEMPT']}}").touch()
while not ((folder / "end").exists() or (folder / f"end-{{rank}}").exists()):
    time.sleep(0.05)
"""


class Hosts(Processes):
    """``count`` hosts, each start in a folder of its own: SageMaker's containers, or by hand with node ranks."""

    def __init__(self, python: str, environ: dict[str, str], folder: Path) -> None:
        told = meeting(folder / "names", {f"algo-{place + 1}": f"127.0.0.{41 + place}" for place in range(3)})
        told |= {"MUSTER_LAUNCHER": "ranks", "MUSTER_SLOTS": "1"}
        super().__init__(python, {**environ, **told}, folder)
        self.endpoint = f"127.0.0.1:{free_port()}"
        self.sagemaker, self.count = False, 2
        self.secret = "an example of a secret"

    def start(self, place: int, *words: str, **environ: str) -> subprocess.Popen[str]:
        base = self.folder / f"start-{len(self.started)}"
        base.mkdir()
        (base / "t.py").write_text(PROGRAM.format(folder=str(self.folder)))
        environ = {"MUSTER_SECRET": self.secret, **environ}
        if not self.sagemaker:
            where = ("--nnodes", str(self.count), "--node-rank", str(place), "--rollcall-leader", self.endpoint)
            run = (self.python, "-m", "musterpoint", "launch", *where, "--job-name", "sur", *words, "t.py")
            return self.popen(*run, environ={**environ, "MUSTER_HOSTS_FILE": ""}, cwd=base)
        hosts = [f"algo-{number + 1}" for number in range(self.count)]
        given = {"sagemaker_program": "t.py", "sagemaker_submit_directory": str(base)}
        config = {
            "resourceconfig": {"current_host": hosts[place], "hosts": hosts, "network_interface_name": "lo"},
            "hyperparameters": {name: json.dumps(value) for name, value in given.items()}, "inputdataconfig": {},
        }  # fmt: skip
        (base / "input" / "config").mkdir(parents=True)
        for name, content in config.items():
            (base / "input" / "config" / f"{name}.json").write_text(json.dumps(content))
        environ |= {"SAGEMAKER_BASE_DIR": str(base), "TRAINING_JOB_NAME": "sur"}
        return self.popen(self.python, "-m", "musterpoint.cli.train", *words, environ=environ, cwd=base)

    def training(self, **environ: str) -> list[subprocess.Popen[str]]:
        """All hosts of a job, whose ranks run."""
        hosts = [self.start(place, **environ) for place in range(self.count)]
        for rank in range(self.count):
            self.runs(rank)
        return hosts

    def runs(self, rank: int, attempt: int = 0) -> None:
        """Waits until this rank runs."""
        eventually((self.folder / f"rank-{rank}-{attempt}").exists)

    def end(self, *hosts: subprocess.Popen[str]) -> None:
        """The ranks end, and the job is well on all ``hosts``."""
        (self.folder / "end").touch()
        for host in hosts:
            done = finished(host, 120)
            assert done.returncode == 0, done.stdout


def said(process: subprocess.Popen[str], text: str) -> None:
    """Waits until a host has printed a line with ``text``."""
    assert process.stdout is not None
    seen = []
    while text not in (line := process.stdout.readline()):
        seen.append(line)
        assert line, seen


def refused(process: subprocess.Popen[str], code: int, text: str) -> None:
    done = finished(process, 120)
    assert (done.returncode, text in done.stdout) == (code, True), done.stdout


hosts = leaving_none(Hosts)
KINDS = pytest.mark.parametrize("sagemaker", [False, True], ids=["node ranks", "SageMaker"])
SECRETS = pytest.mark.parametrize("secret", ["", "an example of a secret"], ids=["no secret", "secret"])


@pytest.mark.lane("suite")
@KINDS
def test_a_second_start_is_refused_and_the_job_goes_on(hosts: Hosts, sagemaker: bool) -> None:
    hosts.sagemaker = sagemaker
    job = hosts.training()
    refused(hosts.start(1), 69, "this job has already started with an earlier start of ")
    hosts.end(*job)


@SECRETS
@KINDS
def test_also_where_hosts_may_come_back(hosts: Hosts, sagemaker: bool, secret: str) -> None:
    hosts.sagemaker, hosts.secret = sagemaker, secret
    job = hosts.training(MUSTER_MAX_RESTARTS="1")
    again = hosts.start(1, MUSTER_MAX_RESTARTS="1")
    if sagemaker:
        refused(again, 69, "has the seat of this host: an earlier start of algo-2 (127.0.0.42), which answers")
    else:
        refused(again, 69, "an earlier start" if secret else "another process has this host's place")
    hosts.end(*job)


@KINDS
def test_the_leaders_second_start_finds_its_port_taken(hosts: Hosts, sagemaker: bool) -> None:
    hosts.sagemaker = sagemaker
    job = hosts.training()
    refused(hosts.start(0), 64, f"is held by another job on this host, process {job[0].pid} ")
    hosts.end(*job)


@SECRETS
@KINDS
def test_of_two_starts_before_the_leader_one_has_the_seat(hosts: Hosts, sagemaker: bool, secret: str) -> None:
    hosts.sagemaker, hosts.secret = sagemaker, secret
    starts = [hosts.start(1) for _ in range(2)]
    for process in starts:
        said(process, "waiting for ")
    leader = hosts.start(0)
    hosts.runs(1)
    eventually(lambda: any(process.poll() is not None for process in starts))
    starts.sort(key=lambda process: process.poll() is None)
    refused(starts[0], 69, "refused")
    hosts.end(leader, starts[1])


@SECRETS
@KINDS
def test_a_second_start_while_the_hosts_gather(hosts: Hosts, sagemaker: bool, secret: str) -> None:
    hosts.sagemaker, hosts.secret, hosts.count = sagemaker, secret, 3
    leader, worker = hosts.start(0), hosts.start(1)
    said(leader, "2 of 3 hosts here")
    refused(hosts.start(1), 69, "another process has ")
    if not sagemaker:
        refused(hosts.start(0), 64, "is held by another job on this host")
    hosts.end(leader, worker, hosts.start(2))


@pytest.mark.parametrize("rank", [2, 7])
@SECRETS
def test_a_wrong_node_rank_ends_that_host_alone(hosts: Hosts, rank: int, secret: str) -> None:
    hosts.secret = secret
    job = hosts.training()
    refused(hosts.start(rank), 64, f"--node-rank is {rank}, and there are 2 hosts (--nnodes)")
    hosts.end(*job)


@KINDS
def test_a_second_start_where_the_ranks_are_done(hosts: Hosts, sagemaker: bool) -> None:
    hosts.sagemaker = sagemaker
    job = hosts.training()
    (hosts.folder / "end-1").touch()
    said(job[1], "the ranks here have ended")
    refused(hosts.start(1), 69, "this job has already started with an earlier start of ")
    hosts.end(*job)


@pytest.mark.parametrize("signum", [signal.SIGSTOP, signal.SIGKILL], ids=["frozen", "killed"])
def test_a_start_after_one_that_does_not_answer_has_the_seat(hosts: Hosts, signum: signal.Signals) -> None:
    hosts.sagemaker = True
    leader, worker = hosts.training(MUSTER_MAX_RESTARTS="1")
    worker.send_signal(signum)
    again = hosts.start(1, MUSTER_MAX_RESTARTS="1")
    hosts.runs(1, attempt=1)
    worker.kill()
    finished(worker, 60)
    hosts.end(leader, again)
