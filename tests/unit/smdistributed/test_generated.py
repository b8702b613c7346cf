"""Generated models in parts, against one process in double precision: always the same ones here; ``scripts/fuzz`` draws
others.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from .conftest import RunRanks
from .generated_models import LIMIT, models, refused

pytestmark = [pytest.mark.torch, pytest.mark.timeout(600)]


def test_generated_models_train_as_in_one_process(run_ranks: RunRanks, tmp_path: Path) -> None:
    drawn: list[dict[str, Any]] = []

    @settings(max_examples=12, derandomize=True, database=None, deadline=None, suppress_health_check=list(HealthCheck))
    @given(models())
    def draw(model: dict[str, Any]) -> None:
        drawn.append(model)

    draw()
    file = tmp_path / "models.jsonl"
    file.write_text("\n".join(map(json.dumps, drawn)))
    exact = 0
    for said in zip(*(each["found"] for each in run_ranks("smp_generated.py", 4, arguments=(str(file),))), drawn):
        *errors, model = said
        if all(isinstance(each, float) for each in errors):
            exact += 1
            assert max(errors) <= LIMIT, (errors, model)
        else:
            assert refused(errors), (errors, model)
    assert exact >= len(drawn) * 2 // 3, "most aren't refused"
