"""A job under mpirun that stands still: ranks that wait for another one in MPI do so busily."""

from __future__ import annotations

from typing import Any, Callable

import pytest

from ..test_stalls import MPI, at

# Ranks learn how often they were looked at from the file in which they answer.
HEALTHY = """
import hashlib, os, sys
from mpi4py import MPI

comm = MPI.COMM_WORLD
everybody, hear = comm.allreduce, comm.recv
work = hashlib.pbkdf2_hmac
folder = "/proc/self/fd"
questions = next(n for n in os.listdir(folder) if os.readlink(f"{folder}/{n}").startswith("/memfd:muster-returns-"))

def looked_at(times):
    return int.from_bytes(os.pread(int(questions), 8, 0), "big") > times

def sends_all_the_time():
    while not everybody(looked_at(6), op=MPI.LOR): pass

def computes_in_long_calls():
    if comm.rank == 0:
        while not looked_at(6): work("sha512", b"word", b"salt", 300_000)
        comm.send(None, dest=1)
    else:
        hear(source=0)

print("here", flush=True)
globals()[sys.argv[1]]()
print("well", flush=True)
"""

pytestmark = pytest.mark.netns


def test_a_busy_barrier_is_a_wait(under: Callable[[str], Any]) -> None:
    """There is no py-spy here: the ranks write their stacks themselves."""
    job = under("openmpi4")
    program = job.local.program(MPI)
    ran = job.run(program, "--hosts", "2", "--stall-timeout", "2", "--stop-grace", "1")
    assert ran.code == 74
    waits, sleeps = at(MPI, "comm.Barrier"), at(MPI, "time.sleep")
    assert f"rank 0 waits in Barrier ({waits}); rank 1 is in <module> at {sleeps}, asleep" in ran.reason


@pytest.mark.lane("mpi")
@pytest.mark.parametrize(
    ("flavour", "what"),
    [("openmpi4", "sends_all_the_time"), ("openmpi4", "computes_in_long_calls"), ("mpich", "sends_all_the_time")],
)
def test_who_sends_or_computes_on_one_line_does_not_stand_still(
    under: Callable[[str], Any], py_spy: None, flavour: str, what: str
) -> None:
    job = under(flavour)
    ran = job.run(job.local.program(HEALTHY), "--hosts", "2", "--stall-timeout", "1", arguments=(what,))
    assert ran.code == 0, ran.reason
    assert "busy: the job goes on" in ran.stdout
