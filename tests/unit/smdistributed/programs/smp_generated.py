"""Trains generated models in parts, and in one process for each replica; says how far they are apart.

The models come as a file of JSON, one a line; ``generated_models.py`` draws them. A job ends where a step fails, and so
do these ranks: what they say is of the models up to the first that failed.
"""

import contextlib
import copy
import functools
import gc
import json
import os
import sys
import traceback

import smdistributed.modelparallel.torch as smp
import torch
import torch.distributed as dist
from another import begin, meet, together
from ending import leave
from generated_blocks import MASKS, OTHER_CALL
from generated_lives import CAPTURED, OLD, Life, wanted
from generated_net import CLASSES, Net
from generated_optimizers import MADE, clip, clip_more
from torch import nn
from torch.nn import functional
from torch.nn.utils import parametrize

torch.set_num_threads(1)
STEPS = 3
LIMIT = 1e-11  # generated_models.LIMIT
ROUNDING = 3e-16
SHAKEN = 10
"""How many times as far from one process a model may be as that is from itself with other last digits."""
CHANGING = (
    "collecting", "counting", "extra", "keeping", "norm", "noted", "setting", "twice", "watching", "assigning",
    "drawing", "skipping", "configured", "momentum", "queued", "remembering", "spectral", "auxiliary", "crossing",
    "growing", "parental", "stored", "unrolled", "tallying", "numbering", "caching",
)  # fmt: skip
"""Blocks that change what they keep when they are computed again, in plain torch as well."""


def body(model, net, x, y, ids, spec, backward, teacher):
    """One microbatch; ``model`` and ``net`` are the same in one process."""
    kind = spec["loss"]
    # with the cache gradients of a weight that is used twice are summed in bfloat16, and on another rank they aren't
    with torch.autocast("cpu", torch.bfloat16, enabled=spec["autocast"], cache_enabled=False):
        if kind == "adversarial":
            x = x.detach().requires_grad_()
            (direction,) = torch.autograd.grad(functional.cross_entropy(model(x, ids), y), x)
            x, ids = (x + 0.1 * direction).detach(), ids + OTHER_CALL
        CAPTURED.clear()
        with parametrize.cached() if spec["caches"] else contextlib.nullcontext():
            output = model(x, ids)
        loss = functional.cross_entropy(output, y)
        if CAPTURED:
            loss = loss + 0.1 * sum(each.pow(2).mean() for each in CAPTURED)
        if kind == "penalty":
            loss = loss + 0.01 * sum(each.pow(2).sum() for each in net.blocks[-1].parameters())
        if kind == "teacher":
            with torch.no_grad():
                target = teacher(x)
            loss = loss + functional.mse_loss(output, target)
        if kind == "parts":
            loss = loss + net.last(net.encode(x)).pow(2).mean()
        if kind == "two":
            backward(functional.cross_entropy(model(x * 2, ids + OTHER_CALL), y) * 0.5)
        if kind == "split":
            output.sum().mul(0.01).backward(retain_graph=True)
        if kind == "weighted":  # by the norms of gradients, as GradNorm does
            (norm,) = torch.autograd.grad(loss, net.first.weight, retain_graph=True)
            loss = loss * (1 + norm.norm().detach())
    backward(loss)
    return loss


@smp.step
def train(model, x, y, ids, spec, teacher):
    return body(model, model.module, x, y, ids, spec, model.backward, teacher)


@smp.step
def evaluate(model, x, ids):
    return model(x, ids)


def batch(spec, step, replica):
    generator = torch.Generator().manual_seed(spec["seed"] + 100 * step + replica)
    x = torch.randn(8, 3, generator=generator)
    return x, torch.randint(2, (8,), generator=generator), torch.arange(8) + 8 * (replica + 8 * step)


def optimizer_of(spec, net):
    kind, more = MADE[spec["optimizer"]]
    groups = [{"params": wanted(spec, net.parameters())}]
    if spec["groups"]:
        some = set(map(id, net.last.parameters()))
        groups = [
            {"params": [each for each in wanted(spec, net.parameters()) if id(each) not in some]},
            {"params": list(net.last.parameters()), "lr": 0.05, "weight_decay": 0.1},
        ]
    return kind(groups, 0.02, **more)


def told(world):
    """The replicas' number of a world, and this rank's among them: those that have data of their own."""
    if world.get("prescaled_batch"):
        return smp.rdp_size(), smp.rdp_rank()
    return smp.dp_size(), smp.dp_rank()


