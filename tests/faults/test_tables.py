"""The tables of the matrix themselves: every fault and launcher is used, and names can be told apart."""

from __future__ import annotations

import pytest

from .rows import CELLS, DOCKER_CELLS, FAULTS, LAUNCHERS, cut
from .table import measured


@pytest.mark.parametrize("seed", range(20))
def test_the_cut_has_every_launcher_and_every_fault_that_may_be_in_it(seed: int) -> None:
    chosen = cut(seed)
    assert {cell.launcher.name for cell in chosen} == {launcher.name for launcher in LAUNCHERS}
    assert {cell.fault.name for cell in chosen} == {fault.name for fault in FAULTS if fault.in_cut}
    assert len({cell.name for cell in chosen}) == len(chosen) < len(CELLS) / 4


def test_every_cell_has_been_run_for_the_documentation() -> None:
    """``scripts/faults --faults NAME --write`` runs a new row."""
    found = {(name, launcher) for name, row in measured().items() for launcher in row["seconds"]}
    assert found == {(cell.fault.name, cell.launcher.name) for cell in (*CELLS, *DOCKER_CELLS)}
