"""Jobs that stand still, on real hosts: who waits where is said, and the job ends, or goes on."""

from __future__ import annotations

import pickle
import re
import signal
from pathlib import Path
from typing import Any

import pytest

from ..faults import in_collective
from ..ports import free_port
from .by_hand import Processes, leaving_none

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

LATE = """
import datetime, os, signal, time
import torch
import torch.distributed as dist

def save():
    while True:
        time.sleep(600)

dist.init_process_group("gloo")
group = dist.new_group(timeout=datetime.timedelta(seconds=1))
dist.barrier()
if dist.get_rank() == 3:
    signal.signal(signal.SIGTERM, lambda *_: None)
    save()
dist.all_reduce(torch.ones(4), group=group)
"""

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


@pytest.mark.parametrize("launcher", ["ranks", "torchrun"])
def test_the_rank_that_a_call_timed_out_for_is_named(local: Any, py_spy: None, launcher: str) -> None:
    words = "--hosts", "2", "--slots", "2", "--launcher", launcher, "--stop-grace", "2"
    ran = local.run(*words, local.program(LATE))
    assert ran.code == 1
    what, late, who, *_ = ran.reason.splitlines()
    assert "imed out" in what and re.match(r"rank [0-2] \(local rank [01]\) on algo-[12], exit code 1$", who)
    spot = f"{at(LATE, 'time.sleep(600)')}, in save, asleep"
    assert late == f"rank 3 (local rank 1) on algo-2 was not in the call: at {spot}"
    assert {ran.outcome(host)["reason"].splitlines()[1] for host in ("algo-1", "algo-2")} == {late}
    assert f"musterpoint: rank 3 didn't end in its 2 s: killed at {spot}\n" in ran.stdout


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


AT_ITS_END = """
import os, threading
print("rank", os.environ["RANK"], flush=True)
threading.Thread(target=threading.Event().wait).start()
"""
SHORT = """
import sys
from musterpoint.cli.main import main
from musterpoint.core.supervise import watcher
watcher.UNASKED_SECONDS = 1.0
from musterpoint.core.supervise.watchers import stalls
stalls.IDLE_SECONDS, stalls.WINDOW_SECONDS = 1.0, 0.5
sys.exit(main())
"""
"""The command, which waits less."""
by_hand = leaving_none(Processes)


def test_ranks_that_wait_for_ever_are_said_without_an_option_and_the_job_goes_on(py_spy: None, by_hand: Any) -> None:
    (by_hand.folder / "program.py").write_text(AT_ITS_END)
    words = ("launch", "--nnodes", "2", "--rollcall-leader", f"127.0.0.1:{free_port()}", "--launcher", "ranks")
    hosts = [
        by_hand.popen(by_hand.python, "-c", SHORT, *words, "--node-rank", str(place), "program.py", environ={})
        for place in range(2)
    ]
    said = "no output of any rank for 1 s, and none has used a processor for 1 s: ranks 0, 1 wait for a thread; the job"
    for host in hosts:
        lines = iter(host.stdout.readline, "")
        assert next((line for line in lines if said in line), "")
        assert next((line for line in lines if "the stacks of the ranks here are in" in line), "")
    hosts[0].send_signal(signal.SIGTERM)
    for host in hosts:
        rest, _ = host.communicate()
        assert host.returncode == 143 and said not in rest


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
