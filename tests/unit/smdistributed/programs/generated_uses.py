"""Blocks that use torch as scripts of users do; see ``generated_blocks.py``."""

import collections
import copy
import dataclasses
import random

import torch
from generated_blocks import WIDTH, Block, Residual
from torch import nn
from torch.utils.checkpoint import checkpoint, checkpoint_sequential


class Experts(Block):
    """Each row goes to one of several modules; one may get none."""

    parts = {"inner": lambda: nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(3))}

    def forward(self, x, ids, others):
        chosen = (x[:, :3] * 3).argmax(1)
        found = torch.zeros_like(x)
        for index, expert in enumerate(self.inner):
            rows = (chosen == index).nonzero()[:, 0]
            if len(rows):
                found = found.index_add(0, rows, expert(x[rows]).to(found.dtype))  # autocast
        return super().forward(x, ids, others) + found


class Selecting(Block):
    """Shapes that depend on values; also none at all."""

    parts = {"inner": lambda: nn.Linear(WIDTH, WIDTH)}

    def forward(self, x, ids, others):
        y = super().forward(x, ids, others)
        return y.masked_scatter((y > 0.3).all(1, keepdim=True).expand_as(y), self.inner(y[(y > 0.3).all(1)]))


class Reentrant(Block):
    parts = {"inner": lambda: nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, WIDTH))}

    def forward(self, x, ids, others):
        return checkpoint(self.inner, super().forward(x, ids, others), use_reentrant=True)


class Segmented(Block):
    parts = {"inner": lambda: nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, WIDTH), nn.Sigmoid())}

    def forward(self, x, ids, others):
        return checkpoint_sequential(self.inner, 2, super().forward(x, ids, others), use_reentrant=False)


class Offloaded(Block):
    parts = {"inner": lambda: Residual(0, [])}

    def forward(self, x, ids, others):
        with torch.autograd.graph.save_on_cpu():
            return self.inner(super().forward(x, ids, others), ids, [])


class Functional(Block):
    """Calls a module with other parameters than its own, as meta-learning does."""

    parts = {"inner": lambda: nn.Linear(WIDTH, WIDTH)}

    def forward(self, x, ids, others):
        given = {name: each * 0.5 for name, each in self.inner.named_parameters()}
        return torch.func.functional_call(self.inner, given, (super().forward(x, ids, others),))


class Mapping(Block):
    parts = {"inner": lambda: nn.Linear(WIDTH, WIDTH)}

    def forward(self, x, ids, others):
        return torch.func.vmap(self.inner)(super().forward(x, ids, others))


class Forcing(Block):
    """Forces of an energy."""

    parts = {"inner": lambda: nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh())}

    def forward(self, x, ids, others):
        with torch.enable_grad():
            x = x if x.requires_grad else x.detach().requires_grad_()
            (slope,) = torch.autograd.grad(self.inner(x).pow(2).sum(), x, create_graph=True)
        return super().forward(x, ids, others) - 0.1 * slope


class Calling(Block):
    """Calls another method of another block."""

    parts = {"scale": lambda: nn.Parameter(torch.full((WIDTH,), 0.7))}

    def helped(self, x):
        return self.linear(x) * self.scale

    def forward(self, x, ids, others):
        for each in others[:1]:
            x = x + (each.helped(x) if isinstance(each, Calling) else each.linear(x).sin())
        return super().forward(x, ids, others) * self.scale


