"""Optimizers, norms and caches of computed weights: in parts, with tensors or state that ranks share, in shards."""

import logging
import threading

import torch
from another import meet
from ending import leave
from generated_optimizers import MADE, Own, clip
from parts_and_whole import PARTS, SHARDS, TENSORS, WIDTH, found
from torch import nn
from torch.nn.utils import clip_grads_with_norm_, get_total_norm, parametrizations, parametrize

WORLDS = {
    "parts": PARTS,
    "tensors": {**TENSORS, "prescaled_batch": True},
    "shards": {**SHARDS, "sdp_gradient_clipping": 0.0},
    "shared state": {"partitions": 1, "microbatches": 2, "ddp": True, "shard_optimizer_state": True},
}


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.there = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.norm, self.last = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 2)

    def forward(self, x):
        return self.last(self.norm(torch.tanh(self.there(torch.tanh(self.first(x))))))


class Computed(Net):
    """With weights that are computed of others."""

    def __init__(self):
        super().__init__()
        self.there, self.first = parametrizations.weight_norm(self.there), parametrizations.spectral_norm(self.first)


class Together(Own):
    """Divides by the norm of all gradients."""

    def step(self, closure=None):
        given = [each for group in self.param_groups for each in group["params"] if each.grad is not None]
        self.total = torch.stack([each.grad.norm() for each in given]).norm()
        super().step()

    def update(self, parameter, gradient, state):
        return gradient / self.total


class Locked(Own):
    def __init__(self, params, lr):
        super().__init__(params, lr)
        self.lock = threading.Lock()


class Begun(Own):
    """Makes its state when it is made."""

    def __init__(self, params, lr):
        super().__init__(params, lr)
        for group in self.param_groups:
            for each in group["params"]:
                self.state[each]["sum"] = torch.full_like(each, 0.1)

    @torch.no_grad()
    def update(self, parameter, gradient, state):
        return gradient / state["sum"].addcmul_(gradient, gradient).sqrt()


class Switched(Own):
    """Has an option of LAMB's, which a schedule switches on."""

    def __init__(self, params, lr):
        super().__init__(params, lr)
        for group in self.param_groups:
            group["trust"] = False

    def update(self, parameter, gradient, state):
        return gradient * parameter.norm() / gradient.norm() if self.param_groups[0]["trust"] else gradient


class Late(Own):
    """Looks at norms from its third step on, and only at large ones."""

    def update(self, parameter, gradient, state):
        state["steps"] = state.get("steps", 0) + 1
        return gradient if state["steps"] < 3 else gradient * torch.clamp(1 / gradient.norm(), max=1)


class Recent(Own):
    """Has a list of gradients, and weights to change to."""

    def update(self, parameter, gradient, state):
        state.setdefault("slow", parameter.detach().clone()).lerp_(parameter, 0.5)
        state["last"] = [*state.get("last", ())[-1:], gradient.clone()]
        return sum(state["last"])

    @torch.no_grad()
    def swap(self):
        for parameter, state in self.state.items():
            parameter.lerp_(state["slow"], 0.3)


class Listed:
    """Two of torch's in an object of the script's own."""

    def __init__(self, params, lr):
        given = list(params)
        self.every = [torch.optim.Adagrad(given[:3], lr), torch.optim.AdamW(given[3:], lr, eps=1e-2)]

    @property
    def param_groups(self):
        return [group for each in self.every for group in each.param_groups]

    @property
    def state(self):
        return {key: value for each in self.every for key, value in each.state.items()}

    def step(self):
        for each in self.every:
            each.step()

    def zero_grad(self, set_to_none=True):
        for each in self.every:
            each.zero_grad(set_to_none)


class Nothing:
    """Looks like no optimizer."""

    def __init__(self, params, lr):
        self.params = list(params)


def lbfgs(params, lr):
    return torch.optim.LBFGS(list(params), lr)


def made(kind, more):
    """Makes an optimizer with one group."""
    return lambda params: kind([{"params": list(params)}], 0.02, **more)


OPTIMIZERS = {name: made(*each) for name, each in MADE.items()} | {
    each.__name__: made(each, {}) for each in (Together, Locked, Begun, Late, Recent)
}
OPTIMIZERS |= {each.__name__: lambda params, each=each: each(params, 0.02) for each in (Listed, lbfgs)}


def early(params):
    """Clips by hand: by a norm that torch's functions had before smp was asked."""
    given = list(params)
    clip_grads_with_norm_(given, 0.1, get_total_norm([each.grad.detach() for each in given if each.grad is not None]))


def summed(params):
    """Looks at the norms of what there is, weights and gradients."""
    for each in list(params):
        if each.grad is not None:
            each.detach().norm()
            each.grad.data.norm(2)


CLIPS = {"early": early, **{kind: lambda params, kind=kind: clip(kind, params) for kind in ("norm", "value", "hand")}}


def cached(model, net, x, backward):
    """The whole forward pass with weights that are computed once."""
    with parametrize.cached():
        loss = model(x).pow(2).mean()
    backward(loss)
    return loss


said = {}


def note(name, *case, **more):
    said[name] = found(*case, **more)
    meet()


def swap(optimizer, params):
    optimizer.swap()


def switch(optimizer, params):
    optimizer.param_groups[0]["trust"] = True


def assign(optimizer, params):
    """Gives weights other values in the way that PyTorch advises against."""
    for each in params:
        if each.grad is not None:
            each.data = each.data * 0.5


def again(optimizer, params):
    optimizer.load_state_dict(optimizer.state_dict())


def by_itself(params):
    for each in params:
        if each.grad is not None:
            nn.utils.clip_grad_norm_([each], 0.05)


def smallest(params):
    nn.utils.clip_grad_norm_(params, 0.1, float("-inf"))


FEW = ("Adafactor", "trust", "two", "Together", "Begun", "lbfgs")
"""Where ranks have whole parameters."""
for name, world in WORLDS.items():
    for optimizer in OPTIMIZERS if name in ("tensors", "shards") else FEW:
        note(f"{optimizer}, {name}", Net, world, optimizers=OPTIMIZERS[optimizer], is_before=len(said) % 2 == 0)
    for kind, clipped in CLIPS.items() if name != "shared state" else ():
        note(f"clip {kind}, {name}", Net, world, clip=clipped)
    note(f"cached, {name}", Computed, world, *[cached] * 3)
note("no optimizer", Net, PARTS, optimizers=made(Nothing, {}))
for name, world in WORLDS.items():
    note(f"swapped, {name}", Net, world, optimizers=OPTIMIZERS["Recent"], behind=swap)
    note(f"assigned, {name}", Net, world, behind=assign)
    note(f"loaded, {name}", Net, world, optimizers=OPTIMIZERS["Recent"], behind=again)
    note(f"clip smallest, {name}", Net, world, clip=smallest)
note("switched", Net, WORLDS["tensors"], optimizers=made(Switched, {}), behind=switch)
note("clip by itself", Net, PARTS, clip=by_itself)
note("clipped twice", Net, {**SHARDS, "sdp_gradient_clipping": 0.1}, clip=CLIPS["norm"])
with parametrize.cached():
    note("cached around", Computed, WORLDS["tensors"])
warned = []
logging.getLogger("smdistributed.modelparallel").addFilter(lambda record: warned.append(record.getMessage()) or True)
note("summed", Net, PARTS, clip=summed)
leave(said=said, warned=[each for each in warned if "norm of" in each])
