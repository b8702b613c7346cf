"""Programs on real ranks, gloo, double precision: worlds, shared tensors, scaled losses, options, resuming, endings."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from .conftest import Modules, RunRanks

pytestmark = pytest.mark.torch


def test_an_infinite_gradient_on_one_rank_counts_on_all(run_ranks: RunRanks) -> None:
    first, second = run_ranks("smp_scaling.py", 2)
    assert (first["owned"], second["owned"]) == (["0", "1"], ["2", "3"])
    for each in (first, second):
        assert each["error"] <= 1e-12
        assert max(map(abs, each["norms"])) <= 1e-12
        assert [ours for ours, _ in each["scales"]] == [theirs for _, theirs in each["scales"]]
        assert [ours for ours, _ in each["scales"]] == [1024.0, 2048.0, 1024.0, 1024.0, 2048.0]
    assert set(second["calls"]) == {8}  # two blocks, two microbatches, and each of them again


def test_packed_sequences_are_those_of_one_process(run_ranks: RunRanks) -> None:
    for said in run_ranks("tsm_packed.py", 2):
        assert said["one"] <= 1e-12 and said["packed"] <= 1e-12, said
        for text, name in zip(said["refused"], ("softcap", "s_aux", "is_causal=False"), strict=True):
            assert f"is called with {name}" in text and "context_parallel_degree" in text


def test_each_option_has_its_effect(run_ranks: RunRanks) -> None:
    first, second = run_ranks("smp_options.py", 2)
    for said in (first, second):
        assert (said["port"], said["backend"]) == (True, "gloo"), "ddp_port where no launcher says one"
        halves = {"ours.weight": "torch.float16", "ours.bias": "torch.float16"}
        assert said["types"] == {**halves, "theirs.weight": "torch.float32", "theirs.bias": "torch.float32"}
        assert said["moved"] == list(said["types"])
        assert said["scaled"] == 1.0
        same, once, twice = said["attentions"]
        assert same and twice == 2 * once == 8, "two layers and microbatches"
        assert said["offload"] == [True, [3], True]
        assert said["nothing left"] == []
        assert said["tracing"][1]
    assert [said["tracing"][0] for said in (first, second)] == [[1, 0], [0, 0]]
    [line] = first["no attention"]
    assert line.startswith("checkpoint_attentions=True (smp.init): without effect, since no module of smp.nn is in")
    [line] = first["left"]
    assert line == "one microbatch runs after the other, since forward passes change the attribute kept"


@pytest.mark.parametrize(
    ("how", "own", "told"),
    [
        ("exit", "sys.exit(0) was called in a step on rank 1", "SystemExit: 0"),
        ("locked", "Locked: with a lock", "Locked: with a lock"),
        ("interrupted", "KeyboardInterrupt", "KeyboardInterrupt"),
    ],
)
def test_a_module_elsewhere_ends_its_rank(run_ranks: RunRanks, how: str, own: str, told: str) -> None:
    first, second = run_ranks("smp_exit.py", 2, arguments=(how,), fails=True)
    assert first["code"] and second["code"]
    assert own in second["errors"], second
    assert "SMPRemoteError: rank 1 failed, and with it this step" in first["errors"] and told in first["errors"], first


def test_a_rank_that_leaves_between_steps_is_missed_by_the_next(run_ranks: RunRanks) -> None:
    first, second = run_ranks("smp_exit.py", 2, arguments=("leaves",), fails=True)
    assert first["code"] and not second["code"]
    assert "SMPPeerLostError: rank 1 has ended, or its connection to rank 0" in first["errors"], first


def test_a_step_that_is_over_before_another_rank_serves_it(run_ranks: RunRanks) -> None:
    assert run_ranks("smp_late.py", 2, SMP_TIMEOUT_SECONDS="100") == [{"same": True}] * 2


LAYOUTS = [
    {"optimize": optimize, "prescaled_batch": same} for optimize in ("memory", "speed") for same in (False, True)
]
OF_TWO = [
    *([{"tensor_parallel_degree": 2, **layout}, [], 6] for layout in LAYOUTS),
    [{"tensor_parallel_degree": 2, "prescaled_batch": True}, ["alone", "crossed", "language"], 5],
]
OF_FOUR = [
    [{"tensor_parallel_degree": 2, "partitions": 2}, ["words", "crossed", "language"], 6],
    [{"tensor_parallel_degree": 2, "partitions": 2, "pipeline": "simple", "microbatches": 4, **LAYOUTS[3]},
     ["causal", "registered"], 5],
    [{"tensor_parallel_degree": 2, "placement_strategy": "spread", **LAYOUTS[1]}, ["words", "alone"], 6],
    [{"tensor_parallel_degree": 4}, ["language"], 6],
]  # fmt: skip
"""The configuration, the models (none: all of them), and how long sequences are; ranks may not divide that."""


def test_two_ranks_share_tensors(run_ranks: RunRanks) -> None:
    for rank, models in enumerate(run_ranks("smp_tensor.py", 2, arguments=(json.dumps(OF_TWO), "smp_tensor_features"))):
        assert len(models) == 4 * 7 + 3 + 11
        _check(rank, models)


def test_with_pipelines_and_replicas(run_ranks: RunRanks) -> None:
    for rank, models in enumerate(run_ranks("smp_tensor.py", 4, arguments=(json.dumps(OF_FOUR),))):
        assert len(models) == 8
        _check(rank, models)


def _check(rank: int, models: dict[str, dict[str, float]]) -> None:
    for name, errors in models.items():
        assert max(errors.values()) <= 1e-12, (rank, name, errors)


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


def test_degrees_that_do_not_fit_are_an_error_with_their_source(modelparallel: Modules) -> None:
    config, state = modelparallel("torch.config"), modelparallel("torch.state")
    read = config.read({"SM_HP_MP_PARAMETERS": '{"partitions": 2}'}, [])
    with pytest.raises(
        ValueError, match=r"world size 3: start .* ranks, or change the degrees \(SM_HP_MP_PARAMETERS\)"
    ):
        state._topology(read, 3)
