"""Chains of stages, without other ranks: what is traced computes the same, what can't be is refused, and why."""

from __future__ import annotations

import random
from typing import Any, Callable

import pytest

from .conftest import Modules

pytestmark = pytest.mark.torch


class Cut:
    """A container whose children are on ranks 0, 1, 2, …, as a chain."""

    def __init__(self, modelparallel: Modules, container: Any, *args: Any, **kwargs: Any) -> None:
        stages, tracing = modelparallel("torch.stages"), modelparallel("torch.stages")
        self.container, self.args, self.kwargs = container, args, kwargs
        called = tracing.signature(args, kwargs)
        assert called is not None
        flags = bytes(module.training for module in container.modules())
        key = stages.ChainKey("", flags, called[0], len(called[1]))
        children = {name: rank for rank, (name, _) in enumerate(container.named_children())}
        self.chain = stages.chain(
            container, key, lambda name: children.get(name.partition(".")[0], 0 if name.startswith("own") else None),
            lambda name: True, lambda name: container.get_submodule(name).forward,
        )  # fmt: skip
        self.differs = modelparallel("torch.verification").differs

    @property
    def ranks(self) -> list[int]:
        return [stage.rank for stage in self.chain.stages]

    def wrong(self) -> str | None:
        found: str | None = self.differs(self.container, self.container.forward, self.chain, self.args, self.kwargs)
        return found


