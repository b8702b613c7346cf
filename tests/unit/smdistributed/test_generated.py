"""Generated models in parts, against one process in double precision: always the same ones here; ``scripts/fuzz`` draws
others.
"""

from __future__ import annotations

import json
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

from .conftest import RunRanks
from .generated_models import drawn, exact, refused

pytestmark = [pytest.mark.torch, pytest.mark.timeout(600)]


def ranks_of(model: dict[str, Any]) -> int:
    return int(model["ranks"])


def test_generated_models_train_as_in_one_process(run_ranks: RunRanks, tmp_path: Path) -> None:
    refusals = 0
    for ranks, some in groupby(drawn(1, 60), ranks_of):
        models = list(some)
        file = tmp_path / f"{ranks}.jsonl"
        file.write_text("\n".join(map(json.dumps, models)))
        said = run_ranks("smp_generated.py", ranks, arguments=(str(file),), SMP_TIMEOUT_SECONDS="100")
        for *errors, model in zip(*(each["found"] for each in said), models):
            refusals += refused(errors)
            assert refused(errors) or exact(errors, model), (errors, model)
    assert refusals <= 15, "most aren't refused"
