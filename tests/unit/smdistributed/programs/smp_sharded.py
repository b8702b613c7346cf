"""Trains models in shards and compares everything with one process that has the whole of them; then version 2."""

import copy
import functools
import gc
import itertools
import os
import sys

import comparing
import smdistributed.modelparallel.torch as smp
import smp_models
import torch
import tsm_sharded
from another import forget
from comparing import Worst, gradients, plain_step
from ending import error_of, leave
from smp_models import batch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor

torch.set_default_dtype(torch.float64)
torch.set_num_threads(1)


class Odd(nn.Module):
    """What ``fully_shard`` doesn't take as it is: scalars, sparse gradients, another type, sizes that don't divide.

    Blocks are called several times before the backward pass, and one is left out in every other microbatch.
    """

    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(11, 7, sparse=True)
        self.scale = nn.Parameter(torch.tensor(0.7))
        self.factor = nn.Parameter(torch.ones(7, dtype=torch.float32), requires_grad=False)
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(7, 5), nn.Tanh(), nn.Linear(5, 7)) for _ in range(3))
        self.unused = nn.Linear(3, 3)
        self.sometimes = nn.Linear(7, 7)
        self.head = nn.Linear(7, 5)

    def forward(self, x):
        h = self.words((x.flatten(1)[:, :4].abs() * 5).long() % 11).mean(1) * self.factor.double()
        for block in self.blocks:
            h = h + self.scale * block(h)
        h = h + self.blocks[0](h * 2) * self.blocks[0](h)
        if h[0, 0] > 0:
            h = self.sometimes(h)
        return {"out": self.head(h), "hidden": (h,)}


MODELS = {each: getattr(smp_models, each, Odd) for each in ("Gated", "Branchy", "Tied", "Odd")}


def output_of(model, x):
    output = model(x)
    return output["out"] if isinstance(output, dict) else output


def computed(model, penalty, x, y):
    output = output_of(model, x)
    loss = nn.functional.cross_entropy(output, y)
    if penalty:
        loss = loss + penalty * sum(each.square().sum() for each in model.parameters() if each.requires_grad)
    return output, loss


@smp.step
def train(model, x, y, penalty):
    output, loss = computed(model, penalty, x, y)
    model.backward(loss)
    return {"loss": loss, "output": output}


evaluate = smp.step(output_of)


def whole(tensor):
    return tensor.detach().full_tensor() if isinstance(tensor, DTensor) else tensor.detach()


def distance(one, two):
    one, two = whole(one), whole(two)
    one, two = (each.to_dense() if each.is_sparse else each for each in (one, two))
    coarse = 1e6 if torch.float32 in (one.dtype, two.dtype) else 1.0
    return comparing.distance(one, two) / coarse


