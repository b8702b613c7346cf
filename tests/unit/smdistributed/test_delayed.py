"""Models whose parameters have no memory until the model is divided."""

from __future__ import annotations

import copy
import itertools
from typing import Any

import pytest

from .conftest import Modules, RunRanks

pytestmark = pytest.mark.torch


def test_values_are_those_of_a_model_made_at_once(run_ranks: RunRanks) -> None:
    """On four ranks: pipelines, shared tensors, shards, half precision; of each value only rank 0's counts."""
    for each in run_ranks("smp_delayed.py", 4):
        assert each.pop("loaded")
        assert len(each) == 5
        for world, (differ, error, taken) in each.items():
            assert not differ, world
            assert taken < 0.1, world
            assert error <= (0.05 if "16" in world else 1e-5), world  # microbatches add up in another order


def test_who_uses_a_value_gets_it(modelparallel: Modules, monkeypatch: pytest.MonkeyPatch, torch: Any) -> None:
    """Copies stay without memory; what something else is a view of, or has the address of, stays in memory."""
    nn = torch.nn
    delayed, recording = modelparallel("torch.delayed"), modelparallel("torch.recording")
    monkeypatch.setattr(recording, "SMALL", 64)
    monkeypatch.setattr(recording, "RESIDENT", 0)

    class Net(nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.plain, self.other = nn.Linear(9, 9), nn.Linear(9, 9)
            self.view = self.other.weight.data[:3]
            self.flat = torch.empty(80)
            self.one, self.two = nn.Parameter(self.flat[:40]), nn.Parameter(self.flat[40:])
            nn.init.normal_(self.flat)
            self.loaded = nn.Parameter(torch.from_numpy(nn.Parameter(torch.rand(9, 9)).detach().numpy() * 2))
            self.rows = nn.Parameter(torch.zeros(9, 9))
            generator = torch.Generator().manual_seed(3)
            with torch.no_grad():
                for index in range(9):
                    self.rows[index].normal_(0, index + 1, generator=generator)
            self.register_buffer("noise", torch.randn(9, 9))
            self.copied = copy.deepcopy(self.plain)
            self.half = nn.Linear(9, 9).half()
            if self.rows.sum() > 0:
                nn.init.orthogonal_(self.copied.weight)

    def made(delays: bool) -> Any:
        torch.manual_seed(1)
        with delayed.delay_param_initialization(delays), delayed.delay_param_initialization():
            return Net(), torch.rand(2)

    (expected, noise), (net, noise_after) = made(False), made(True)
    values = {name: each.detach().clone() for name, each in expected.state_dict().items()}
    assert torch.equal(noise, noise_after)
    without = [name for name, _ in delayed.named(net)]
    assert without == ["rows", "plain.weight", "copied.weight", "half.weight"]
    again = copy.deepcopy(net)
    assert [name for name, _ in delayed.named(again)] == without
    assert [str(each.dtype) for _, each in delayed.named(net)][-1] == "torch.float16"
    assert net.rows.is_contiguous() and net.rows.stride() == (9, 1) and net.rows.numel() == 81
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    assert [name for name, _ in delayed.named(net)] == without
    assert torch.equal(net.plain.weight, values["plain.weight"]) and type(net.plain.weight) is nn.Parameter
    assert [name for name, _ in delayed.named(net)] == ["rows", "copied.weight", "half.weight"]
    for model in (net, again):
        assert all(torch.equal(each, values[name]) for name, each in model.state_dict().items())
    assert net.view.data_ptr() == net.other.weight.data_ptr() and net.two.data_ptr() == net.flat[40:].data_ptr()
    net.plain(torch.ones(9)).sum().backward()
    optimizer.step()
    assert not torch.equal(net.plain.weight, values["plain.weight"])


def test_memory_while_it_is_made(modelparallel: Modules, monkeypatch: pytest.MonkeyPatch, torch: Any) -> None:
    """What is in use, and the little that is kept for the next operations."""
    delayed, recording = modelparallel("torch.delayed"), modelparallel("torch.recording")
    monkeypatch.setattr(recording, "RESIDENT", 1 << 20)
    sizes = []

    class Watched(torch.nn.Linear):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__(512, 512)
            known = delayed._active._known.values()
            sizes.append(sum(0 if each.emptied else each.value.bytes for each in known if each.storage() is not None))

    with delayed.delay_param_initialization():
        model = torch.nn.Sequential(*(Watched() for _ in range(8)))
    assert max(sizes) <= 1 << 20
    weights = [parameter for _, parameter in delayed.named(model)]
    assert len(weights) == 8
    for weight, other in itertools.pairwise(weights):
        assert not torch.equal(weight, other)