class Alone:
    """The same in one process, one replica after the other."""

    def __init__(self, spec, life, net, count, shaken, seen):
        self.spec, self.seen = spec, seen
        if shaken:
            with torch.no_grad():
                for each in net.parameters():
                    each.mul_(1 + ROUNDING * torch.randn_like(each))
        self.replicas = [net, *(alike(spec, net) for _ in range(count - 1))]
        for each in self.replicas:
            life.begin(each)
        self.optimizer = optimizer_of(spec, net)

    def accumulate(self, world, step, teacher):
        """Adds the gradients of one batch of each replica; the losses of each."""
        count, losses, first = world["microbatches"], [], self.replicas[0]
        divisor = (
            count if self.spec["averages"] else 1
        )  # scripts divide losses by it, and what was there stays as it is
        kept = [None if each.grad is None else each.grad * divisor for each in first.parameters()]
        for net in self.replicas:
            for own, buffer in zip(net.buffers(), first.buffers()):
                own.data.copy_(buffer)
        for replica, net in enumerate(self.replicas):
            for each, before in zip(net.parameters(), kept):
                each.grad = None if before is None else before.clone()
            parts = zip(*(each.chunk(count) for each in batch(self.spec, step, replica)))
            given = (self.spec, torch.Tensor.backward, teacher)
            losses.append([body(net, net, *part, *given).detach() for part in parts])
            self.seen += losses[-1]
        for group in zip(*(net.parameters() for net in self.replicas)):
            grads = [each.grad for each in group if each.grad is not None]
            group[0].grad = sum(grads) / len(self.replicas) / divisor if grads else None
        return losses

    def update(self, world):
        clip(self.spec["clips"], self.replicas[0].parameters())
        if world.get("sdp_gradient_clipping"):
            clip_more(self.replicas[0].parameters(), world["sdp_gradient_clipping"])
        self.optimizer.step()
        self.seen += [each.detach().clone() for each in self.replicas[0].parameters()]
        with torch.no_grad():
            for net in self.replicas[1:]:
                for one, two in zip(net.parameters(), self.replicas[0].parameters()):
                    one.copy_(two)


def alike(spec, net):
    """Another one: copy.deepcopy() takes no hooks of parameters along."""
    with torch.random.fork_rng():
        made = Net(spec["blocks"])
    made.load_state_dict(net.state_dict())
    return made


def divided(spec, world, seed, life):
    """The model, its optimizer, and the same model in one process."""
    torch.manual_seed(seed)
    plain = Net(spec["blocks"])
    torch.manual_seed(seed)
    with smp.delay_param_initialization() if spec["delayed"] else contextlib.nullcontext():
        net = Net(spec["blocks"])
    for block, said in zip(net.blocks, spec["blocks"]):
        smp.set_partition(block, said["part"] % world["partitions"])
        for index, name in enumerate(("inner", "other")):
            if isinstance(getattr(block, name, None), nn.Module):
                smp.set_partition(getattr(block, name), (said["inner"] + index) % world["partitions"])
        if world.get("tensor_parallel_degree") and said["tensor"]:
            smp.set_tensor_parallelism(block)
    life.begin(net)
    made = optimizer_of(spec, net) if spec["made_before"] else None
    more = {"average_grads_across_microbatches": spec["averages"], "overlapping_allreduce": spec["overlaps"]}
    model = together(smp.DistributedModel(net, **more))
    optimizer = smp.DistributedOptimizer(made or optimizer_of(spec, model.module))
    for block, said in zip(net.blocks, spec["blocks"]):
        if said["again"] and said["kind"] not in CHANGING:
            smp.set_activation_checkpointing(block)
    return model, optimizer, plain


def distance(one, two):
    """As a part of the largest value where that is above 1: a loss that grows to 1e9 is rounded at 1e-7."""
    if not one.numel():
        return 0.0
    one, two = one.double(), two.double()
    apart = torch.where((one == two) | (one.isnan() & two.isnan()), 0.0, (one - two).abs())
    found = apart.max() / two.abs().nan_to_num(posinf=1.0).max().clamp(min=1.0)
    return float("inf") if found.isnan() else found.item()


def steps(spec, world, model, optimizer, alone, numbers, life):
    """The largest difference of losses and outputs over some steps, and the optimizer at their end."""
    worst = 0.0
    own = told(world)[1]
    teacher = nn.Linear(3, 2).requires_grad_(False)
    for each in teacher.parameters():
        each.fill_(0.25)
    schedules = {}
    for step in numbers:
        for each in (optimizer, alone.optimizer):
            each.zero_grad(set_to_none=not spec["zeroes"])
        life.dial(model, alone)
        for part in range(spec["accumulates"]):
            number = step * 2 + part
            optimizer = life.reach(number, model, optimizer, alone)
            for each in (optimizer, alone.optimizer):
                if spec["schedules"] and each not in schedules:
                    schedules[each] = torch.optim.lr_scheduler.StepLR(each, 1, 0.5)
            losses = train(model, *batch(spec, number, own), spec, teacher).outputs
            masks()
            expected = alone.accumulate(world, number, teacher)[own]
            MASKS.replays = False
            worst = max(worst, *(distance(one, two) for one, two in zip(losses, expected)))
        clip(spec["clips"], model.parameters())
        optimizer.step()
        alone.update(world)
        for each in (optimizer, alone.optimizer) if schedules else ():
            schedules[each].step()
        if spec["evaluates"]:
            for each in (model, *alone.replicas):
                each.eval()
            with torch.no_grad():
                output = evaluate(model, *batch(spec, 77, own)[::2]).concat()
                parts = [
                    [
                        net(*part)
                        for part in zip(*(each.chunk(world["microbatches"]) for each in batch(spec, 77, index)[::2]))
                    ]
                    for index, net in enumerate(alone.replicas)
                ]
            worst = max(worst, distance(output, torch.cat(parts[own])))
            for each in (model, *alone.replicas):
                each.train()
    return worst, optimizer