def check(kind, microbatches, clipping, early, accumulated, penalty):
    """The largest error in each kind of value."""
    forget()
    torch.manual_seed(smp.rank())  # the values of rank 0 count
    net = kind()
    torch.manual_seed(0)
    alone = kind()
    adam = kind is not Odd  # which doesn't take sparse gradients
    make = (
        (lambda parameters: torch.optim.AdamW(parameters, 0.01, eps=0.01))
        if adam
        else (lambda parameters: torch.optim.SGD(parameters, 0.05, momentum=0.9))
    )
    optimizer = make(net.parameters()) if early else None
    model = smp.DistributedModel(net, backward_passes_per_step=accumulated)
    optimizer = smp.DistributedOptimizer(optimizer or make(model.parameters()))
    plain = make(alone.parameters())
    worst = Worst()
    for step in range(2):
        optimizer.zero_grad()
        plain.zero_grad()
        for part in range(accumulated):
            batches = [batch(10 * step + part, rank) for rank in range(smp.size())]
            result = train(model, *batches[smp.rank()], penalty)
            plainly = functools.partial(computed, alone, penalty)
            outputs, losses, mine = plain_step(alone, batches, smp.rank(), microbatches, plainly)
            worst.note("loss", distance(result["loss"].reduce_mean(), losses.mean()))
            worst.note("output", distance(result["output"].concat(), outputs))
            for name, buffer in model.local_named_buffers():
                worst.note("statistic", distance(buffer, mine[name]))
        for parameter, expected in gradients(model, alone):
            worst.note("gradient", distance(parameter.grad, expected.grad))
        optimizer.step()
        if clipping:
            for each in alone.parameters():
                each.grad = each.grad.to_dense() if each.grad is not None else None
            norm = nn.utils.clip_grad_norm_([each for each in alone.parameters() if each.grad is not None], clipping)
            worst.note("norm", abs(float(norm) - optimizer._global_grad_norm))
        plain.step()
    saved = model.state_dict()
    assert list(saved) == list(alone.state_dict())
    trained = dict(alone.named_parameters())
    for name, value in alone.state_dict().items():
        assert not isinstance(saved[name], DTensor)
        if smp.rank() == 0 or name in trained:
            worst.note("weight", distance(saved[name], value))
    model.eval()
    again = kind()
    again.load_state_dict(saved)
    again.eval()
    with torch.no_grad():
        x, _ = batch(99, smp.rank())
        output = torch.cat([output_of(again, part) for part in x.chunk(microbatches)])
        worst.note("evaluated", distance(evaluate(model, x).concat(), output))
    state = optimizer.state_dict()["state"]
    for index, values in plain.state_dict()["state"].items():
        for name, value in values.items():
            if isinstance(value, torch.Tensor):
                worst.note("saved", distance(state[index][name], value))
    return worst


def world(degree, **more):
    smp.state.model = smp.state.optimizer = smp.state._world = None
    smp.init({
        "microbatches": 2, "ddp": True, "sharded_data_parallel_degree": degree, "sdp_gradient_clipping": 0,
        "sdp_reduce_bucket_size": 100, **more,
    })  # fmt: skip


def elements(tensors):
    return sum((each.to_local() if isinstance(each, DTensor) else each).numel() for each in tensors)


def new(seed, width=None):
    torch.manual_seed(seed)
    net = smp_models.Tied() if width is None else nn.Sequential(*(nn.Linear(width, width) for _ in range(4)))
    model = smp.DistributedModel(net)
    return model, smp.DistributedOptimizer(torch.optim.Adam(model.parameters(), lr=0.01))


def by_their_names(model, optimizer):
    """The norms of parameters, as AWS's scripts compute them from what this rank has."""
    (flat,), place = optimizer.fp32_partitioned_groups_flat, 0
    for parameter in optimizer.param_groups[0]["params"]:
        size = parameter.ds_tensor.ds_numel
        for own in (flat.narrow(0, place, size), parameter.ds_tensor.data):
            norm = torch.linalg.norm(own) ** 2
            torch.distributed.all_reduce(norm, group=optimizer.ds_param_shard_group)
            assert distance(norm, parameter.detach().full_tensor().norm() ** 2) < 1e-12
        place += size
    assert flat.numel() == place


def memory(degree):
    """How many elements this rank keeps of parameters, gradients and the optimizer's state."""
    world(degree)
    model, optimizer = new(0, 64)

    @smp.step
    def step(model, x):
        model.backward(model(x).square().mean())

    step(model, torch.randn(4, 64))
    optimizer.step()
    if degree > 1:
        by_their_names(model, optimizer)
    kept = [value for values in optimizer.state.values() for value in values.values() if value.dim()]
    return elements([*model.parameters(), *(each.grad for each in model.parameters()), *kept])


def go_on(model, optimizer):
    for step in range(2, 4):
        optimizer.zero_grad()
        train(model, *batch(step, smp.rank()), 0)
        nn.utils.clip_grad_norm_(model.parameters(), 0.1)  # the script's own
        optimizer.step()
    return {"model": model.state_dict(), "optimizer": optimizer.state_dict()}


