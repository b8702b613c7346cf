"""Modules that torch compiles, scripts, transforms, copies and saves, and hooks of state dicts: over ranks and in one
process alike, or refused by name."""

import copy
import io

import smdistributed.modelparallel.torch as smp
import torch
from another import begin, meet, together
from comparing import distance
from ending import error_of, leave
from parts_and_whole import PARTS, SHARDS, TENSORS, WIDTH, made, step, table, usual
from torch import nn
from torch.func import functional_call, grad, jacrev

WORLDS = {"parts": PARTS, "tensors": TENSORS, "shards": {**SHARDS, "sdp_gradient_clipping": 0.0}}


class Config:
    scale = None


class Net(nn.Module):
    """``run``: what it does with ``there`` and ``x``."""

    def __init__(self, there=lambda: nn.Linear(WIDTH, WIDTH), run=lambda net, x: net.there(x)):
        super().__init__()
        self.first, self.there, self.last = nn.Linear(WIDTH, WIDTH), there(), nn.Linear(WIDTH, 2)
        self.run, self.config = run, Config()
        self.there.config = self.config

    def forward(self, x):
        return self.last(self.run(self, torch.tanh(self.first(x))))


class Inner(nn.Module):
    """Has a transform of its own weights."""

    def __init__(self, transform):
        super().__init__()
        self.linear, self.transform = nn.Linear(WIDTH, WIDTH), transform

    def forward(self, x):
        return self.transform(self.linear, x)


class Scaled(nn.Linear):
    def forward(self, x):
        return super().forward(x) * (self.config.scale or 1.0)


def compiled():
    return torch.compile(nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh()), backend="aot_eager")


def slope(linear, x):
    return grad(lambda x: torch.tanh(linear(x)).pow(2).sum())(x)


def slopes(linear, x):
    return jacrev(lambda x: torch.tanh(linear(x)))(x[0])[:1].expand(len(x), WIDTH)


def adapted(linear, x):
    own = dict(linear.named_parameters())
    slopes = grad(lambda own: functional_call(linear, own, (x,)).pow(2).sum())(own)
    return functional_call(linear, {name: each - 0.1 * slopes[name] for name, each in own.items()}, (x,))


def completed(net, x):
    """A configuration that modules of both ranks have is completed by the first call."""
    if net.config.scale is None:
        net.config.scale = 0.5
    return net.there(x)


def completed_behind(net, x):
    x = net.there(x)
    if net.config.scale is None:
        net.config.scale = 0.5
    return x


def counted(net, x):
    net.config.scale = (net.config.scale or 1.0) * 0.9
    return net.there(x)


def through(net, x):
    return grad(lambda x: net.there(x).pow(2).sum())(x)


def of_weight(net, x):
    return net.there(x) + grad(lambda weight: (weight * weight).sum())(net.there.weight).sum()


def activations(model, net, x, backward):
    """Grad-CAM: gradients of an activation that a hook keeps."""
    kept = []
    handle = net.there.register_forward_hook(lambda module, args, out: kept.append(out))
    out = model(x)
    handle.remove()
    (slope,) = torch.autograd.grad(out[:, 0].sum(), kept[0], retain_graph=True)
    loss = out.pow(2).mean() + (kept[0] * slope.mean(0)).relu().mean()
    backward(loss)
    return loss


def batched(model, net, x, backward):
    kept = []
    with_batches = {"is_grads_batched": True, "retain_graph": True}
    handle = net.there.register_forward_pre_hook(lambda module, args: kept.append(args[0]))
    out = model(x)
    handle.remove()
    (found,) = torch.autograd.grad(out[:, 0], kept[0], torch.eye(len(x)), **with_batches)
    backward(out.mean() + found.sum())
    return out.mean()


def scripted_before():
    return torch.jit.script(nn.Linear(WIDTH, WIDTH))


def traced():
    return torch.jit.trace(nn.Linear(WIDTH, WIDTH), torch.ones(2, WIDTH))


def lazy():
    return nn.Sequential(nn.LazyLinear(WIDTH), nn.LazyBatchNorm1d())


