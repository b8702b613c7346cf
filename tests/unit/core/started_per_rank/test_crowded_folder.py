"""Entry points of one host that meet while other jobs of the user make and remove the directory: one of them leads."""

from __future__ import annotations

import subprocess
from pathlib import Path

PROGRAM = """
import multiprocessing, os, select, sys
from musterpoint.base.loop import Loop
from musterpoint.core.processes.private_folder import private_folder, remove
from musterpoint.core.started_per_rank.election import elect, leave

above, COUNT, ROUNDS = sys.argv[1], 4, 200


def meet(number):
    met = elect(Loop(), "host", folders=(above,))
    if not met.leads:
        met.sock.send(b"1")  # it knows the token
        assert met.sock.recv(1) == b"", "the one that leads has another one's socket"
        return
    others = []
    for come in range(COUNT - 1):
        assert select.select([met.sock], [], [], 100)[0], f"round {number}: {come} of {COUNT - 1} came"
        others.append(met.sock.accept()[0])
        others[-1].recv(1)
    leave(met.place)
    for each in (*others, met.sock):
        each.close()


def entry_point(barrier):
    try:
        for number in range(ROUNDS):
            barrier.wait()
            meet(number)
    except BaseException:
        barrier.abort()
        raise


def other_job(over):
    while not over.is_set():
        path = os.path.join(private_folder((above,)), f"job-{os.getpid()}")
        try:
            open(path, "w").close()
        except FileNotFoundError:
            continue
        remove(path)


made = multiprocessing.get_context("fork")
barrier, over = made.Barrier(COUNT), made.Event()
jobs = [made.Process(target=other_job, args=(over,)) for _ in range(2)]
entry_points = [made.Process(target=entry_point, args=(barrier,)) for _ in range(COUNT)]
for each in (*jobs, *entry_points):
    each.start()
for each in entry_points:
    each.join()
over.set()
for each in jobs:
    each.join()
sys.exit(any(each.exitcode for each in (*jobs, *entry_points)))
"""


def test_one_leads_whoever_removes_the_directory(python: str, environ: dict[str, str], tmp_path: Path) -> None:
    """A lock on a directory that was removed meanwhile is no lock on the one that is at its path now."""
    done = subprocess.run([python, "-c", PROGRAM, tmp_path], env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
