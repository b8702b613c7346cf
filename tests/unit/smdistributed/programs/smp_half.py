"""Half precision with copies in float32, saved and resumed at other degrees, against one process; and an optimizer's
state that replicas share out. A world of four.
"""

import os
import sys

import smdistributed.modelparallel.torch as smp
import torch
from another import forget
from ending import error_of, leave
from torch import nn

MICROBATCHES = 2
FOLDER = sys.argv[1]


class Chain(nn.Sequential):
    """In it, every gradient is the same sum in one process and in several."""

    def __init__(self):
        super().__init__(*(nn.Sequential(nn.Linear(16, 16), nn.Tanh()) for _ in range(4)), nn.Linear(16, 4))


@smp.step
def train(model, x, y):
    loss = loss_of(model(x), y)
    model.backward(loss)
    return loss


def loss_of(output, y):
    return nn.functional.cross_entropy(output.flatten(0, -2), y.flatten())


def begin(**world):
    smp.state._world = None  # a world per process is what scripts have
    smp.init({"microbatches": MICROBATCHES, "ddp": True, **world})


def prepared(**more):
    """A wrapped model and optimizer; the values of rank 0 count."""
    forget()
    torch.manual_seed(smp.rank())
    net = Chain()
    wrapped = smp.DistributedOptimizer(adam(net), **more)
    return smp.DistributedModel(net), wrapped


def adam(net):
    return torch.optim.Adam(net.parameters(), 0.01)


def distance(one, two):
    if not isinstance(one, torch.Tensor):
        return abs(one - two) / max(1.0, abs(two))
    assert one.shape == two.shape and one.dtype == two.dtype, (one.shape, two.shape, one.dtype, two.dtype)
    return float((one - two).detach().abs().max()) if one.numel() else 0.0


def of_dicts(one, two):
    assert list(one) == list(two), (list(one), list(two))
    return max(of_dicts(one[key], two[key]) if isinstance(two[key], dict) else distance(one[key], two[key])
               for key in two)  # fmt: skip


def batch(step, replica):
    generator = torch.Generator().manual_seed(100 * step + replica)
    return torch.randn(4, 1, 16, generator=generator), torch.randint(4, (4, 1), generator=generator)


def reference(net, copies, plain, half, steps, scale, clip):
    for step in steps:
        total = [torch.zeros_like(each) for each in net.parameters()]
        for replica in range(smp.rdp_size()):
            net.zero_grad()
            x, y = batch(step, replica)
            for xs, ys in zip(x.chunk(MICROBATCHES), y.chunk(MICROBATCHES)):
                (loss_of(net(xs.to(half)).float(), ys) * scale).backward()
            for each, parameter in zip(total, net.parameters()):
                each += parameter.grad * (1 / MICROBATCHES) / smp.rdp_size()
        for one, each in zip(copies, total):
            one.grad = each.float() / scale
        nn.utils.clip_grad_norm_(copies, clip)
        plain.step()
        for one, parameter in zip(copies, net.parameters()):
            parameter.data.copy_(one)


def run(model, optimizer, steps, clip):
    for step in steps:
        optimizer.zero_grad()
        loss = train(model, *batch(step, smp.rdp_rank())).reduce_mean()
        assert loss.dtype == torch.float32
        optimizer.clip_master_grads(clip)
        optimizer.step()


SCALE = {"static_loss_scale": None, "dynamic_loss_scale": True,
         "dynamic_loss_args": {"init_scale": 2.0**10, "scale_window": 4}}  # fmt: skip
result = {}
ended, held = [], []
for shard in (True, False):
    begin(partitions=1, shard_optimizer_state=shard)
    model, optimizer = prepared()
    for step in range(10):
        optimizer.zero_grad()
        train(model, *batch(step, smp.rdp_rank()))
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
    ended.append(model.state_dict())
    values = (each for values in optimizer.state.values() for each in values.values())
    held.append(sum(each.numel() for each in values if each.dim()))
assert all(torch.equal(one, two) for one, two in zip(ended[0].values(), ended[1].values()))

for kind, partitions, shard in (("fp16", 2, True), ("bf16", 2, False)):
    half = torch.float16 if kind == "fp16" else torch.bfloat16
    more = SCALE if kind == "fp16" else {}
    scale = 2.0**10 if kind == "fp16" else 1.0
    begin(partitions=partitions, shard_optimizer_state=shard, **{kind: True})
    torch.manual_seed(0)
    net = Chain().to(half)
    copies = [nn.Parameter(each.detach().float()) for each in net.parameters()]
    plain = torch.optim.Adam(copies, 0.01)
    reference(net, copies, plain, half, range(3), scale, 0.1)
    model, optimizer = prepared(**more)
    run(model, optimizer, range(3), 0.1)
    whole, state = model.state_dict(), optimizer.state_dict()
    masters = list(state["_smp_fp16_states"]["copies"].values())
    errors = [of_dicts(whole, net.state_dict()), *map(distance, masters, copies),
              of_dicts(state["state"], plain.state_dict()["state"])]  # fmt: skip
    # an overflow on one rank alone: nobody steps
    last = list(model.local_parameters())[-1]
    if kind == "fp16":
        hook = last.register_hook(lambda gradient: gradient * float("inf")) if smp.pp_rank() == 1 else None
        optimizer.zero_grad()
        train(model, *batch(3, smp.rdp_rank()))
        assert optimizer.clip_master_grads(0.1) == -1
        optimizer.step()
        assert optimizer.overflow and optimizer.loss_scale == 2.0**9
        hook.remove() if hook else None
        assert of_dicts(model.state_dict(), whole) == 0
        scale = 2.0**9
    for tag, partial in (("part", True), ("whole", False)):
        smp.save_checkpoint(os.path.join(FOLDER, f"{kind}{partitions}"), tag, partial, model, optimizer, {"step": 3})
    reference(net, copies, plain, half, range(3, 5), scale, 0.1)
    # resumed with the same degrees, with other replicas, and with other partitions
    for tag, sharded in (("part", shard), ("part", not shard), ("whole", shard)):
        begin(partitions=partitions, shard_optimizer_state=sharded, **{kind: True})
        model, optimizer = prepared(**more)
        said = smp.resume_from_checkpoint(os.path.join(FOLDER, f"{kind}{partitions}"), tag, partial=tag == "part")
        assert said == {"step": 3}
        run(model, optimizer, range(3, 5), 0.1)
        assert not optimizer.overflow and optimizer.loss_scale == scale
        errors += [of_dicts(model.state_dict(), net.state_dict())]
    for other in (4, 1):  # at other degrees: from all of it, not from parts
        begin(partitions=other, shard_optimizer_state=True, **{kind: True})
        model, optimizer = prepared(**more)
        smp.resume_from_checkpoint(os.path.join(FOLDER, f"{kind}{partitions}"), "whole", partial=False)
        errors += [of_dicts(model.state_dict(), whole), of_dicts(optimizer.state_dict()["state"], state["state"])]
        train(model, *batch(3, smp.rdp_rank()))
        errors += [of_dicts(optimizer.state_dict()["state"], state["state"]),
                   *map(distance, optimizer.state_dict()["_smp_fp16_states"]["copies"].values(), masters)]  # fmt: skip
        parts = error_of(smp.resume_from_checkpoint, os.path.join(FOLDER, f"{kind}{partitions}"), "part")
        assert "save the whole model" in parts, parts
    result[f"{kind}, {partitions} partitions, sharded: {shard}"] = max(errors)
smp.barrier()
leave(files=sorted(os.listdir(os.path.join(FOLDER, "fp162", "part_partial"))), held=held, errors=result)