class Transforming(nn.Module):
    """Its encoder has torch's fast path in evaluation."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Transformer(WIDTH, 2, 1, 1, 8, dropout=0.0, batch_first=True)
        smp.set_partition(self.inner.decoder, smp.pp_size() - 1)

    def forward(self, x):
        return self.inner(x[:, None], x.flip(0)[:, None])[:, 0, :2]


def evaluated():
    begin(PARTS)
    net, whole = made(Transforming), made(Transforming)
    model = together(smp.DistributedModel(net))
    step(model, torch.ones(4, WIDTH), usual)
    model.eval()
    whole.eval()
    x = torch.linspace(-1.0, 1.0, 8 * WIDTH).view(8, WIDTH)
    with torch.no_grad():
        found = step(model, x, lambda model, net, x, backward: model(x)).outputs
        return max(distance(one, whole(part)) for one, part in zip(found, x.chunk(2)))


# ---- what is done with a model that is in parts

ACTS = {
    "copied": lambda net: copy.deepcopy(net),
    "saved": lambda net: torch.save(net, io.BytesIO()),
    "scripted": lambda net: torch.jit.script(net),
}


def renamed(module, values, prefix, metadata):
    for name in [each for each in values if each.startswith(prefix) and each.endswith("weight")]:
        values[name[:-6] + "w"] = values.pop(name) * 2
    values[prefix + "extra"] = torch.ones(1)


def named_back(module, values, prefix, *_):
    for name in [each for each in values if each.startswith(prefix) and each.endswith(".w")]:
        values[name[:-1] + "weight"] = values.pop(name) / 2
    values.pop(prefix + "extra", None)


def filled(module, prefix, keep_vars):
    with torch.no_grad():
        for each in module.parameters(recurse=False):
            each.fill_(0.25)


def hooked(net, where, seen):
    module = net.get_submodule(where)
    module.register_state_dict_post_hook(renamed)
    module.register_load_state_dict_pre_hook(named_back)
    module.register_load_state_dict_post_hook(lambda module, keys: seen.append(len(keys.missing_keys)))
    net.first.register_state_dict_pre_hook(filled)


def with_hooks(world, where):
    """The largest difference of state dicts, before and behind loading one."""
    begin(world)
    net, whole = made(Net), made(Net)
    smp.set_partition(net.there, smp.pp_size() - 1)
    if world.get("tensor_parallel_degree"):
        smp.set_tensor_parallelism(net.there)
    seen, expected = [], []
    hooked(net, where, seen)
    hooked(whole, where, expected)
    model = together(smp.DistributedModel(net))
    step(model, torch.ones(4, WIDTH), usual)
    worst = 0.0
    for _ in range(2):
        one, two = model.state_dict(), whole.state_dict()
        assert list(one) == list(two), (list(one), list(two))
        worst = max(worst, *(distance(one[name], each) for name, each in two.items()))
        new = {name: each * 3 + 1 if "extra" not in name else each for name, each in two.items()}
        model.load_state_dict(dict(new))
        whole.load_state_dict(dict(new))
    assert seen == expected, (seen, expected)
    return worst


def in_parts(world):
    begin(world)
    net = made(Net)
    smp.set_partition(net.there, smp.pp_size() - 1)
    if world.get("tensor_parallel_degree"):
        smp.set_tensor_parallelism(net.there)
    model = together(smp.DistributedModel(net))
    step(model, torch.ones(4, WIDTH), usual)
    return {name: error_of(act, model.module) for name, act in ACTS.items()}


exact, refused = {}, {}
for name, world in WORLDS.items():
    exact |= table({f"{name}, Grad-CAM": (Net, world, *(activations,) * 2)})
    for where in ("", "there"):
        exact[f"{name}, hooks of state dicts at {where}"] = with_hooks(world, where)
        meet()
    refused |= {f"{act}, {name}": said for act, said in in_parts(world).items()}
    meet()
    refused |= table({f"lazy, {name}": (lambda: Net(lazy), world)})
for name in ("parts", "tensors"):
    exact |= table({f"{name}, compiled": (lambda: Net(compiled), WORLDS[name], *(usual,) * 2)})
for transform in (slope, slopes, adapted):
    exact |= table({f"{transform.__name__} inside": (lambda each=transform: Net(lambda: Inner(each)), PARTS)})
for name in ("parts", "shards"):
    refused |= table({f"{kind.__name__}, {name}": (lambda each=kind: Net(each), WORLDS[name])
                      for kind in (scripted_before, traced)})  # fmt: skip
exact |= table({
    "traced, tensors": (lambda: Net(traced), TENSORS),
    "a configuration": (lambda: Net(lambda: Scaled(WIDTH, WIDTH), completed), PARTS),
    "a configuration, behind": (lambda: Net(lambda: Scaled(WIDTH, WIDTH), completed_behind), PARTS),
})  # fmt: skip
exact["a Transformer in evaluation"] = evaluated()
meet()
refused |= table({
    "a configuration, each time": (lambda: Net(lambda: Scaled(WIDTH, WIDTH), counted), PARTS),
    "grad of a weight, tensors": (lambda: Net(run=of_weight), TENSORS),
    "grad through layers of a row, shards":
        (lambda: Net(lambda: nn.Sequential(nn.Linear(WIDTH, WIDTH)), through), SHARDS),
    "is_grads_batched": (Net, PARTS, batched),
})  # fmt: skip
leave(exact=exact, refused=refused)
