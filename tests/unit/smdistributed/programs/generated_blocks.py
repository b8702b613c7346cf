"""The blocks of generated models. Each is called with ``x``, the numbers of the samples, and blocks before it."""

from typing import NamedTuple

import smdistributed.modelparallel.torch as smp
import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

WIDTH = 4
OTHER_CALL = 1000
"""What is added to the samples' numbers in a second call of one step."""


class Masks:
    """What dropout drew in parts, by block and first sample; ``replays``: in one process the same is taken again."""

    def __init__(self):
        self.drawn, self.replays = {}, False

    def drop(self, key, like):
        if self.replays:
            return self.drawn[key]
        mask = functional.dropout(torch.ones_like(like), 0.5)
        if not smp.state.tracing:
            self.note(key, mask)
        return mask

    def note(self, key, mask):
        assert torch.equal(self.drawn.setdefault(key, mask.detach()), mask), f"dropout of {key} drew something else"


MASKS = Masks()


class Block(nn.Module):
    """``others``: the blocks before this one that it has to do with, one at most. ``parts``: what else it has."""

    parts = {}

    def __init__(self, number, others):
        super().__init__()
        self.number = number
        self.linear = nn.Linear(WIDTH, WIDTH)
        for name, make in self.parts.items():
            setattr(self, name, make())

    def forward(self, x, ids, others):
        return torch.tanh(self.linear(x))


class Norm(Block):
    parts = {"norm": lambda: nn.BatchNorm1d(WIDTH)}

    def forward(self, x, ids, others):
        return self.linear(self.norm(x))


class Inplace(Block):
    def forward(self, x, ids, others):
        y = self.linear(x)
        y += x
        return y.relu_()


class Residual(Block):
    parts = {"inner": lambda: nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU(), nn.Linear(WIDTH, WIDTH))}

    def forward(self, x, ids, others):
        return x + self.inner(self.linear(x)) * 0.5


class Frozen(Block):
    def __init__(self, number, others):
        super().__init__(number, others)
        self.linear.requires_grad_(False)


class Checkpointed(Block):
    def forward(self, x, ids, others):
        return checkpoint(super().forward, x, ids, others, use_reentrant=False)


class Noted(Block):
    """A running mean."""

    def __init__(self, number, others):
        super().__init__(number, others)
        self.register_buffer("mean", torch.zeros(WIDTH))

    def forward(self, x, ids, others):
        if self.training:
            self.mean.mul_(0.9).add_(x.detach().mean(0), alpha=0.1)
        return super().forward(x - self.mean, ids, others)


class Counting(Block):
    parts = {"calls": lambda: 0}

    def forward(self, x, ids, others):
        self.calls += 1
        return super().forward(x, ids, others) * (1 + self.calls % 3)


class Collecting(Block):
    parts = {"log": list}

    def forward(self, x, ids, others):
        self.log.append(float(x.detach().sum()))
        return super().forward(x, ids, others) + len(self.log) * 0.01


class Keeping(Block):
    def forward(self, x, ids, others):
        self.kept = super().forward(x, ids, others)
        return self.kept * 2


class Borrowing(Block):
    """Computes with a weight of another block."""

    def forward(self, x, ids, others):
        return super().forward(functional.linear(x, (others[0] if others else self).linear.weight.T), ids, others)


class Shared(Block):
    """Has the weight of another block."""

    def __init__(self, number, others):
        super().__init__(number, others)
        if others:
            self.linear.weight = others[0].linear.weight


class Reading(Block):
    """Reads what another block keeps."""

    def forward(self, x, ids, others):
        found = 0.0
        for each in others[:1]:
            found = getattr(each, "calls", 0) * 0.1 + sum(getattr(each, "log", ())) * 0.01
            if hasattr(each, "mean"):
                found = found + each.mean.sum()
        return super().forward(x, ids, others) + found


class Setting(Block):
    """Sets an attribute of another block."""

    def forward(self, x, ids, others):
        for each in others[:1]:
            each.calls = getattr(each, "calls", 0) + 2
        return super().forward(x, ids, others)


class Twice(Block):
    parts = {"norm": lambda: nn.BatchNorm1d(WIDTH)}

    def forward(self, x, ids, others):
        x = self.norm(super().forward(x, ids, others))
        return self.norm(super().forward(x, ids, others))


