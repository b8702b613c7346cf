"""Hooks of modules on several ranks: as in one process, or refused by name."""

import contextvars

import smdistributed.modelparallel.torch as smp
import torch
from ending import leave
from parts_and_whole import PARTS, WIDTH, table, usual
from torch import nn
from torch.nn.modules.module import register_module_forward_hook, register_module_full_backward_hook

PLACES = {
    "blocks": {"blocks.1": 1},
    "parts": {"blocks.0.inner.key": 1, "blocks.1": 1, "blocks.1.inner.value": 0, "last": 1},
}
SEEN = contextvars.ContextVar("seen", default=None)


class Inner(nn.Module):
    def __init__(self):
        super().__init__()
        self.key, self.value = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x, scale):
        return self.value(torch.tanh(self.key(x))) * scale


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.norm = Inner(), nn.LayerNorm(WIDTH)

    def forward(self, x):
        return x + self.inner(self.norm(x), scale=0.5)


class Net(nn.Module):
    """``hook`` registers hooks, which may keep something in ``seen``."""

    def __init__(self, hook, places):
        super().__init__()
        self.first, self.last = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 2)
        self.blocks = nn.ModuleList(Block() for _ in range(3))
        hook(self)
        for name, rank in PLACES[places].items():
            smp.set_partition(self.get_submodule(name), rank)

    def forward(self, x):
        x = self.first(x)
        for block in self.blocks:
            x = block(x)
        return self.last(x)


class Capturing(Net):
    """Registers hooks in its first call, as transformers does, and collects what they see."""

    def forward(self, x):
        if not hasattr(self, "captures"):
            for each in (*self.blocks, *(block.inner.key for block in self.blocks)):
                each.register_forward_hook(captured)
            self.captures = True
        token = SEEN.set([])
        out = super().forward(x)
        seen = SEEN.get()
        SEEN.reset(token)
        return out + sum(each.mean() for each in seen) * len(seen)


class Around(nn.Module):
    """Has a model that captures as a part, with most of it on another rank."""

    def __init__(self, places):
        super().__init__()
        self.before, self.there, self.after = nn.Linear(WIDTH, WIDTH), Capturing(no, places), nn.Linear(2, 2)

    def forward(self, x):
        return self.after(self.there(torch.tanh(self.before(x))))


class Meanwhile(Net):
    """Has hooks for one call only."""

    def forward(self, x):
        kept = []
        handle = self.blocks[1].inner.key.register_forward_hook(lambda module, args, out: kept.append(out))
        out = super().forward(x)
        handle.remove()
        return out + kept[0].mean()


class Unseen(Net):
    """A module on rank 1 calls one of rank 0 that it has in a closure."""

    def __init__(self, hook, places):
        super().__init__(hook, places)
        other, self.there = self.blocks[0].norm, nn.Linear(WIDTH, WIDTH)
        forward = self.there.forward
        self.there.forward = lambda x: forward(other(x))

    def forward(self, x):
        return super().forward(self.there(x))


def no(net):
    """Registers none."""


def captured(module, args, out):
    if SEEN.get() is not None:
        SEEN.get().append(out)


def keeping(net):
    """As for losses of activations, which the step function adds."""
    net.__dict__["seen"] = seen = []
    for name in ("first", "blocks.1.inner.key", "blocks.1.norm", "blocks.2"):
        net.get_submodule(name).register_forward_hook(lambda module, args, out: seen.append(out))


def changing(net):
    for block in net.blocks:
        block.inner.key.register_forward_hook(lambda module, args, out: out * 1.5)
        block.inner.register_forward_pre_hook(
            lambda module, args, kwargs: ((args[0] * 2,), {"scale": kwargs["scale"] + 0.25}), with_kwargs=True
        )


def backwards(net):
    for block in net.blocks:
        block.inner.key.register_full_backward_hook(lambda module, given, found: (given[0] * 0.5,))
        block.norm.register_full_backward_pre_hook(lambda module, found: (found[0] * 2,))


def needed(net):
    """The model fails without them."""
    net.blocks[0].register_forward_hook(lambda module, args, out: (out, 7))
    net.blocks[1].register_forward_pre_hook(lambda module, args: args[0][:1])


def once(net):
    """Takes itself away in the first microbatch."""

    def double(module, args, out):
        handle.remove()
        return out * 2

    handle = net.blocks[1].inner.value.register_forward_hook(double)


def computed(net):
    keeping(net)
    for block in net.blocks:
        nn.utils.weight_norm(block.inner.key)
        nn.utils.spectral_norm(block.inner.value)


def added(model, net, x, backward):
    """A loss of what hooks have kept in this microbatch."""
    loss = model(x).pow(2).mean() + sum(each.pow(2).mean() for each in net.seen) * len(net.seen)
    net.seen.clear()
    backward(loss)
    return loss


def of_all(model, net, x, backward):
    """A loss that counts the calls of all modules, by hooks of torch's for all of them."""
    names, calls = {id(each): name for name, each in net.named_modules()}, []
    note = lambda module, *_: calls.append(names.get(id(module))) if id(module) in names else None  # noqa: E731
    handles = register_module_forward_hook(note), register_module_full_backward_hook(note)
    loss = model(x).pow(2).mean()
    loss = loss * sum(len(name) * number for number, name in enumerate(calls))
    backward(loss)
    for each in handles:
        each.remove()
    return loss.detach() + len(calls)


def late(model, net, x, backward):
    """Registers hooks long after the first steps, for one microbatch."""
    handle = net.blocks[1].norm.register_forward_hook(lambda module, args, out: out * 2)
    loss = usual(model, net, x, backward)
    handle.remove()
    return loss


def both(name, make, run=usual, steps=4):
    return {f"{name}, {places}": (lambda places=places: make(places), PARTS, *(run,) * steps) for places in PLACES}


def of(hook, kind=Net):
    return lambda places: kind(hook, places)


leave(
    exact=table({
        **both("keeping", of(keeping), added),
        **both("changing", of(changing)),
        **both("backwards", of(backwards)),
        **both("needed", of(needed)),
        **both("once", of(once)),
        **both("weights that hooks compute", of(computed), added),
        **both("captured", of(no, Capturing)),
        **both("captured in a part", Around),
        **both("for one call", of(no, Meanwhile)),
        **both("of all modules", of(no), of_all),
    }),
    refused=table({
        "by a module that isn't seen to refer to it": (
            lambda: Unseen(lambda net: net.blocks[0].norm.register_forward_hook(captured), "blocks"), PARTS
        ),
        "in a step for the first time late": (lambda: Net(no, "blocks"), PARTS, usual, usual, usual, late),
        "captured in a part for the first time there": (lambda: Around("blocks"), {**PARTS, "skip_tracing": True}),
    }),
)  # fmt: skip
