"""Which replica keeps what, how a loss scale moves, what checkpoints keep and where: without ranks."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from .conftest import Modules

pytestmark = pytest.mark.torch


@given(sizes=st.lists(st.integers(1, 5000), max_size=12), owners=st.integers(1, 7), data=st.data())
def test_every_element_has_one_owner(modelparallel: Modules, sizes: list[int], owners: int, data: Any) -> None:
    pieces = modelparallel("torch.leaves")
    whole = data.draw(st.sets(st.sampled_from(range(len(sizes))))) if sizes else set()
    found = pieces.divide(sizes, owners, whole)
    assert len(found) == owners
    covered = sorted(piece for each in found for piece in each)
    for number, size in enumerate(sizes):
        parts = [piece for piece in covered if piece.number == number]
        assert [part.start for part in parts] == [0, *(part.stop for part in parts[:-1])]
        assert parts[-1].stop == size
        assert all(part.start % pieces.ALIGNED == 0 for part in parts)
        assert len(parts) == 1 or number not in whole
    held = [sum(piece.stop - piece.start for piece in each) for each in found]
    largest = max((sizes[number] for number in whole), default=0)
    assert max(held) <= sum(sizes) / owners + max(largest, pieces.ALIGNED * owners) + 1


def test_what_comes_later_goes_to_whoever_has_least(modelparallel: Modules) -> None:
    pieces = modelparallel("torch.leaves")
    assert pieces.divide([10, 30], 2, {0, 1}, [25, 0]) == [[(0, 0, 10)], [(1, 0, 30)]]
    assert pieces.divide([128], 2, (), [128, 0]) == [[], [(0, 0, 128)]]


def test_a_loss_scale_falls_and_rises(modelparallel: Modules) -> None:
    LossScale = modelparallel("torch.optimizer_state").LossScale

    def values(overflows: str, **arguments: Any) -> list[float]:
        scale = LossScale(None, True, {"init_scale": 8.0, "scale_window": 2, "min_scale": 1, **arguments})
        seen = []
        for each in overflows:
            scale.update(each == "x")
            seen.append(scale.value)
        return seen

    assert values("....") == [8, 16, 16, 32]
    assert values(".x...") == [8, 4, 4, 8, 8]
    assert values("xxxxx") == [4, 2, 1, 1, 1]
    assert values("xx.x", delayed_shift=2, scale_window=9) == [8, 4, 4, 2]
    assert values("xx.x", delayed_shift=2, scale_window=9, consecutive_hysteresis=True) == [8, 4, 4, 4]
    assert values("x..x", delayed_shift=2) == [8, 8, 16, 16]
    fixed = LossScale(128.0, False, {})
    fixed.update(True)
    assert fixed.value == 128
    one, other = (LossScale(None, True, {"init_scale": 8.0, "scale_window": 3}) for _ in range(2))
    one.update(False)
    other.load_state_dict(one.state_dict())
    for each in (one, other):
        each.update(False)
        each.update(False)
    assert one.value == other.value == 16
    for fixed_scale, arguments, words in (
        (0, {}, "static_loss_scale=0: expected"), (1, {"window": 3}, "'window' is none of dynamic_loss_args"),
        (1, {"scale_factor": 1}, "scale_factor=1: expected more than 1"),
    ):  # fmt: skip
        with pytest.raises((ValueError, TypeError), match=words):
            LossScale(fixed_scale, True, arguments)


@pytest.mark.parametrize(
    ("strategy", "kept", "places"),
    [("each", 6, {}), ("contiguous", 1, {}), ("group_2", 3, {}), ("group_4", 2, {}),
     ("contiguous", 2, {0: 0, 2: 0, 3: 1, 5: 1}), ("group_2", 4, {0: 0, 2: 0, 3: 1, 5: 1}),
     ("contiguous", 3, {0: 0, 2: -2, 3: 1})],
)  # fmt: skip
def test_what_checkpoints_keep(
    modelparallel: Modules, monkeypatch: pytest.MonkeyPatch, strategy: str, kept: int, places: dict[int, int]
) -> None:
    """Only what goes into each group; the groups end where another partition begins."""
    torch = pytest.importorskip("torch")
    patch = modelparallel("torch.patches.checkpoint")
    layers = [torch.nn.Linear(4, 4) if place % 3 != 1 else torch.nn.Tanh() for place in range(6)]

    class Model:
        partitioned = False

        def place_of(self, module: Any) -> Any:
            return places.get(layers.index(module))

        def is_away(self, module: Any) -> bool:
            return False

    monkeypatch.setattr(patch.state, "model", Model())
    saved = []
    results = []
    marked = torch.nn.Sequential(*layers)
    x = torch.randn(3, 4, requires_grad=True)
    for call in (
        lambda: marked(x), lambda: patch.checkpoint_sequential(marked, x, strategy=strategy),
        lambda: patch.set_activation_checkpointing(marked, strategy=strategy) or marked(x),
    ):  # fmt: skip
        saved.append(0)

        def count(tensor: Any) -> Any:
            saved[-1] += 1
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(count, lambda tensor: tensor):
            value = call()
        gradients = torch.autograd.grad(value.square().sum(), [x, *marked.parameters()])
        results.append((value, *gradients))
    assert saved[1:] == [kept, kept]
    assert saved[0] > kept
    for other in results[1:]:
        assert all(torch.equal(one, two) for one, two in zip(results[0], other))
    assert torch.equal(patch.checkpoint(layers[0], x), layers[0](x))


@pytest.mark.parametrize("strategy", ["", "group_", "group_0", "all"])
def test_no_such_strategy(modelparallel: Modules, strategy: str, torch: Any) -> None:
    with pytest.raises(ValueError, match="expected each, contiguous or group_N, such as group_2"):
        modelparallel("torch.patches.checkpoint").set_activation_checkpointing(torch.nn.Linear(1, 1), strategy=strategy)


def test_activations_come_back_before_they_are_asked_for(modelparallel: Modules, torch: Any) -> None:
    """Those of the layers before the one that is asked for, whichever thread asks; outside of layers each tensor."""
    offload = modelparallel("torch.patches.checkpoint").Offload(2, "cpu")
    tensors = [torch.full((2,), float(each)) for each in range(8)]
    kept = []
    for place in range(0, 6, 2):  # three layers with two tensors each, and two tensors
        with offload.layer():
            kept += [offload.keep(tensor) for tensor in tensors[place : place + 2]]
    kept += [offload.keep(tensor) for tensor in tensors[6:]]
    for tensor in tensors:
        tensor.zero_()  # they are copies
    assert offload.keep(parameter := torch.nn.Parameter(torch.ones(1))) is parameter
    assert offload.take(parameter) is parameter

    def asked(place: int) -> list[int]:
        with ThreadPoolExecutor(1) as thread:  # as torch's engine does on GPUs
            assert thread.submit(offload.take, kept[place]).result().tolist() == [place, place]
        return [place for place, each in enumerate(kept) if each.back is not None]

    assert asked(7) == [4, 5, 6]
    assert asked(6) == [2, 3, 4, 5]
    assert asked(4) == [0, 1, 2, 3, 5]
    assert asked(5) == [0, 1, 2, 3]
    assert asked(7) == [0, 1, 2, 3], "again, in a second backward pass"
