"""Models in parts train as one process that has the whole of them does; real ranks, gloo, double precision."""

from __future__ import annotations

import pytest

from .conftest import RunRanks

pytestmark = pytest.mark.torch


def test_parts_train_as_the_whole_does(run_ranks: RunRanks) -> None:
    for rank, models in enumerate(run_ranks("smp_exact.py", 4, TORCH_DISTRIBUTED_DEBUG="DETAIL")):
        assert len(models) == 15
        for name, errors in models.items():
            assert max(errors.values()) <= 1e-12, (rank, name, errors)


def test_what_steps_promise_and_how_they_fail(run_ranks: RunRanks) -> None:
    first, gone, *others = run_ranks("smp_features.py", 4)
    words = {
        "body": "broken body", "forward": "broken forwards", "backward": "broken backwards",
        "lambda": "an argument of module part can't be sent to another rank of the pipeline",
        "nothing": "hasn't called the model", "indivisible": "since 4 doesn't divide 3",
    }  # fmt: skip
    assert gone == {"died": True}
    for said in (first, *others):
        assert said["done"] == [
            "two losses", "sums", "every second step", "other ways", "comm hook", "autocast", "random numbers", "state",
            "leader alone", "misuse",
        ]  # fmt: skip
        for how, text in words.items():
            assert text in said[how][1], (how, said[how])
        assert said["stranger"] == 0
        assert "rank 1 has ended" in said["lost"][1] and said["seconds"] < 200
    assert [first["lost"][0], others[0]["lost"][0]] == ["SMPPeerLostError", "SMPRemoteError"]
    kinds = {how: {said[how][0] for said in (first, *others)} for how in words}
    assert all("SMPRemoteError" in found for found in kinds.values()), kinds
    assert "for ranks [1], which haven't called this step" in first["hint"]