class Watching(Block):
    """Calls a block before once more."""

    def forward(self, x, ids, others):
        if others and not isinstance(others[0], Watching):
            x = x + others[0](x * 0.5, ids + 10 * OTHER_CALL * (1 + self.number), [])
        return super().forward(x, ids, others)


class Extra(Block):
    parts = {"steps": lambda: 0}

    def forward(self, x, ids, others):
        self.steps += self.training
        return super().forward(x, ids, others)

    def get_extra_state(self):
        return {"steps": self.steps}

    def set_extra_state(self, state):
        self.steps = state["steps"]


class Dropping(Block):
    def forward(self, x, ids, others):
        x = super().forward(x, ids, others)
        return x * MASKS.drop((self.number, int(ids[0])), x) if self.training else x


class Embedding(Block):
    parts = {"table": lambda: nn.Embedding(6, WIDTH, padding_idx=1)}

    def forward(self, x, ids, others):
        return super().forward(x, ids, others) + self.table(ids % 6)


class Containing(Block):
    """``inner`` may be on another rank."""

    parts = {"inner": lambda: Residual(0, [])}

    def forward(self, x, ids, others):
        return super().forward(self.inner(self.linear(x), ids, others=[]), ids, others)


class Sequence(Block):
    """The last of a row may be on another rank."""

    def __init__(self, number, others):
        super().__init__(number, others)
        self.inner = nn.Linear(WIDTH, WIDTH, bias=False)
        self.row = nn.Sequential(nn.LayerNorm(WIDTH), nn.ReLU(inplace=True), self.inner)

    def forward(self, x, ids, others):
        return self.row(super().forward(x, ids, others))


class Normalized(Block):
    """A parametrized weight."""

    parts = {"inner": lambda: nn.utils.parametrizations.weight_norm(nn.Linear(WIDTH, WIDTH))}

    def forward(self, x, ids, others):
        return self.inner(super().forward(x, ids, others))


class Recurrent(Block):
    parts = {"inner": lambda: nn.LSTM(2, WIDTH, batch_first=True)}

    def forward(self, x, ids, others):
        output, (hidden, _) = self.inner(super().forward(x, ids, others).reshape(-1, 2, 2), None)
        return output[:, -1] + hidden[0]


class Attending(Block):
    parts = {"inner": lambda: nn.TransformerEncoderLayer(WIDTH, 2, 6, dropout=0.0, batch_first=True)}

    def forward(self, x, ids, others):
        return self.inner(torch.stack((x, super().forward(x, ids, others)), 1), src_mask=None).mean(1)


def doubled(module, args, output):
    return output * 2


class Hooked(Block):
    def __init__(self, number, others):
        super().__init__(number, others)
        self.inner = nn.Linear(WIDTH, WIDTH)
        self.inner.register_forward_hook(doubled)

    def forward(self, x, ids, others):
        return self.inner(super().forward(x, ids, others))


class Pair(NamedTuple):
    first: torch.Tensor
    more: dict


class Named(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)

    def forward(self, *, x, factor=None, pairs=()):
        first = self.linear(x) * (1.0 if factor is None else factor)
        return Pair(first, {"sum": sum((each["y"] for each in pairs), first), "count": len(pairs), "none": None})


class Naming(Block):
    """Arguments by name, structures of tensors and other values, there and back."""

    parts = {"inner": lambda: Named()}

    def forward(self, x, ids, others):
        y = super().forward(x, ids, others)
        found = self.inner(x=y, factor=0.5, pairs=[{"y": x}, {"y": y.cos()}])
        return found.first + found.more["sum"] * found.more["count"]


class Writer(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)

    def forward(self, x, into):
        into[:, 1:3] = self.linear(x)[:, :2]
        return x.sum(1, keepdim=True)


class Writing(Block):
    """Another module changes what it is given."""

    parts = {"inner": lambda: Writer()}

    def forward(self, x, ids, others):
        into = super().forward(x, ids, others) * 1.5
        return self.inner(x, into) + into


class Patched(Block):
    parts = {"inner": lambda: nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh())}

    def forward(self, x, ids, others):
        return smp.patches.checkpoint.checkpoint(self.inner, super().forward(x, ids, others))


class Viewing(Block):
    """Returns views, also of what it was given."""

    parts = {"inner": lambda: Splitter()}

    def forward(self, x, ids, others):
        first, second = self.inner(super().forward(x, ids, others))
        return torch.cat((second, first.mul(2)), 1)


class Splitter(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(()) * 1.5)

    def forward(self, x):
        return (x * self.scale).chunk(2, 1)
