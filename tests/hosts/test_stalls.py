"""Jobs that stand still, on real hosts: who waits where is said, and the job ends, or goes on."""

from __future__ import annotations

import pickle
import re
from pathlib import Path
from typing import Any

import pytest

from ..faults import in_collective

DOTS = "import os, sys, time\n" + in_collective.DOTS

TRAIN = (
    DOTS
    + """
import torch
import torch.distributed as dist

def step():
    if dist.get_rank() == 3:
        slow_read()
    dist.all_reduce(torch.ones(4))

dist.init_process_group("gloo")
dist.barrier()
hanging.set()
step()
"""
)

QUIET = (
    DOTS
    + """
def until(name):
    while not os.path.exists(os.path.join(sys.argv[1], name)):
        time.sleep(0.01)

def evaluate():
    while not os.path.exists(os.path.join(sys.argv[1], "evaluated")):
        pass

def waits():
    os.mkfifo(name := f"{sys.argv[1]}/{os.environ['SM_CURRENT_HOST']}")
    print("waiting in", name, flush=True)
    open(name).read()

hanging.set()
if os.environ["SM_CURRENT_HOST"] == "algo-1":
    evaluate()
waits()
"""
)

MPI = """
import time
from mpi4py import MPI

comm = MPI.COMM_WORLD
print("here", flush=True)
if comm.rank == 1:
    time.sleep(300)
comm.Barrier()
"""


def at(text: str, words: str) -> str:
    """Where ``words`` begin a line of the program ``text``."""
    lines = [line.strip() for line in text.splitlines()]
    return f"program.py:{next(number for number, line in enumerate(lines, 1) if line.startswith(words))}"


@pytest.mark.lane("suite")
def test_the_rank_that_the_others_wait_for_is_named(local: Any, py_spy: None) -> None:
    ran = local.run("--hosts", "2", "--slots", "2", "--stall-timeout", "1", "--stop-grace", "1", local.program(TRAIN))
    assert ran.code == 74
    *said, last = ran.reason.splitlines()
    assert re.sub(r"found \d+ s", "found N s", last) == (
        "rank 3 (local rank 1) on algo-2, exit code 74, found N s after the last output here: all ranks were looked at "
        "twice"
    )
    assert said == [
        f"muster: stalled: no output of any rank for 1 s: ranks 0–2 wait in all_reduce ({at(TRAIN, 'dist.all_red')}); "
        f"rank 3 is in slow_read at {at(TRAIN, 'time.sleep(600)')}, asleep"
    ]
    for host, rank in (("algo-1", 0), ("algo-2", 3)):
        assert ran.outcome(host)["code"] == 74
        assert ran.outcome(host)["rank"] == 3
        stacks = ran.left(host, f"data/muster/{host}/stacks.txt")
        assert f"rank {rank}: still, state S" in stacks
        assert f'File "{local.folder}/program.py", line' in stacks
        assert f"last collective: gloo:{'barrier' if rank else 'all_reduce'}, number " in stacks
        record = ran.output / f"hosts/{host}/opt/ml/output/data/muster/{host}/flight_recorder_rank_{rank}"
        assert pickle.loads(record.read_bytes())["entries"][-1]["profiling_name"].startswith("gloo:")


def test_a_busy_rank_is_said_and_a_stall_may_be_borne(local: Any, py_spy: None, tmp_path: Path) -> None:
    words = "--stall-timeout", "1", "--on-stall", "dump", "--launcher", "script"
    process = local.start("--hosts", "2", "--backend", "process", *words, local.program(QUIET), str(tmp_path))
    lines: list[str] = []

    def read_until(text: str) -> None:
        while not any(text in line for line in lines):
            lines.append(process.stdout.readline())
            assert lines[-1], lines

    read_until("no output of any rank for 1 s; rank 0 is in evaluate at program.py:")
    assert lines[-1].endswith("busy: the job goes on\n")
    (tmp_path / "evaluated").touch()
    read_until("it goes on (--on-stall dump)")
    stalled = f"no output of any rank for 1 s: ranks 0, 1 are in waits at {at(QUIET, 'open(name)')};"
    assert stalled in lines[-1]
    for host in ("algo-1", "algo-2"):
        with open(tmp_path / host, "w") as file:
            file.write("on")
    ran = local.finish(process)
    assert ran.code == 0
    assert "rank 0: still" in ran.left("algo-1", "data/muster/algo-1/stacks.txt")


@pytest.mark.netns
def test_every_path_that_is_said_exists_where_it_is_said(local: Any) -> None:
    """A host's own ``/opt/ml`` is in the job's directory for who reads the log."""
    program = local.program("import time\nprint('x', flush=True)\ntime.sleep(600)\n")
    words = ["--backend", "netns", "--hosts", "2", "--launcher", "ranks", "--slots", "1", "--stall-timeout", "3"]
    ran = local.run(*words, program)
    assert ran.code == 74, ran.stderr
    paths = [
        line.partition("are in ")[2] for line in ran.stdout.splitlines() if "the stacks of the ranks here are" in line
    ]
    assert len(paths) == 2
    assert all(Path(path).is_file() for path in paths), paths
    assert "/opt/ml/" not in ran.stdout.replace("hosts/algo-1/opt/ml/", "").replace("hosts/algo-2/opt/ml/", "")
