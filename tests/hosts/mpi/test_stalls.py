"""A job under mpirun that stands still: ranks that wait for another one in MPI do so busily."""

from __future__ import annotations

import re
from typing import Any, Callable

import pytest

from ..test_stalls import MPI, at

FORMS = """
import sys
from mpi4py import MPI

comm = MPI.COMM_WORLD
before, behind = (comm.rank - 1) % comm.size, (comm.rank + 1) % comm.size
hear, look, wait_all = comm.recv, comm.Probe, MPI.Request.Waitall

def in_a_lambda():
    (lambda: comm.recv(source=before))()

def by_an_alias():
    hear(source=before)

def for_a_request():
    done = comm.Irecv(bytearray(8), source=before).Wait
    done()

def for_all_requests():
    wait_all([comm.Irecv(bytearray(8), source=before)])

def in_a_comprehension():
    [hear(source=number) for number in [before]]

def for_any_message():
    look(source=before)

forms = in_a_lambda, by_an_alias, for_a_request, for_all_requests, in_a_comprehension, for_any_message
print("here", flush=True)
forms[comm.rank]()
"""

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
@pytest.mark.parametrize("flavour", ["openmpi4", "openmpi5", "mpich"])
def test_ranks_that_all_wait_busily_stand_still(under: Callable[[str], Any], flavour: str) -> None:
    """Each of them waits for the one before it, and none of the calls is named where it is made."""
    job = under(flavour)
    program = job.local.program(FORMS)
    ran = job.run(program, "--hosts", "2", "--slots", "3", "--stall-timeout", "2", "--stop-grace", "1")
    assert ran.code == 74
    waits = ran.reason.partition("no output of any rank for 2 s: ")[2]
    places = ["(lambda: ", "hear(source=before)", "done()", "wait_all(", "[hear(", "look(source"]
    assert all(f"({at(FORMS, place)})" in waits for place in places), ran.reason
    assert re.search(r"rank 1 waits in (?:another )?a call of its MPI", waits), ran.reason


@pytest.mark.lane("mpi")
@pytest.mark.parametrize(
    ("flavour", "what"),
    [("openmpi4", "sends_all_the_time"), ("openmpi4", "computes_in_long_calls"), ("mpich", "sends_all_the_time")],
)
def test_who_sends_or_computes_on_one_line_does_not_stand_still(
    under: Callable[[str], Any], flavour: str, what: str
) -> None:
    job = under(flavour)
    ran = job.run(job.local.program(HEALTHY), "--hosts", "2", "--stall-timeout", "1", arguments=(what,))
    assert ran.code == 0, ran.reason
    assert "busy: the job goes on" in ran.stdout
