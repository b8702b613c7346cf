"""Sharded data parallelism on real ranks, against one process that has the whole model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from .conftest import Modules, RunRanks

pytestmark = pytest.mark.torch


def test_exact_smaller_by_degree_and_resumed_at_another(run_ranks: RunRanks, tmp_path: Path) -> None:
    """One world of four: two copies in two shards, and one in four; for both versions of the library."""
    for rank, each in enumerate(run_ranks("smp_sharded.py", 4, arguments=(str(tmp_path),))):
        for model, errors in each["worst"].items():
            assert all(error <= 1e-12 for error in errors.values()), (model, errors)
        whole, half, quarter = (each["kept"][degree] for degree in ("1", "2", "4"))
        assert (half, quarter) == (whole / 2, whole / 4)
        assert each["resumed"] <= 1e-12
        assert "sharded_data_parallel_degree 4" in each["refused"] or "this job has 4" in each["refused"]
        assert each["files"] == [
            "ck_0_0_0", "ck_0_0_1", "newest", "optimizer_whole",
            *(f"parts_partial/{kind}_0_0_{shard}.pt" for kind in ("model", "optimizer") for shard in (0, 1)),
            "parts_partial/user_content.pt", "whole",
        ]  # fmt: skip
        assert len(each["half"]) == 16 and max(each["half"].values()) <= 1e-12, each["half"]
        second = each["second"]
        assert max(*second["errors"].values(), second["resumed"]) <= 1e-12, second
        assert second["kept"]["1 full"] == 2 * second["kept"]["2 zero2"] == 4 * second["kept"]["4 full"]
        assert second["copy"] == [rank // 2, 2]
        assert second["learned"] > 0.5


def test_what_is_gathered_by_itself(modelparallel: Modules, nn: Any) -> None:
    """Layers of a row; not what shares parameters or modules with the outside, or changes its input in place."""
    sharding = modelparallel("torch.sharding")

    def block() -> Any:
        return nn.Sequential(nn.Linear(4, 4), nn.ReLU(inplace=True), nn.Linear(4, 4))

    tied, borrowed = block(), block()
    root = nn.ModuleDict({
        "embed": nn.Embedding(5, 4), "stem": nn.Conv1d(2, 2, 1), "outside": borrowed[0],
        "layers": nn.ModuleList([block(), block(), tied, borrowed, nn.Sequential(nn.ReLU(True), nn.Linear(4, 4))]),
    })  # fmt: skip
    root["embed"].weight = nn.Parameter(tied[0].weight.detach()[:4])
    tied[0].weight = root["embed"].weight
    model = nn.Module()
    model.inner = root
    names = {module: name for name, module in model.named_modules()}
    found = [names[each] for each in sharding._groups(model, set())]
    assert found == [
        "inner.stem", "inner.outside", "inner.layers.0", "inner.layers.1", "inner.layers.2.2", "inner.layers.3.2",
        "inner.layers.4.1",
    ]  # fmt: skip


def test_small_layers_stay_gathered_up_to_a_limit(modelparallel: Modules, nn: Any) -> None:
    """``sdp_param_persistence_threshold`` elements in one parameter, and ``sdp_max_live_parameters`` in all."""
    sharding = modelparallel("torch.sharding")
    groups = [nn.Linear(4, size, bias=False) for size in (2, 3, 9, 2)]

    def staying(*limits: int) -> list[int]:
        found = sharding._staying(groups, set(), sharding.Limits(*limits))
        return [place for place, each in enumerate(groups) if each in found]

    assert staying(36, 1000) == [0, 1, 3]
    assert staying(37, 1000) == [0, 1, 2, 3]
    assert staying(36, 20) == [0, 1]
    assert staying(36, 16) == [0, 3]
    assert staying(8, 1000) == staying(1000, 0) == []
