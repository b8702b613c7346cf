"""One job of the matrix whose hosts are containers; ``scripts/faults --backend docker`` runs all of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from ..conftest import set_up
from .cell import run
from .job import Stacks
from .rows import DOCKER_CELLS
from .test_matrix import TIMES

pytestmark = pytest.mark.xdist_group("muster local --image")


def no_stack(name: str) -> Path:
    raise AssertionError(f"containers have their own {name}")


def test_a_job_of_containers_ends_as_it_should(environ: dict[str, str], tmp_path: Path) -> None:
    (cell,) = [cell for cell in DOCKER_CELLS if cell.name == "killed-waited-docker-mpi"]
    stacks = Stacks(no_stack, lambda name: set_up("MUSTER_TEST_IMAGE_", name, "builds the images"))
    result = run(cell, tmp_path, environ, stacks, TIMES)
    assert not result.wrong, "\n".join(result.wrong) + "\n" + result.log