def saved_and_resumed(folder):
    """A checkpoint of two copies in two shards each goes on in every world as it would have without."""
    world(2)
    model, optimizer = new(5)
    train(model, *batch(0, smp.rank()), 0)
    optimizer.step()
    smp.save_checkpoint(folder, "parts", model=model, optimizer=optimizer, user_content={"step": 2})
    smp.save_checkpoint(folder, "whole", partial=False, model=model, optimizer=optimizer)
    smp.save({"model": model.local_state_dict(), "optimizer": optimizer.local_state_dict()}, f"{folder}/ck")
    smp.barrier()
    expected = go_on(model, optimizer)
    errors = []
    for degree, tag, partial in ((2, "parts", True), (2, None, True), (4, "whole", False), (1, "whole", False)):
        world(degree)
        model, optimizer = new(6)
        if tag is None:
            parts = smp.load(f"{folder}/ck")
            model.load_state_dict(parts["model"])
            optimizer.load_state_dict(parts["optimizer"])
        else:
            content = smp.resume_from_checkpoint(folder, tag, partial=partial)
            assert content == ({"step": 2} if partial else None)
        found = go_on(model, optimizer)
        errors += [distance(found["model"][key], value) for key, value in expected["model"].items()]
        for index, values in expected["optimizer"]["state"].items():
            errors += [distance(found["optimizer"]["state"][index][key], value) for key, value in values.items()]
    world(4)
    new(6)
    refused = error_of(smp.resume_from_checkpoint, folder, "parts")
    names = sorted(
        os.path.relpath(os.path.join(at, name), folder) for at, _, names in os.walk(folder) for name in names
    )
    return max(errors), refused, names


class Half(nn.Module):
    """Layers that are gathered one after the other."""

    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(11, 16)
        self.layers = nn.ModuleList(nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16)) for _ in range(3))
        self.head = nn.Linear(16, 5)

    def forward(self, x):
        h = self.words((x.flatten(1)[:, :4].abs() * 5).long() % 11).mean(1)
        for layer in self.layers:
            h = h + layer(h)
        return self.head(h)


