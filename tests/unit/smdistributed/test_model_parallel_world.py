"""``smp.init``: the groups of real ranks, objects between them, and how it joins torch.distributed."""

from __future__ import annotations

import pytest

from .conftest import RunRanks

pytestmark = pytest.mark.torch


def test_groups_objects_and_barriers(run_ranks: RunRanks) -> None:
    """While torch checks each collective."""
    said = run_ranks("model_parallel_world.py", 4, TORCH_DISTRIBUTED_DEBUG="DETAIL")
    for rank, each in enumerate(said):
        assert each == {
            "groups": {
                "mp": [rank % 2, rank % 2 + 2], "pp": [rank % 2, rank % 2 + 2], "tp": [rank],
                "dp": [rank // 2 * 2, rank // 2 * 2 + 1], "rdp": [rank // 2 * 2, rank // 2 * 2 + 1],
            },
            "debug": "DETAIL",
            "backend": "smddp",
        }  # fmt: skip
