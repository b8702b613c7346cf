"""Instance groups: mpirun on one of them, led by its own first host; the program once on every other host."""

from __future__ import annotations

from pathlib import Path
from typing import Callable

import pytest

from ..test_groups import HOSTS, Cluster

PROGRAM = """
import os
from mpi4py import MPI

world = MPI.COMM_WORLD
total = world.allreduce(world.rank + 1)
print(os.environ["SM_CURRENT_INSTANCE_GROUP"], "rank", world.rank, "of", world.size, "says", total, flush=True)
"""
ASKED = {
    "sagemaker_mpi_enabled": True, "sagemaker_mpi_num_of_processes_per_host": 2,
    "sagemaker_distribution_instance_groups": ["train"],
}  # fmt: skip


@pytest.mark.parametrize("flavour", ["openmpi4", "mpich"])
def test_mpirun_on_the_group_that_the_job_names(
    stack: Callable[[str], Path], python: str, environ: dict[str, str], tmp_path: Path, flavour: str
) -> None:
    cluster = Cluster(python, environ, tmp_path, PROGRAM)
    cluster.write(ASKED)
    folder = stack(flavour)
    codes, logs = cluster.run(MUSTER_PYTHON=str(folder / "python"), PATH=f"{folder}:{environ['PATH']}")
    assert codes == dict.fromkeys(HOSTS, 0), logs
    said = [sorted(line for line in logs[host].splitlines() if " says " in line) for host in HOSTS]
    assert said == [
        ["data rank 0 of 1 says 1"],
        ["train rank 0 of 4 says 10", "train rank 1 of 4 says 10"],
        ["train rank 2 of 4 says 10", "train rank 3 of 4 says 10"],
    ]
