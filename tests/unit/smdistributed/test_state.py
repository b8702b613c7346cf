"""State of modules that are on another rank: exact against one process in double precision, or refused by name."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from .conftest import RunRanks

pytestmark = pytest.mark.torch
DOCS = Path(__file__).resolve().parents[3] / "docs/smdistributed.md"


def documented() -> dict[str, list[str]]:
    """The rows of the guard's table: the word that each of its other cells begins with, by the kind of state."""
    table = DOCS.read_text(encoding="utf-8").split("| of a module on another rank |", 1)[1].split("\n\n", 1)[0]
    rows = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in table.splitlines()[2:]]
    return {re.sub(r" \(.*\)$", "", kind): [re.split(r"[^\w–]", cell)[0] for cell in cells] for kind, *cells in rows}


def test_state_of_modules_elsewhere(run_ranks: RunRanks) -> None:
    first, second = run_ranks("smp_state.py", 2)
    for said in (first, second):
        assert max(said["exact"].values()) <= 1e-12, said["exact"]
        assert len(said["exact"]) == 24 and len(said["refused"]) == 6
        for name, text in said["refused"].items():
            assert "rank 1" in text and ("block" in text or "parameter" in text), (name, text)
        assert "attribute block.scale has another value on ranks [0] than on rank 1" in said["compared"]
    for text in first["outside"].values():
        assert "rank 1 of the pipeline" in text, first["outside"]


def test_nothing_changes_a_tensor_elsewhere_in_place(run_ranks: RunRanks) -> None:
    """Every method of torch's tensors that ends in ``_``, every operator that assigns, and ways past both."""
    first, _ = run_ranks("smp_in_place.py", 2)
    assert first["ways"]["step"] > 350 and first["ways"]["outside"] > 350
    # outside of steps a script switches gradients on all ranks alike
    assert set(first["missed"]) == {"outside past switch", "outside past switched"}, first["missed"]
    assert all("philox" in name for name in first["unknown"]), "arguments are wanted that show what it changes"


def test_the_table_of_the_docs_is_what_happens(run_ranks: RunRanks) -> None:
    """Each row is tried, and each kind that is tried has a row."""
    for each in run_ranks("smp_guard.py", 2):
        found = {kind: list(outcomes.values()) for kind, outcomes in each["said"].items()}
        assert found == documented()