class Passing(nn.Module):
    """Returns what it was given, or a part of it."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(WIDTH))

    def forward(self, x, way):
        return (x, x[:, :2], x.reshape(-1, 2), x * self.weight)[way]


class Passed(Block):
    """Changes in place what another module has passed on."""

    parts = {"inner": lambda: Passing()}

    def forward(self, x, ids, others):
        x = super().forward(x, ids, others) * 1.5
        self.inner(x, self.number % 4).mul_(0.5)
        return x + 0.1


class Sides(Block):
    """Changes in place one of two results that have memory in common."""

    parts = {"inner": lambda: Sided()}

    def forward(self, x, ids, others):
        whole, half = self.inner(super().forward(x, ids, others))
        whole.mul_(2)
        return torch.cat((half, whole[:, 2:]), 1)


class Sided(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        x = self.linear(x)
        return x, x[:, :2]


class Overlapping(Block):
    """Another module changes one of two arguments that have memory in common."""

    parts = {"inner": lambda: Overlapped()}

    def forward(self, x, ids, others):
        x = super().forward(x, ids, others) * 1.5
        return self.inner(x, x[:, 1:3]) + x


class Overlapped(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)

    def forward(self, x, part):
        part.mul_(3)
        return self.linear(x)


class Fourier(Block):
    """Complex numbers on their way."""

    parts = {"inner": lambda: Filter()}

    def forward(self, x, ids, others):
        return torch.fft.irfft(self.inner(torch.fft.rfft(super().forward(x, ids, others)).conj()), WIDTH)


class Filter(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(WIDTH // 2 + 1, 2))

    def forward(self, x):
        return x * torch.view_as_complex(self.weight).to(x.dtype)


class Slicing(Block):
    parts = {"inner": lambda: nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, WIDTH))}

    def forward(self, x, ids, others):
        return self.inner[1:](self.inner[:2](super().forward(x, ids, others)))


class Stopping(Block):
    """Targets without gradients."""

    parts = {"inner": lambda: nn.Linear(WIDTH, WIDTH)}

    def forward(self, x, ids, others):
        with torch.no_grad():
            target = self.inner(x)
        return super().forward(x, ids, others) + (self.inner(x) - target) * 0.5


class Token(Block):
    """Parameters of its own, in a list and in a dictionary."""

    def __init__(self, number, others):
        super().__init__(number, others)
        self.inner = nn.ParameterList([torch.ones(WIDTH), torch.zeros(1, WIDTH)])
        self.named = nn.ParameterDict({"gain": torch.ones(())})

    def forward(self, x, ids, others):
        x = super().forward(x, ids, others) * self.inner[0] * self.named["gain"]
        return torch.cat((self.inner[1].expand(len(x), -1), x), 1)[:, WIDTH - 1 : 2 * WIDTH - 1]


@dataclasses.dataclass
class Output:
    hidden: torch.Tensor
    weights: dict
    cache: tuple = ()


class Answering(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)

    def forward(self, given, mask=None, *, flags):
        y = self.linear(given.hidden)
        if mask is not None:
            y = y.masked_fill(~mask, 0.0)
        return Output(y, {"sum": y.sum(), "flags": flags}, (given.hidden, None))


class Records(Block):
    """Records of arguments and results, with masks and strings."""

    parts = {"inner": lambda: Answering()}

    def forward(self, x, ids, others):
        given = Output(super().forward(x, ids, others), {})
        found = self.inner(given, x > -1, flags=("a", True))
        assert found.weights["flags"] == ("a", True)
        return found.hidden + found.weights["sum"] * 0.01 + found.cache[0]


def halved(gradient):
    return gradient * 0.5


def bounded(gradient):
    return gradient.clamp(-1e-4, 1e-4)


class Pulled(Block):
    """Hooks of tensors, and of a module's backward pass."""

    def __init__(self, number, others):
        super().__init__(number, others)
        self.inner = nn.Linear(WIDTH, WIDTH)
        self.inner.register_full_backward_hook(lambda module, given, found: (given[0] * 0.5,))
        self.inner.register_forward_pre_hook(lambda module, given: (given[0] * 2,))

    def forward(self, x, ids, others):
        y = super().forward(x, ids, others)
        if y.requires_grad:
            y.register_hook(halved)
        return self.inner(y)


class Bounded(Block):
    """Hooks of parameters; the linear one is used twice."""

    def __init__(self, number, others):
        super().__init__(number, others)
        self.inner = nn.Linear(WIDTH, WIDTH)
        for each in self.inner.parameters():
            each.register_hook(bounded)

    def forward(self, x, ids, others):
        return self.inner(self.inner(super().forward(x, ids, others)))


class Patching(Block):
    """Has another forward function than its class."""

    def __init__(self, number, others):
        super().__init__(number, others)
        self.inner = nn.Linear(WIDTH, WIDTH)
        native = self.inner.forward
        self.inner.forward = lambda x: native(x) + 0.5 * x

    def forward(self, x, ids, others):
        return self.inner(super().forward(x, ids, others))


class Reversed(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, scale):
        ctx.scale = scale
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient):
        return -ctx.scale * gradient, None


class Reversing(Block):
    """A second head whose gradients come back reversed."""

    parts = {"inner": lambda: nn.Linear(WIDTH, WIDTH)}

    def forward(self, x, ids, others):
        y = super().forward(x, ids, others)
        return y + self.inner(Reversed.apply(y, 0.3))