class HalfOdd(Half):
    """A scalar, which is in no shard, statistics of batches, and borrowed weights."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(0.7))
        self.norm = nn.BatchNorm1d(16)

    def forward(self, x):
        h = self.words((x.flatten(1)[:, :4].abs() * 5).long() % 11).mean(1)
        for layer in self.layers:
            h = self.norm(h + self.scale * layer(h)) @ self.layers[0][2].weight @ self.layers[0][0].weight
        return self.head(h)


def by_hand(half, scale, limit, steps):
    """FSDP2 with a policy of mixed precision, and the loss scale in the loop."""
    torch.manual_seed(0)
    net = Half()
    policy = MixedPrecisionPolicy(half, torch.float32)
    mesh = init_device_mesh("cpu", (smp.size(),))
    for layer in (*net.layers, net):
        fully_shard(layer, mesh=mesh, mp_policy=policy)
    optimizer = torch.optim.AdamW(net.parameters(), 0.01)
    for step in range(steps):
        optimizer.zero_grad()
        x, y = batch(step, smp.rank())
        for xs, ys in zip(x.chunk(2), y.chunk(2)):
            (nn.functional.cross_entropy(net(xs.to(half)).float(), ys) * scale).backward()
        for each in net.parameters():
            each.grad.mul_(0.5 / scale)
        nn.utils.clip_grad_norm_(net.parameters(), limit)
        optimizer.step()
    return {name: value.full_tensor() for name, value in net.state_dict().items()}


def halved(kind, degree, parameters, **scaling):
    world(degree, **parameters)
    torch.manual_seed(smp.rank())
    model = smp.DistributedModel(kind())
    return model, smp.DistributedOptimizer(torch.optim.AdamW(model.parameters(), 0.01), **scaling)


def steps_in_half(model, optimizer, steps):
    for step in steps:
        optimizer.zero_grad()
        assert train(model, *batch(step, smp.rank()), 0)["loss"].reduce_mean().dtype == torch.float32
        optimizer.step()


def furthest(one, two):
    return max(distance(value, two[name]) for name, value in one.items())


def in_half(folder):
    """Errors beside torch's own mixed precision, and of what goes on after it was saved; at other degrees as well."""
    torch.set_default_dtype(torch.float32)
    world(4)
    found = {}
    for name, half, scaling in (
        ("bf16", torch.bfloat16, {}),
        ("fp16", torch.float16, {"dynamic_loss_scale": True, "dynamic_loss_args": {"init_scale": 2.0**10}}),
    ):
        scale, given = 2.0**10 if scaling else 1.0, {name: True, "sdp_gradient_clipping": 0.05}
        expected = by_hand(half, scale, 0.05, 2)
        for degree in (4, 2):
            model, optimizer = halved(Half, degree, given, **scaling)
            steps_in_half(model, optimizer, range(2))
            found[f"{name}, {degree}"] = furthest(model.state_dict(), expected)
        model, optimizer = halved(HalfOdd, 2, given, **scaling)
        steps_in_half(model, optimizer, range(2))
        assert all(each.dtype == torch.float32 for each in model.sharding.parts.values())
        assert [*model.sharding.whole] == ["scale"] and model.sharding.whole["scale"].dtype == half
        if scaling:
            before = {key: value for key, value in model.state_dict().items() if "norm.running" not in key}
            before.pop("norm.num_batches_tracked")
            hook = None
            if smp.rank() == 1:  # alone: nobody steps
                hook = model.head.register_full_backward_hook(lambda module, inputs, outputs: (inputs[0] * 1e30,))
            steps_in_half(model, optimizer, range(1))
            assert optimizer.overflow and optimizer.loss_scale == 2.0**9
            assert all(
                torch.equal(value, before[key]) for key, value in model.state_dict().items() if "norm" not in key
            )
            hook and hook.remove()
        for tag, partial in (("parts", True), ("whole", False)):
            smp.save_checkpoint(os.path.join(folder, name), tag, partial, model, optimizer)
        smp.barrier()
        saved, state = copy.deepcopy((model.state_dict(), optimizer.state_dict()))
        steps_in_half(model, optimizer, range(2, 4))
        expected = model.state_dict()
        for degree, tag in ((2, "parts"), (2, "whole"), (4, "whole"), (1, "whole")):
            model, optimizer = halved(HalfOdd, degree, given, **scaling)
            smp.resume_from_checkpoint(os.path.join(folder, name), tag, partial=tag == "parts")
            assert optimizer.loss_scale == (2.0**9 if scaling else 1)
            again = optimizer.state_dict()
            copies = {
                key: value.to(half) if degree == 1 else value for key, value in saved.items()
                if "running" not in key or smp.rank() == 0  # whose statistics were saved
            }  # fmt: skip
            errors = [furthest(copies, model.state_dict())]
            for index, values in state["state"].items():
                errors += [distance(again["state"][index][key], value) for key, value in values.items()]
            errors += [
                distance(again["_smp_fp16_states"]["copies"][index], value)
                for index, value in state["_smp_fp16_states"]["copies"].items()
            ]
            found[f"{name}, {tag} at {degree}"] = max(errors)
            if degree == 2:
                steps_in_half(model, optimizer, range(2, 4))
                found[f"{name}, {tag} at {degree} goes on"] = furthest(model.state_dict(), expected)
    return found


result = {}
combinations = itertools.cycle((
    (2, {"microbatches": 1}, 0, True, 2, 0),
    (4, {"sdp_param_persistence_threshold": 0}, 0.05, False, 1, 0.01),
    (2, {"sdp_param_persistence_threshold": 40}, 0.05, True, 1, 0),
))  # fmt: skip
for name, kind in MODELS.items():
    degree, more, clipping, *rest = next(combinations)
    if kind is Odd:  # of more than one type
        rest[-1] = 0
    world(degree, sdp_gradient_clipping=clipping, **more)
    result[name] = check(kind, more.get("microbatches", 2), clipping, *rest)
    gc.collect()
kept = {degree: memory(degree) for degree in (1, 2, 4)}
error, refused, files = saved_and_resumed(os.path.join(sys.argv[1], "smp"))
in_half_precision = in_half(os.path.join(sys.argv[1], "half"))
torch.set_default_dtype(torch.float64)
second = tsm_sharded.table(os.path.join(sys.argv[1], "tsm"))
leave(worst=result, kept=kept, resumed=error, refused=refused, files=files, second=second, half=in_half_precision)
