"""Generated models in parts, against one process in double precision: always the same ones here; ``scripts/fuzz`` draws
others.
"""

from __future__ import annotations

import json
from itertools import groupby
from pathlib import Path

import pytest

from .conftest import RunRanks
from .generated_models import KINDS, PARTS, REFUSALS, alone, are_refused, drawn, ranks_of

pytestmark = pytest.mark.torch


def test_generated_models_train_as_in_one_process(run_ranks: RunRanks, tmp_path: Path) -> None:
    refusals = 0
    for _, some in groupby(drawn(1, 60), ranks_of):
        refusals += sum(are_refused(run_ranks, tmp_path / "models.jsonl", list(some)))
    assert refusals <= 20, "most aren't refused"


def test_models_that_were_wrong_once(run_ranks: RunRanks, tmp_path: Path) -> None:
    """A module that is served writes an attribute on a third rank, or calls one there that gets another buffer."""
    lines = Path(__file__).with_name("once_wrong.jsonl").read_text().splitlines()
    assert are_refused(run_ranks, tmp_path / "models.jsonl", list(map(json.loads, lines))) == [False, False]


def test_each_kind_of_block_by_itself(run_ranks: RunRanks, tmp_path: Path) -> None:
    said = are_refused(run_ranks, tmp_path / "models.jsonl", [alone(number) for number in range(len(KINDS))])
    known = {kind for each in REFUSALS if each.degree == PARTS for kind in each.kinds}
    # attributes are sent that are set from the first step on or without hooks, and a chain calls a module once
    assert {kind for kind, is_refused in zip(KINDS, said) if is_refused} == known - {"setting", "bounded", "crossing"}
