"""What a job bears: nothing of it is a failure, and the job ends with 0."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

from .fault import BEARS, Fault

if TYPE_CHECKING:
    from .job import Seen

THREAD = """
import threading

def load():
    raise LookupError("no such shard: 17")

meet()
if VICTIM:
    strike()
    threading.Thread(target=load).start()
"""
DAEMONS = """
meet()
if VICTIM:
    strike()
if os.fork() == 0:
    os.setsid()
    mark("child-" + RANK)
    rest()
until("child-" + RANK)
"""


LOGGER = """
import subprocess

LOOP = 'while IFS= read -r line; do sleep 0.2; echo "logged: $line"; done'
logger = subprocess.Popen(["bash", "-c", LOOP], stdin=subprocess.PIPE)
os.dup2(logger.stdin.fileno(), 1)
os.dup2(1, 2)
logger.stdin.close()
"""
"""A logger of the program's own, which is still writing when the program has ended."""
LAST_WORDS = "for step in range(5):\n    print(f'step {step} of rank {RANK}', flush=True)\n"
LEFT = """
FLUSHES = '''
import os, signal, sys, time

def flush(*_):
    os.close(os.open(sys.argv[1], os.O_CREAT))
    os._exit(0)

signal.signal(signal.SIGTERM, flush)
print("ready", flush=True)
time.sleep(600)
'''
import subprocess

meet()
if VICTIM:
    strike()
argv = [sys.executable, "-c", FLUSHES, os.path.join(FOLDER, "flushed-" + RANK)]
shipper = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
shipper.stdout.readline()
"""


def all_lines(seen: Seen) -> None:
    lines = [f"logged: step {step} of rank {rank}" for rank in range(seen.job.ranks) for step in range(5)]
    assert [line for line in lines if line not in seen.logs] == []


def flushed(seen: Seen) -> None:
    """What every rank left running could end by itself, and was named."""
    assert [rank for rank in range(seen.job.ranks) if not seen.job.marked(f"flushed-{rank}")] == []
    assert "ending what the program left running: " in seen.logs


def thread_is_in_the_log(seen: Seen) -> None:
    assert "LookupError: no such shard: 17" in seen.logs


ABORT_LINE = """
said = "Abort(7) on node 0 (rank 0 in comm 0): application called MPI_Abort(MPI_COMM_WORLD, 7) - process "
print(said + RANK, file=sys.stderr, flush=True)
"""


HARMLESS = (
    Fault("nothing", "nothing goes wrong", BEARS, body="meet()\nif VICTIM:\n    strike()\n"),
    Fault(
        "thread", "an exception ends a thread of a rank, and only that", BEARS, body=THREAD, also=thread_is_in_the_log,
        in_cut=False,
    ),
    Fault(
        "silenced", "a rank closes its output and goes on", BEARS, in_cut=False,
        body="meet()\nif VICTIM:\n    strike()\n    os.close(1)\n    os.close(2)\n    time.sleep(1)\n",
    ),
    Fault(
        "daemons", "every rank ends and leaves a child in a session of its own", BEARS, body=DAEMONS, in_cut=False,
        without={"mpich": "its ranks may wait in MPI_Finalize for connections that another rank's child keeps open"},
    ),
    Fault(
        "logger", "every rank writes through a logger of its own, which is slower than the rank", BEARS, in_cut=False,
        body=LOGGER + "meet()\nif VICTIM:\n    strike()\n" + LAST_WORDS, also=all_lines, wait=2,
    ),
    Fault(
        "left-running", "every rank leaves a process that has something to flush", BEARS, body=LEFT, also=flushed,
        in_cut=False, wait=1,
    ),
    Fault(
        "says-abort", "a rank prints what MPICH says of an `MPI_Abort`, and ends with 0", BEARS, in_cut=False,
        body="meet()\nif VICTIM:\n    strike()\n" + textwrap.indent(ABORT_LINE, "    "),
    ),
    Fault(
        "early-leader", "the leader's ranks end long before the others", BEARS,
        body="meet()\nif HOST == 'algo-1':\n    sys.exit()\ntime.sleep(2)\nif VICTIM:\n    strike()\n",
    ),
    Fault(
        "early-worker", "a worker's ranks end long before the others", BEARS,
        body="meet()\nif VICTIM:\n    strike()\nif HOST != 'algo-2':\n    time.sleep(2)\n", wait=2,
    ),
)  # fmt: skip
