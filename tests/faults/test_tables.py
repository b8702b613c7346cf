"""The tables of the matrix themselves: every fault and launcher is used, and names can be told apart."""

from __future__ import annotations

import pytest

from .rows import CELLS, DOCKER_CELLS, FAULTS, LAUNCHERS, cut, excluded, listing
from .table import measured


def test_names_are_unique() -> None:
    assert len({fault.name for fault in FAULTS}) == len(FAULTS)
    assert len({launcher.name for launcher in LAUNCHERS}) == len(LAUNCHERS)
    assert len({cell.name for cell in CELLS}) == len(CELLS)
    assert len({cell.name for cell in DOCKER_CELLS}) == len(DOCKER_CELLS)


def test_every_fault_and_every_launcher_has_cells() -> None:
    assert {cell.fault.name for cell in CELLS} == {fault.name for fault in FAULTS}
    assert {cell.launcher.name for cell in CELLS} == {launcher.name for launcher in LAUNCHERS}


def test_what_is_left_out_has_a_reason_and_is_a_cell_of_the_table() -> None:
    names = {launcher.name for launcher in LAUNCHERS}
    for fault in FAULTS:
        assert set(fault.without) | set(fault.but) <= names, fault.name
        for launcher in LAUNCHERS:
            if why := excluded(fault, launcher):
                assert f"  {fault.name}, {launcher.name}: {why}" in listing().splitlines()


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
