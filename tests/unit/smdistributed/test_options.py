"""Options that change how a model is trained, and not what it learns: each has its effect, and no other."""

from __future__ import annotations

import pytest

from .conftest import RunRanks

pytestmark = pytest.mark.torch


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
