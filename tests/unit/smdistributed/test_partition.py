"""Who owns which module: by cost, by marks, from a file."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Callable

import pytest

from .conftest import Modules

pytestmark = pytest.mark.torch


@pytest.fixture
def partition(modelparallel: Modules, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The module, in a world of one rank whose script has four partitions."""
    module = modelparallel("torch.partition")
    config = modelparallel("torch.config").Config
    monkeypatch.setattr(
        module.state, "_world",
        SimpleNamespace(rank=0, cfg=config({"pipeline_parallel_degree": 4}, {}), topology=SimpleNamespace(world=1)),
    )  # fmt: skip
    return module


@pytest.fixture
def configured(modelparallel: Modules) -> Callable[..., Any]:
    def read(**given: Any) -> Any:
        return modelparallel("torch.config").read({"SAGEMAKER_BASE_DIR": "/nowhere"}, [], given)

    return read


def language_model(nn: Any, layers: int = 6, width: int = 16, words: int = 40) -> Any:
    """Layers in a list, an embedding whose weight is the head's as well, and a norm between."""

    class Layer(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.attention = nn.MultiheadAttention(width, 2)
            self.first, self.act, self.second = nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)

    class Model(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.words = nn.Embedding(words, width)
            self.layers = nn.ModuleList(Layer() for _ in range(layers))
            self.norm = nn.LayerNorm(width)
            self.head = nn.Linear(width, words, bias=False)
            self.head.weight = self.words.weight

    return Model()


def parts_of(owner: dict[str, int], parts: int) -> list[list[str]]:
    return [[name for name, index in owner.items() if index == part] for part in range(parts)]


def test_a_language_model_is_cut_between_layers(nn: Any, partition: Any, configured: Any) -> None:
    decided = partition.decide(language_model(nn), configured(partitions=3))
    outer = {name: index for name, index in decided.owner.items() if name.count(".") <= 1}
    assert outer == {
        "": 0, "words": 0, "layers": 0, "layers.0": 0, "layers.1": 0, "layers.2": 1, "layers.3": 1, "layers.4": 2,
        "layers.5": 2, "norm": 2, "head": 0,
    }  # fmt: skip
    assert all(index == outer[name[:8]] for name, index in decided.owner.items() if name.count(".") > 1)
    said = partition.table(language_model(nn), decided, 3).splitlines()
    assert said[0] == "the model is divided by cost (0.8 memory, 0.2 estimated time)"
    assert said[1].endswith("parameters ( 35%): words, layers.0 to layers.1, head")
    assert said[3].endswith(": layers.4 to layers.5, norm")


def test_a_block_is_opened_only_where_parts_would_be_uneven(nn: Any, partition: Any, configured: Any) -> None:
    model = language_model(nn, layers=1)
    decided = partition.decide(model, configured(partitions=2))
    assert decided.owner["layers.0.attention"] == decided.owner["layers.0.attention.out_proj"]
    assert {index for name, index in decided.owner.items() if name.startswith("layers.0")} == {0, 1}
    whole = partition.decide(language_model(nn, layers=4, words=2), configured(partitions=4)).owner
    assert [whole[f"layers.{each}.second"] for each in range(4)] == [0, 1, 2, 3]


@pytest.mark.parametrize("parts", [1, 2, 3, 4, 7])
def test_every_module_has_an_owner_and_parts_run_in_order(nn: Any, partition: Any, configured: Any, parts: int) -> None:
    model = nn.Sequential(*(nn.Sequential(nn.Linear(2, 2 + each), nn.ReLU()) for each in range(9)))
    owner = partition.decide(model, configured(partitions=parts)).owner
    assert list(owner) == [name for name, _ in model.named_modules(remove_duplicate=False)]
    held = [owner[f"{each}.0"] for each in range(9)]
    assert held == sorted(held)
    assert set(held) == set(range(parts))


def test_the_largest_part_is_as_small_as_can_be(modelparallel: Modules) -> None:
    """Against every possible cut."""
    import itertools
    import random

    balance = modelparallel("torch.balance")
    draw = random.Random(5)
    for _ in range(200):
        costs = [draw.choice([0.1, 1.0, draw.random() * 5]) for _ in range(draw.randint(1, 8))]
        parts = draw.randint(1, 5)
        found = balance._evenest([balance.Unit((str(at),), cost) for at, cost in enumerate(costs)], parts)
        assert [unit.cost for part in found for unit in part] == costs
        assert len(found) == parts
        assert sum(bool(part) for part in found) == min(parts, len(costs))
        cuts = itertools.combinations_with_replacement(range(len(costs) + 1), parts - 1)
        best = min(max(sum(costs[begin:end]) for begin, end in zip((0, *cut), (*cut, len(costs)))) for cut in cuts)
        assert max(sum(unit.cost for unit in part) for part in found) == pytest.approx(best)


def test_memory_and_time_are_weighed(nn: Any, partition: Any, configured: Any) -> None:
    """A large table costs memory and no time."""
    model = nn.Sequential(nn.Embedding(300, 10), *(nn.Linear(10, 10) for _ in range(6)))
    by_memory = partition.decide(model, configured(partitions=2, memory_weight=1.0)).owner
    by_time = partition.decide(model, configured(partitions=2, memory_weight=0.0)).owner
    assert [by_memory[str(each)] for each in range(7)] == [0, 1, 1, 1, 1, 1, 1]
    assert [by_time[str(each)] for each in range(7)] == [0, 0, 0, 0, 1, 1, 1]


def test_early_layers_of_a_network_for_images_take_their_time(nn: Any, partition: Any, configured: Any) -> None:
    """Each stage has four times the parameters of the one before, and a quarter of the positions."""

    def stage(channels: int) -> Any:
        return nn.Sequential(
            nn.Conv2d(channels // 2, channels, 3, stride=2), nn.BatchNorm2d(channels), nn.ReLU(),
            nn.Conv2d(channels, channels, 3), nn.Conv2d(channels, channels, 1, stride=2),
        )  # fmt: skip

    model = nn.ModuleDict({str(each): stage(8 * 2**each) for each in range(4)})
    by_time = partition.decide(model, configured(partitions=2, memory_weight=0.0)).owner
    by_memory = partition.decide(model, configured(partitions=2, memory_weight=1.0)).owner
    assert [by_time[f"{each}.3"] for each in range(4)] == [0, 0, 1, 1]
    assert [by_memory[f"{each}.3"] for each in range(4)] == [0, 0, 0, 1]
    decoder = nn.Sequential(nn.Conv2d(8, 8, 3, 4), nn.MaxPool2d(2), nn.Upsample(scale_factor=2),
                            nn.ConvTranspose2d(8, 8, 3, 4), nn.Conv2d(8, 8, 3))  # fmt: skip
    said = partition.table(decoder, partition.decide(decoder, configured(partitions=2, memory_weight=0.0)), 2)
    assert said.splitlines()[1].endswith(": 0, 3")  # at sixteen times the positions, the last ones are the heaviest


def test_modules_that_share_a_parameter_stay_together(nn: Any, partition: Any, configured: Any) -> None:
    shared = nn.Linear(4, 4)
    model = nn.ModuleDict({"a": nn.Linear(4, 4), "b": shared, "c": nn.Linear(4, 4), "d": nn.Linear(4, 4)})
    model["again"] = shared
    model["d"].weight = model["b"].weight
    model["d"].bias = model["a"].bias
    for given in ({"partitions": 3}, {"partitions": 3, "auto_partition": False}):
        partition.set_partition(model["c"], 2)
        partition.set_partition(model["d"], 1)
        owner = partition.decide(model, configured(**given)).owner
        assert owner["a"] == owner["b"] == owner["again"] == owner["d"] == 0
        assert owner["c"] > 0


def test_marks(nn: Any, partition: Any, configured: Any) -> None:
    """The innermost counts; what no context made is in the default partition; copies are where the original is."""
    with partition.partition(1):
        inner = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
        with partition.partition(2):
            deepest = nn.Linear(2, 2)
        outer = nn.Linear(2, 2)
    model = nn.ModuleDict({
        "none": nn.Linear(2, 2), "inner": inner, "deepest": deepest, "outer": outer, "copy": copy.deepcopy(deepest),
        "set": nn.Sequential(nn.Linear(2, 2)),
    })  # fmt: skip
    partition.set_partition(model["set"], 0)
    decided = partition.decide(model, configured(partitions=4, auto_partition=False, default_partition=3))
    assert decided.owner == {
        "": 0, "none": 3, "inner": 1, "inner.0": 1, "inner.1": 1, "deepest": 2, "outer": 1, "copy": 2, "set": 0,
        "set.0": 0,
    }  # fmt: skip
    assert decided.reason == "as the script marks it (auto_partition=False (smp.init))"
    assert set(partition.decide(model, configured(partitions=2)).owner.values()) == {0, 1}


@pytest.mark.parametrize("index", [4, -1, True, "1", 1.0])
def test_a_mark_for_no_partition_is_an_error(nn: Any, partition: Any, index: Any) -> None:
    with pytest.raises(ValueError, match="expected a partition from 0 to 3"), partition.partition(index):
        pass
    with pytest.raises(ValueError, match="expected a partition from 0 to 3"):
        partition.set_partition(nn.Linear(1, 1), index)
    assert "__wrapped__" not in vars(nn.Module.__init__)


def test_a_decision_is_kept_in_a_file(nn: Any, partition: Any, configured: Any, tmp_path: Path) -> None:
    path = tmp_path / "new" / "parts.json"
    model = language_model(nn)
    partition.state._world.cfg = configured(partitions=3, partition_file=str(path))
    decided = partition.agree(model)
    assert json.loads(path.read_text()) == {"partitions": 3, "modules": {
        "": 0, "layers.2": 1, "layers.3": 1, "layers.4": 2, "layers.5": 2, "norm": 2,
    }}  # fmt: skip
    loading = configured(partitions=3, partition_file=str(path), load_partition=True)
    assert partition.decide(model, loading).owner == decided.owner
    path.write_text('{"modules": {"layers": 1, "layers.5": 2}}')
    owner = partition.decide(model, loading).owner
    assert (owner["words"], owner["layers.4.act"], owner["layers.5.act"]) == (0, 1, 2)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "can't be read: No such file"),
        ("{", "expected JSON such as"),
        ('{"modules": [1]}', "expected JSON such as"),
        ('{"modules": {"other": 1}}', "names 'other', which isn't a module of this model"),
        ('{"modules": {"0": 2}}', "has '0' in partition 2, but pipeline_parallel_degree=2 (smp.init)"),
    ],
)
def test_a_file_that_does_not_fit(
    nn: Any, partition: Any, configured: Any, tmp_path: Path, content: str | None, words: str
) -> None:
    path = tmp_path / "parts.json"
    if content is not None:
        path.write_text(content)
    partition.state._world.cfg = configured(partitions=2, partition_file=str(path), load_partition=True)
    with pytest.raises(ValueError) as caught:
        partition.agree(nn.Sequential(nn.Linear(1, 1), nn.Linear(1, 1)))
    assert str(caught.value).startswith(f"partition_file {path} ") or str(caught.value).startswith(
        f"partition_file {path}:"
    )
    assert words in str(caught.value)
