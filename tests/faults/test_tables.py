"""The tables of the matrix themselves: every fault and launcher is used, and names can be told apart."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import re
from pathlib import Path

import pytest

from .rows import CELLS, DOCKER_CELLS, FAULTS, LAUNCHERS, NAMES, cut, excluded, listing
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


def _kinds() -> list[list[list[str]]]:
    """The lines of the page of kinds: what each names in its three columns."""
    lines = (Path(__file__).parent / "README.md").read_text(encoding="utf-8").splitlines()
    rows = [line.strip("|").split("|") for line in lines if line.startswith("| ") and not line.startswith("| kind |")]
    return [[re.findall("`([^`]+)`", column) for column in row[-3:]] for row in rows]


def test_what_the_page_of_kinds_names_exists(root: Path) -> None:
    loader = importlib.machinery.SourceFileLoader("fuzz_script", str(root / "scripts" / "fuzz"))
    spec = importlib.util.spec_from_loader("fuzz_script", loader)
    assert spec is not None
    fuzz = importlib.util.module_from_spec(spec)
    loader.exec_module(fuzz)
    found = _kinds()
    assert len(found) > 30
    for faults, parts, tests in found:
        assert faults or parts or tests
        assert [name for name in faults if name not in NAMES] == []
        assert [name for name in parts if name not in fuzz.PARTS] == []
        for test in tests:
            path, _, name = test.partition("::")
            assert (root / path).is_file(), test
            assert not name or f"def {name}(" in (root / path).read_text(encoding="utf-8"), test
