"""Models in parts train as one process that has the whole of them does; real ranks, gloo, double precision."""

from __future__ import annotations

from typing import Any

import pytest

from .conftest import RunRanks

pytestmark = pytest.mark.torch


def check(said: list[dict[str, Any]]) -> None:
    for rank, models in enumerate(said):
        for name, errors in models.items():
            assert max(errors.values()) <= 1e-12, (rank, name, errors)


def test_two_parts_two_replicas_simple_spread(run_ranks: RunRanks) -> None:
    check(run_ranks("smp_exact.py", 4, PARTITIONS="2", PIPELINE="simple", PLACEMENT="spread"))


def test_four_parts_interleaved(run_ranks: RunRanks) -> None:
    check(run_ranks("smp_exact.py", 4, PARTITIONS="4"))


def test_steps_models_and_optimizers(run_ranks: RunRanks) -> None:
    for said in run_ranks("smp_features.py", 4):
        assert said["done"] == [
            "two losses", "sums", "every second step", "other ways", "comm hook", "autocast", "state", "leader alone",
            "misuse",
        ]  # fmt: skip


def test_an_error_anywhere_is_one_everywhere(run_ranks: RunRanks) -> None:
    first, gone, *others = run_ranks("smp_failures.py", 4)
    assert gone == {"died": True}
    words = {
        "body": "broken body", "forward": "broken forwards", "backward": "broken backwards",
        "lambda": "an argument of module part can't be sent to another rank of the pipeline",
        "nothing": "hasn't called the model", "indivisible": "since 2 doesn't divide 3",
    }  # fmt: skip
    for said in (first, *others):
        for how, text in words.items():
            assert text in said[how][1], (how, said[how])
        assert said["stranger"] == 0
        assert "rank 1 has ended" in said["lost"][1] and said["seconds"] < 20
    assert [first["lost"][0], others[0]["lost"][0]] == ["SMPPeerLostError", "SMPRemoteError"]
    kinds = {how: {said[how][0] for said in (first, *others)} for how in words}
    assert all("SMPRemoteError" in found for found in kinds.values()), kinds
    assert "for ranks [1], which haven't called this step" in first["hint"]
