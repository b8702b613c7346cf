"""Cutting the arguments of a step function, and putting together what it returned."""

from __future__ import annotations

import dataclasses
import inspect
from collections import OrderedDict, UserDict, namedtuple
from typing import Any

import pytest

from .conftest import Modules

pytestmark = pytest.mark.torch

Pair = namedtuple("Pair", "left right")


class Sliced:
    """An object that says itself what a microbatch of it is."""

    def smp_slice(self, count: int, index: int, axis: int) -> tuple[str, int, int, int]:
        return ("slice", count, index, axis)


class Kept(UserDict[str, Any]):
    """As the encodings of transformers: a mapping that isn't a dict."""


def test_splitting(modelparallel: Modules, torch: Any) -> None:
    split = modelparallel("torch.step").split
    x = torch.arange(24).reshape(4, 6)

    def part(value: Any, index: int = 1, axis: int = 0) -> Any:
        return split(value, 2, index, axis, "value")

    assert part(x).tolist() == x[2:].tolist() and part(x, axis=1).tolist() == x[:, 3:].tolist()
    assert part(x, axis=-1, index=0).tolist() == x[:, :3].tolist()
    scalar, module, optimizer = torch.tensor(3), torch.nn.Linear(2, 2), torch.optim.SGD([torch.zeros(1)], 0.1)
    for same in (scalar, module, optimizer, 5, "text", None, x.shape, print):
        assert part(same) is same
    pair = part(Pair(x, [x, 1]))
    assert type(pair) is Pair and pair.left.tolist() == pair.right[0].tolist() == x[2:].tolist() and pair.right[1] == 1
    ordered = part(OrderedDict(a=x, b={"c": (x, "d")}))
    assert type(ordered) is OrderedDict and ordered["b"]["c"][0].shape == (2, 6) and ordered["b"]["c"][1] == "d"
    kept = Kept(a=x)
    assert type(part(kept)) is Kept and part(kept)["a"].shape == (2, 6) and kept["a"] is x
    assert part(Sliced(), axis=3) == ("slice", 2, 1, 3)
    assert part(x).data_ptr() == x[2:].data_ptr()  # no copies
    assert [each.tolist() for each in part({x})] == [x[2:].tolist()]


def test_arguments_by_name(modelparallel: Modules, torch: Any) -> None:
    split_arguments = modelparallel("torch.step").split_arguments

    def body(model: Any, x: Any, y: Any = None, *rest: Any, flag: bool = True, **more: Any) -> None: ...

    x = torch.arange(4)
    bound = inspect.signature(body).bind("model", x, x, x, extra=x, whole=x, wide=x[None], flag=False)
    first, second = split_arguments(bound, 2, {"y", "whole"}, {"wide": 1})
    assert first.args[0] == "model" and second.args[1].tolist() == [2, 3]
    assert second.args[2] is x and second.args[3].tolist() == [2, 3]
    assert second.kwargs["flag"] is False and second.kwargs["whole"] is x
    assert second.kwargs["extra"].tolist() == [2, 3] and second.kwargs["wide"].tolist() == [[2, 3]]


@pytest.mark.parametrize("shape, axis, words", [
    ((6, 2), 0, r"argument 'x' .* shape \(6, 2\) can't be cut on axis 0 into microbatches=4 .* 4 doesn't divide 6"),
    ((4, 6), 1, "since 4 doesn't divide 6"),
    ((4, 4), 2, "input_split_axes has axis 2, but a tensor of shape"),
])  # fmt: skip
def test_what_cannot_be_cut(modelparallel: Modules, torch: Any, shape: Any, axis: int, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        modelparallel("torch.step").split({"a": torch.zeros(shape)}, 4, 0, axis, "x")


def test_packed_sequences_are_refused(modelparallel: Modules, torch: Any) -> None:
    packed = torch.nn.utils.rnn.pack_sequence([torch.zeros(3), torch.zeros(2)])
    with pytest.raises(TypeError, match=r"argument 'x' .* is a PackedSequence.* non_split_inputs"):
        modelparallel("torch.step").split(packed, 2, 0, 0, "x")


@dataclasses.dataclass(frozen=True)
class Record:
    loss: Any
    name: str


def test_merging(modelparallel: Modules, torch: Any) -> None:
    module = modelparallel("torch.step")
    merge, StepOutput = module.merge, module.StepOutput

    def result(index: int) -> Any:
        value = torch.full((2, 3), float(index))
        return {"loss": value.sum(), "pair": Pair(value, [value, index]), "n": index, "none": None,
                "kept": Kept(a=value), "record": Record(value, "r"), "maybe": None if index else value,
                "ragged": [0] * index}  # fmt: skip

    merged = merge([result(index) for index in range(3)])
    assert merged["loss"].reduce_mean().item() == 6 and merged["loss"].reduce_sum().item() == 18
    assert merged["loss"].concat().tolist() == merged["loss"].stack().tolist() == [0, 6, 12]
    assert type(merged["pair"]) is Pair and merged["pair"].left.concat().shape == (6, 3)
    assert (
        merged["pair"].left.stack().shape == (3, 2, 3) and merged["pair"].left.reduce_mean().tolist() == [[1] * 3] * 2
    )
    assert isinstance(merged["pair"].right[0], StepOutput) and merged["pair"].right[1] == [0, 1, 2]
    assert merged["n"] == [0, 1, 2] and merged["none"] is None
    assert type(merged["kept"]) is Kept and merged["kept"]["a"].concat().shape == (6, 3)
    assert type(merged["record"]) is Record and len(merged["record"].loss) == 3 and merged["record"].name == ["r"] * 3
    assert merged["maybe"][1:] == [None, None] and merged["ragged"] == [[], [0], [0, 0]]
    integers = merge([torch.tensor(1), torch.tensor(2)])
    assert (
        integers.reduce_mean().item() == 1.5
        and integers.reduce_sum().item() == 3
        and integers[1] is integers.outputs[1]
    )


def test_detaching_keeps_the_structure(modelparallel: Modules, torch: Any) -> None:
    x = torch.ones(2, requires_grad=True) * 2
    value = {"a": Pair(x, [x]), "b": Record(x, "r"), "c": Kept(d=x)}
    detached = modelparallel("torch.step").detached(value)
    assert not any(
        t.requires_grad for t in (*detached["a"].right, detached["a"].left, detached["b"].loss, detached["c"]["d"])
    )
    assert value["a"].left is x and value["c"]["d"] is x and x.requires_grad


def test_outputs_have_the_methods_of_their_tensors(modelparallel: Modules, torch: Any) -> None:
    """As transformers' Trainer calls them."""
    module = modelparallel("torch.step")
    output = module.merge([torch.ones(2, 3, requires_grad=True) * index for index in range(2)])
    assert not output.detach().cpu().concat().requires_grad
    assert output.sum().item() == [0, 6] and output.shape == [torch.Size((2, 3))] * 2
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        output.nothing()
