"""State of modules that are on another rank: exact against one process in double precision, or refused by name."""

from __future__ import annotations

import pytest

from .conftest import RunRanks

pytestmark = pytest.mark.torch


def test_state_of_modules_elsewhere(run_ranks: RunRanks) -> None:
    first, second = run_ranks("smp_state.py", 2)
    for said in (first, second):
        assert max(said["exact"].values()) <= 1e-12, said["exact"]
        assert len(said["exact"]) == 24 and len(said["refused"]) == 17
        for name, text in said["refused"].items():
            assert "rank 1" in text and ("block" in text or "parameter" in text), (name, text)
        assert "attribute block.scale has another value on ranks [0] than on rank 1" in said["compared"]
    for text in first["outside"].values():
        assert "rank 1 of the pipeline" in text and "nothing was said" not in text, first["outside"]
