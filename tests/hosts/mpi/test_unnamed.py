"""mpirun between hosts whose names only the roll call knows: their platform counts them, and no resolver does."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Callable
from unittest import mock

import pytest

from ..network import WITH_NAME, Network, usable

pytestmark = [pytest.mark.netns, pytest.mark.skipif(not usable(), reason="can't make network namespaces here")]

PROGRAM = """
import json, os
from mpi4py import MPI

world = MPI.COMM_WORLD
total = world.allreduce(world.rank + 1)
facts = {"what": "rank", "rank": world.rank, "total": total, "host": os.environ["SM_CURRENT_HOST"]}
print(json.dumps(facts), flush=True)
"""


@pytest.mark.parametrize("flavour", ["openmpi4", "mpich"])
def test_mpirun_needs_no_names(under: Callable[[str], Any], tmp_path: Path, flavour: str) -> None:
    program = tmp_path / "names.py"
    program.write_text(PROGRAM)
    words = ("launch", "--nnodes", "2", "--rollcall-leader", "10.78.0.1", "--launcher", "mpi", "--slots", "2")
    network = Network(2)
    try:
        with mock.patch.dict(os.environ, under(flavour).environ, clear=True):
            hosts = [
                network.run(f"algo-{number}", "-c", WITH_NAME, f"node-{number}x", *words, str(program))
                for number in (1, 2)
            ]
        assert [host.code() for host in hosts] == [0, 0], [host.lines for host in hosts]
        ranks = [[(rank["rank"], rank["total"], rank["host"]) for rank in host.heard("rank")] for host in hosts]
    finally:
        network.close()
    assert [sorted(found) for found in ranks] == [
        [(0, 10, "node-1x"), (1, 10, "node-1x")],
        [(2, 10, "node-2x"), (3, 10, "node-2x")],
    ]
