"""Sharded optimizer state, checkpoints of activations, half precision, clipping and saving, together in one world."""

from __future__ import annotations

from pathlib import Path

import pytest

from .conftest import RunRanks

pytestmark = pytest.mark.torch


def test_all_of_it_together_trains_as_one_process_does(run_ranks: RunRanks, tmp_path: Path) -> None:
    said = run_ranks("smp_combinations.py", 4, arguments=(str(tmp_path / "saved"),))
    files = said[0].pop("files")
    for rank, cases in enumerate(said):
        cases.pop("files", None)
        assert len(cases) == 11
        for name, found in cases.items():
            half = name[:4] in ("fp16", "bf16")
            assert found["error"] <= (1e-7 if half else 1e-12), (rank, name, found)
    names = [f"{what}_{part}_0_{replica}.pt" for what in ("fp16_states", "optimizer") for part in (0, 1)
             for replica in (0, 1)]  # fmt: skip
    assert files == sorted([*names, "model_0_0_0.pt", "model_1_0_0.pt", "user_content.pt"])
    for name in said[0]:  # with one partition each of four replicas has a quarter, the largest tensor aside
        if "1 partitions, tensors over 1" in name and name.startswith("adamw"):
            held = [cases[name]["held"] for cases in said]
            assert max(held) <= sum(held) / 4 + 2 * 64
