"""``smp.init`` on real ranks: the groups, objects between ranks, and how it joins torch.distributed."""

from __future__ import annotations

from typing import Any, Callable

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


def test_in_a_world_of_the_scripts_own(run_ranks: RunRanks) -> None:
    """With a backend that has no CPU tensors, as NCCL's; the ranks agree, on errors as well."""
    said = run_ranks("model_parallel_joined.py", 2, SM_HP_MP_PARAMETERS='{"partitions": 2, "microbatches": 4}')
    for each in said:
        assert each["hint"].startswith("rank 0 has waited 0.05 s for other ranks, in smp.barrier, smp.allgather")
        assert each["owner"] == {"": 0, "a": 1, "b": 1, "c": 0, "d": 0}
        before, missing = each["errors"]
        assert before == "SMPNotInitializedError: smdistributed.modelparallel isn't initialized: call smp.init() first"
        assert missing == "SMPConfigError: partition_file missing.json can't be read: No such file or directory"


def test_degrees_that_do_not_fit_are_an_error_with_their_source(modelparallel: Callable[[str], Any]) -> None:
    config, state = modelparallel("torch.config"), modelparallel("torch.state")
    read = config.read({"SM_HP_MP_PARAMETERS": '{"partitions": 2}'}, [])
    with pytest.raises(
        ValueError, match=r"world size 3: start .* ranks, or change the degrees \(SM_HP_MP_PARAMETERS\)"
    ):
        state._topology(read, 3)
