"""Checkpoints over restarts and jobs: every host begins with one and the same, and none is forgotten."""

from __future__ import annotations

import json
import shutil
import signal
from pathlib import Path
from typing import Iterator

import pytest

from .test_checkpoints import Job
from .test_restarts import Hosts, said

STEPS = """
import os, sys, time

directory, rank, attempt = os.environ["SM_CHECKPOINT_DIR"], os.environ["RANK"], os.environ["MUSTER_ATTEMPT"]
told = os.path.join(os.path.dirname(os.path.abspath(sys.argv[0])), "told")
def save(step):
    folder = os.path.join(directory, f"new-{step}.tmp")
    os.makedirs(folder)
    with open(os.path.join(folder, f"rank{rank}"), "w") as file:
        file.write(f"{step} of attempt {attempt}")
    time.sleep(0.01)
    os.rename(folder, os.path.join(directory, f"step-{step}"))
    print("rank", rank, "attempt", attempt, "saved", step, flush=True)
steps = sorted(int(name[5:]) for name in os.listdir(directory) if name.startswith("step-"))
print("rank", rank, "attempt", attempt, "from", steps, flush=True)
for step in {1, 2, 3} - set(steps):
    go_on = os.path.join(told, f"{rank}-{attempt}-{step}")
    while not os.path.exists(go_on):
        time.sleep(0.02)
    save(step)
while not os.path.exists(os.path.join(told, "end")):
    time.sleep(0.02)
"""


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Hosts]:
    (tmp_path / "told").mkdir()
    made = Hosts(2, tmp_path, STEPS, "--job-name", "j", "--checkpoints", str(tmp_path / "place"))
    yield made
    made.network.close()


def save(hosts: Hosts, step: int, attempt: int, *ranks: int) -> None:
    """Lets these ranks of an attempt save a checkpoint."""
    for rank in ranks:
        (hosts.folder / "told" / f"{rank}-{attempt}-{step}").touch()


def test_a_host_that_comes_back_and_the_others_begin_with_one_checkpoint(hosts: Hosts) -> None:
    """The leader has a newer one on its disk, of which the other host's part is lost."""
    leader, lost = (hosts.start(host) for host in hosts.network.hosts)
    save(hosts, 1, 0, 0, 1)
    said(leader, "checkpoint 1 is whole at")
    save(hosts, 2, 0, 0)
    said(leader, "rank 0 attempt 0 saved 2")
    lost.signal(signal.SIGKILL)
    said(leader, "waiting up to 100 s for algo-2 to come back")
    shutil.rmtree(hosts.folder / "algo-2")
    again = hosts.start("algo-2")
    said(leader, "rank 0 attempt 1 from [1]")
    said(again, "rank 1 attempt 1 from [1]")
    for step in (1, 2, 3):
        save(hosts, step, 1, 0, 1)
    for rank, process in enumerate((leader, again)):
        said(process, f"rank {rank} attempt 1 saved 3")
    (hosts.folder / "told" / "end").touch()
    assert (leader.code(), again.code()) == (0, 0), (leader.lines, again.lines)
    newest = max((hosts.folder / "place" / "manifests").iterdir())
    [*parts] = json.loads(newest.read_text())["parts"]
    assert {(part["name"], part["place"], part["attempt"]) for part in parts} == {("step-3", 0, 1), ("step-3", 1, 1)}


def test_a_host_that_comes_back_before_any_checkpoint_is_whole(hosts: Hosts) -> None:
    leader, lost = (hosts.start(host) for host in hosts.network.hosts)
    save(hosts, 1, 0, 0)
    said(leader, "rank 0 attempt 0 saved 1")
    said(lost, "rank 1 attempt 0 from []")
    lost.signal(signal.SIGKILL)
    said(leader, "waiting up to 100 s for algo-2 to come back")
    again = hosts.start("algo-2")
    said(leader, "rank 0 attempt 1 from []")
    said(again, "rank 1 attempt 1 from []")


FAMILIES = """
import os
directory = os.environ["SM_CHECKPOINT_DIR"]
print("has", sorted(os.listdir(directory)), flush=True)
def save(name):
    os.makedirs(os.path.join(directory, "new.tmp"))
    with open(os.path.join(directory, "new.tmp", "state"), "w") as file:
        file.write(name)
    os.rename(os.path.join(directory, "new.tmp"), os.path.join(directory, name))
for name in os.environ["SAVES"].split():
    save(name)
"""


def test_a_family_that_isnt_saved_again_stays(tmp_path: Path) -> None:
    """The best one is saved once; a job that goes on saves others only."""
    job = Job(tmp_path, str(tmp_path / "place"))
    job.program.write_text(FAMILIES)
    for names, has in (("best last-1", "[]"), ("last-2", "['best', 'last-1']"), ("last-3", "['best', 'last-2']")):
        code, out, err = job.run("--checkpoint-keep", "1", SAVES=names)
        assert not code and f"has {has}" in out, out + err
        job.forget()
