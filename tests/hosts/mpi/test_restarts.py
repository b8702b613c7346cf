"""A job under mpirun that is started again: another mpirun, other daemons, the same hosts."""

from __future__ import annotations

from typing import Any, Callable

import pytest

from ..test_restarts import check_attempts

pytestmark = pytest.mark.netns

PROGRAM = """
import json, os, signal, sys
from mpi4py import MPI

attempt, path = int(os.environ["MUSTER_ATTEMPT"]), sys.argv[1]
world = MPI.COMM_WORLD.allreduce(1)
first = MPI.COMM_WORLD.bcast(int(open(path).read()) if os.path.exists(path) else 0)
facts = {"attempt": attempt, "rank": MPI.COMM_WORLD.rank, "world": world, "first": first, "port": attempt,
         "count": os.environ["TORCHELASTIC_RESTART_COUNT"]}
print("\\n" + json.dumps(facts), flush=True)
if MPI.COMM_WORLD.rank == 0:
    open(path, "w").write(str(attempt + 5))
MPI.COMM_WORLD.Barrier()
if MPI.COMM_WORLD.rank == 1 and attempt == 0:
    os.kill(os.getpid(), signal.SIGKILL)
MPI.COMM_WORLD.Barrier()
"""


@pytest.mark.parametrize("flavour", ["openmpi5", "mpich"])
def test_a_killed_rank_under_mpirun(under: Callable[[str], Any], flavour: str) -> None:
    job = under(flavour)
    program, path = job.local.program(PROGRAM), str(job.local.folder / "checkpoint")
    ran = job.run(program, "--hosts", "2", "--slots", "1", "--max-restarts", "1", arguments=(path,))
    assert ran.code == 0, ran.stderr + ran.stdout
    check_attempts(ran, [0, 5])
    assert "restart 1 of at most 1, on all hosts: rank 1 (local rank 0) on algo-2, killed by SIGKILL" in ran.log(
        "algo-1"
    )