def masks():
    """Gives every rank what dropout drew on all of them."""
    if any(isinstance(each, CLASSES["dropping"]) for each in smp.state.model.modules()):
        for drawn in smp.allgather(MASKS.drawn, smp.WORLD):
            for key, mask in drawn.items():
                MASKS.note(key, mask)
    MASKS.replays = True


def compared(model, net):
    """The largest difference of weights, buffers and extra state."""
    state, expected = model.state_dict(), net.state_dict()
    assert list(state) == list(expected), (list(state), list(expected))
    worst = 0.0
    for name, value in expected.items():
        if isinstance(value, torch.Tensor):
            worst = max(worst, distance(state[name], value))
        else:
            assert state[name] == value, (name, state[name], value)
    return worst


def check(spec, folder, seen, shaken=False):
    """The largest difference of losses, weights and buffers after three updates, and one more at another degree.

    seen: gets losses and weights of the one process.
    shaken: whether the last digits of its first weights are others.
    """
    torch.set_default_dtype(torch.float32 if spec["autocast"] else torch.float64)
    MASKS.replays = False
    MASKS.drawn.clear()
    world = spec["world"]
    begin(world)
    life = Life(spec, optimizer_of)
    model, optimizer, plain = divided(spec, world, spec["seed"], life)
    count, own = told(world)
    alone = Alone(spec, life, plain, count, shaken, seen)
    worst, optimizer = steps(spec, world, model, optimizer, alone, range(1 if spec["autocast"] else STEPS), life)
    worst = max(worst, compared(model, alone.replicas[own]))
    if spec["resumed"] and not spec["autocast"]:
        place = os.path.join(folder, "checkpoint")
        smp.save_checkpoint(place, "all", partial=False, model=model, optimizer=optimizer)
        dist.barrier()  # replicas that write nothing don't wait
        kept = copy.deepcopy((alone.replicas[0].state_dict(), alone.optimizer.state_dict()))
        world, life = spec["resumed"], Life(spec, optimizer_of)
        MASKS.drawn.clear()
        begin(world)
        model, optimizer, plain = divided(spec, world, spec["seed"] + 1, life)
        count, own = told(world)
        alone = Alone(spec, life, plain, count, shaken, seen)
        for moment in life.before(STEPS):
            optimizer = life.reach(moment, model, optimizer, alone)
        smp.resume_from_checkpoint(place, "all", partial=False)
        for each in alone.replicas:
            each.load_state_dict(kept[0])
        alone.optimizer.load_state_dict(kept[1])
        again, _ = steps(spec, world, model, optimizer, alone, range(STEPS, STEPS + 1), life)
        worst = max(worst, again, compared(model, alone.replicas[own]))
    return worst


def part_of_limit(worst, spec, folder, seen):
    """A difference, as a part of that between two rounded runs of one process.

    Some models make much of those, as a norm of two rows that are almost alike does.
    """
    other = []
    check(spec, folder, other, shaken=True)
    return worst * min(1.0, LIMIT / max(SHAKEN * max(map(distance, seen, other)), LIMIT))


def main():
    # Groups of the same ranks are made once: each costs as much as a model.
    made = functools.cache(dist.new_group)
    dist.new_group = lambda ranks, **more: made(tuple(ranks), **more)
    found = []
    with open(sys.argv[1], encoding="utf-8") as file:
        for number, line in enumerate(file):
            spec, folder, seen = {**OLD, **json.loads(line)}, f"{sys.argv[1]}.{number}", []
            try:
                found.append(check(spec, folder, seen))
            except Exception as error:
                found.append(f"{type(error).__name__}: {error}")
                traceback.print_exc()
            gc.collect()
            said = meet("failed" if isinstance(found[-1], str) else repr(found[-1]))
            if "failed" in said:
                break
            if not spec["autocast"] and max(map(float, said)) > LIMIT:
                found[-1] = part_of_limit(found[-1], spec, folder, seen)
    leave(found=found)


main()