class Masked(Block):
    """A hook of a parameter that has it trained in part, in a module that is called twice."""

    def __init__(self, number, others):
        super().__init__(number, others)
        self.inner = nn.Linear(WIDTH, WIDTH)
        self.inner.weight.register_hook(masked)

    def forward(self, x, ids, others):
        return self.inner(self.inner(super().forward(x, ids, others)))


def masked(gradient):
    return gradient * torch.eye(WIDTH, dtype=gradient.dtype)


class Slotted:
    __slots__ = ("count", "seen")

    def __init__(self):
        self.count, self.seen = 0, []


class Filling(nn.Module):
    """Changes what is in the objects that it is given, and returns one of them."""

    def __init__(self, number):
        super().__init__()
        self.linear, self.number = nn.Linear(WIDTH, WIDTH), number

    def forward(self, x, store, *, record, slotted, dice=None):
        y = torch.tanh(self.linear(x))
        store.setdefault("lists", []).append([y])
        store["lists"][0][0] = store["lists"][0][0] * 0.5
        store["recent"].append(y.mean())
        store["numbers"].add(self.number)
        record.weights[self.number] = y.sum(), store["lists"]
        record.hidden = record.hidden + y
        slotted.count += 1
        slotted.seen = [*slotted.seen, x, y]
        y = y * (1 + dice[0].random() + torch.rand((), generator=dice[1], dtype=y.dtype))
        return y, store


class Stored(Block):
    """Containers in containers that modules fill, one after the other."""

    def __init__(self, number, others):
        super().__init__(number, others)
        self.inner, self.other = Filling(0), Filling(1)

    def forward(self, x, ids, others):
        store = given = {"recent": collections.deque(maxlen=2), "numbers": set()}
        record, slotted = Output(x, {}), Slotted()
        dice = random.Random(self.number), torch.Generator().manual_seed(self.number)
        x = super().forward(x, ids, others)
        for each in (self.inner, self.other, self.inner):
            x, store = each(x, store, record=record, slotted=slotted, dice=dice)
        assert store is given and store["numbers"] == {0, 1} and record.weights[0][1] is store["lists"], store
        x = x + sum(each[0] for each in store["lists"]) + sum(store["recent"]) + record.hidden * slotted.count
        return x + record.weights[1][0] + sum(slotted.seen) + dice[0].random() * 0.01


class Listed(Block):
    """Hidden states in a list, and nothing else that keeps the model from running as stages."""

    def __init__(self, number, others):
        super().__init__(number, others)
        self.inner, self.other = Listing(), Listing()

    def forward(self, x, ids, others):
        seen = []
        x = self.other(self.inner(super().forward(x, ids, others), seen), seen)
        return x + sum(seen) + seen[0]


class Listing(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)

    def forward(self, x, seen):
        seen.append(self.linear(x))
        return torch.tanh(seen[-1])


class Hyper(Block):
    """The weights of a module, and of one in it, are what another one has computed."""

    def __init__(self, number, others):
        super().__init__(number, others)
        self.inner = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, WIDTH))
        self.other = nn.Linear(WIDTH, WIDTH * WIDTH)

    def forward(self, x, ids, others):
        weight = torch.tanh(self.other(x.mean(0))).view(WIDTH, WIDTH)
        given = {"0.weight": weight, "2.bias": x.mean(0)}
        y = torch.func.functional_call(self.inner, given, (super().forward(x, ids, others),))
        return y + torch.func.functional_call(self.inner[0], {"weight": weight * 0.5}, (x,)) + self.inner[0](x)


class Made(nn.Module):
    """A weight that a network computes of another one."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)

    def forward(self, weight):
        return torch.tanh(self.linear(weight))


class Parametrized(Block):
    def __init__(self, number, others):
        super().__init__(number, others)
        self.inner = nn.Linear(WIDTH, WIDTH)
        nn.utils.parametrize.register_parametrization(self.inner, "weight", Made())

    def forward(self, x, ids, others):
        return super().forward(self.inner(x), ids, others) + self.inner.weight.mean()


class Stacked(Block):
    """One call for several modules, by their weights in a stack."""

    def __init__(self, number, others):
        super().__init__(number, others)
        self.inner = nn.ModuleList(nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh()) for _ in range(2))
        self.base = [copy.deepcopy(self.inner[0]).to("meta")]

    def forward(self, x, ids, others):
        named = [dict(each.named_parameters()) for each in self.inner]
        stacked = {name: torch.stack([each[name] for each in named]) for name in named[0]}
        call = torch.vmap(lambda given, x: torch.func.functional_call(self.base[0], given, (x,)), (0, None))
        return super().forward(x, ids, others) + call(stacked, x).mean(0)
