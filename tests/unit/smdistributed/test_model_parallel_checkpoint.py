"""Training that is saved and resumed goes on as if it hadn't been, at the same number of parts or at another."""

from __future__ import annotations

from pathlib import Path

import pytest

from .conftest import RunRanks

pytestmark = pytest.mark.torch


def test_saved_and_resumed(run_ranks: RunRanks, tmp_path: Path) -> None:
    folder = str(tmp_path / "saved")

    def run(mode: str, ranks: int, partitions: int) -> list[dict[str, object]]:
        said = run_ranks(
            "smp_checkpoint.py", ranks, arguments=(mode, folder),
            SM_HP_MP_PARAMETERS=f'{{"partitions": {partitions}, "ddp": true}}',
        )  # fmt: skip
        assert all(each["error"] <= 1e-12 for each in said), (mode, said)
        return said

    said = run("save", 2, 2)
    assert {each["keys"] for each in said} == {35}
    assert sum(each["local"] for each in said) == 21  # type: ignore[misc]
    assert said[0]["parts"] == [
        "ck.pt", "ck.pt_0", "ck.pt_1", "end.pt", "full.pt", "newest", "optimizer_full.pt", "s2_partial",
        "user_content_full.pt",
    ]  # fmt: skip
    run("newest", 2, 2)
    run("full", 4, 4)
    run("whole", 1, 1)
