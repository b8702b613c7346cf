"""A part of the matrix, every fault and every launcher at least once; ``scripts/faults`` runs all of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from ..hosts.network import usable
from .cell import run
from .fault import Cell
from .job import Stacks, Times
from .rows import SEED, cut

TIMES = Times(save=2.0, cut=17.0)

pytestmark = [
    pytest.mark.netns,
    pytest.mark.torch,
    pytest.mark.skipif(not usable(), reason="can't make network namespaces here"),
]


def no_image(name: str) -> str:
    raise AssertionError(f"no cell of this file runs in the image {name}")


@pytest.mark.parametrize("cell", [pytest.param(cell, id=cell.name) for cell in cut(SEED)])
def test_a_job_ends_as_it_should(
    cell: Cell, environ: dict[str, str], stack: Callable[[str], Path], tmp_path: Path
) -> None:
    result = run(cell, tmp_path, environ, Stacks(stack, no_image), TIMES)
    assert not result.wrong, "\n".join(result.wrong) + "\n" + result.log