def container(torch: Any, forward: Callable[..., Any], **attributes: Any) -> Any:
    """Three linear modules, a parameter of its own, and this forward function."""

    class Container(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b, self.c = (torch.nn.Linear(4, 4) for _ in range(3))
            self.own = torch.nn.Parameter(torch.ones(4))
            self.register_buffer("own_buffer", torch.ones(4))
            for name, value in attributes.items():
                setattr(self, name, value)

    Container.forward = forward
    torch.manual_seed(0)
    return Container()


def skips(self: Any, x: Any, scale: Any = None, pair: Any = None) -> Any:
    h = self.a(x) * self.own + self.own_buffer
    y = self.b(h.relu())
    if scale is not None:
        y = y * scale
    if pair is not None:
        y = y + pair["one"] * pair["two"][0]
    z = self.c(y) + h
    return {"out": z + x, "size": z.size(0), "again": (self.a(z), "text")}


def test_a_chain_is_the_container(modelparallel: Modules, torch: Any) -> None:
    x = torch.randn(2, 4, requires_grad=True)
    cut = Cut(modelparallel, container(torch, skips), x)
    assert cut.ranks == [0, 1, 2, 0] and cut.wrong() is None
    assert [node.name for node in cut.chain.stages[0].nodes] == ["a", "own", "mul", "own_buffer", "add", "relu"]
    pair = {"one": x * 2, "two": [torch.randn(4)]}
    for args in ((x, 0.5), (x, torch.tensor(2.0), pair), (x, None, pair)):
        assert Cut(modelparallel, container(torch, skips), *args).wrong() is None
    sequence = torch.nn.Sequential(
        torch.nn.Linear(4, 4), torch.nn.ReLU(inplace=True), torch.nn.BatchNorm1d(4), torch.nn.Dropout(0.5)
    )
    before = {name: value.clone() for name, value in sequence.state_dict().items()}
    assert Cut(modelparallel, sequence, torch.randn(3, 4)).wrong() is None
    assert all(torch.equal(before[name], value) for name, value in sequence.state_dict().items())


def through_function(self: Any, x: Any) -> Any:
    import torch

    class Twice(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x.sign()

        @staticmethod
        def backward(ctx: Any, gradient: Any) -> Any:
            return gradient

    return self.b(Twice.apply(self.a(x)))


def decides(self: Any, x: Any) -> Any:
    return self.b(self.a(x)) if x.sum() > 0 else self.a(x)


def counts(self: Any, x: Any) -> Any:
    self.calls += 1
    return self.b(self.a(x))


def remembers(self: Any, x: Any) -> Any:
    self.last = self.a(x)
    return self.b(self.last)


def collects(self: Any, x: Any) -> Any:
    self.all.append(self.a(x))
    return self.b(self.all[-1])


def rolls(self: Any, x: Any) -> Any:
    return self.b(self.a(x)) if random.random() < 2 else x


def noise(self: Any, x: Any) -> Any:
    import torch

    return self.b(self.a(x) + torch.randn(4))


def without(self: Any, x: Any) -> Any:
    import torch

    with torch.no_grad():
        y = self.a(x)
    return self.b(y)


def asks(self: Any, x: Any) -> Any:
    import torch

    return self.b(self.a(x)) if torch.is_grad_enabled() else x


def checkpoints(self: Any, x: Any) -> Any:
    from torch.utils.checkpoint import checkpoint

    return self.b(checkpoint(self.a, x, use_reentrant=False))


def writes(self: Any, x: Any) -> Any:
    self.own_buffer += 1
    return self.b(self.a(x))


@pytest.mark.parametrize(
    "forward, why",
    [
        (through_function, "autograd.Function of its own"),
        (decides, "control flow"),
        (counts, "it changes "),
        (remembers, "it changes "),
        (collects, "it changes "),
        (rolls, "random numbers"),
        (noise, "a tensor that doesn't depend on its arguments"),
        (without, "gradients"),
        (asks, "asks whether gradients are recorded"),
        (checkpoints, "autocast"),
        (writes, "it changes "),
    ],
)
def test_what_a_graph_cannot_say_is_refused(
    modelparallel: Modules, torch: Any, forward: Callable[..., Any], why: str
) -> None:
    model = container(torch, forward, calls=0, last=None, all=[])
    dice = random.getstate(), torch.get_rng_state()
    with pytest.raises(modelparallel("torch.stages").Untraceable, match=why):
        Cut(modelparallel, model, torch.randn(2, 4))
    assert model.calls == 0 and model.last is None and model.all == [] and model.own_buffer.sum() == 4
    assert dice[0] == random.getstate()
    assert torch.is_grad_enabled() and torch.autograd.Function.apply is not None


def test_hooks_inside_are_refused(modelparallel: Modules, torch: Any) -> None:
    model = container(torch, skips)
    model.register_forward_hook(lambda *args: None)  # runs on the rank that calls the model
    Cut(modelparallel, model, torch.randn(2, 4))
    model.a.register_forward_hook(lambda *args: None)
    with pytest.raises(modelparallel("torch.stages").Untraceable, match="the model: modules in it have hooks"):
        Cut(modelparallel, model, torch.randn(2, 4))


def aliases(self: Any, x: Any) -> Any:
    y = self.a(x)
    z = y.view(-1)
    h = self.b(x)
    z.mul_(2)
    return self.c(h + y)


def in_place(self: Any, x: Any) -> Any:
    y = x = self.a(x)
    y += 1
    return self.b(x)


@pytest.mark.parametrize("forward", [aliases, in_place])
def test_a_graph_that_computes_something_else_is_found(
    modelparallel: Modules, torch: Any, forward: Callable[..., Any]
) -> None:
    assert Cut(modelparallel, container(torch, forward), torch.randn(2, 4)).wrong() is not None


def switched(self: Any, x: Any) -> Any:
    return self.b(self.a(x)) if self.wide else self.a(x)


def test_a_chain_holds_as_long_as_what_python_decided_by(modelparallel: Modules, torch: Any) -> None:
    model = container(torch, switched, wide=True)
    chain = Cut(modelparallel, model, torch.randn(2, 4)).chain
    assert chain.holds()
    model.wide = False
    assert not chain.holds()


def test_objects_are_too_special(modelparallel: Modules, torch: Any) -> None:
    signature = modelparallel("torch.stages").signature
    x = torch.zeros(2)
    assert signature((x, object()), {}) is None
    one, two = signature((x, None), {"a": [1, x]}), signature((torch.ones(2), None), {"a": [1, x]})
    assert one[0] != two[0]  # the same tensor twice is another call than two tensors
    assert one[0] == signature((two[1][0], None), {"a": [1, two[1][0]]})[0]
