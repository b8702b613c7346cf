"""Trains generated models of transformers, divided by torch.sagemaker's degrees on four ranks, and in one process.

The argument is a file of JSON, one model a line; ``generated_degrees.py`` draws them. Prints what each rank found: the
largest difference of losses and weights after three updates, and one more at other degrees; or the error.
"""

import copy
import json
import sys
import warnings

import torch
import torch.distributed as dist
import torch.sagemaker as tsm
from divided import CLASSES, RANKS, both, distance, mean, own, ranks, whole, world, wrapped
from torch.distributed.checkpoint.state_dict import set_state_dict
from torch.sagemaker.distributed.checkpoint import state_dict_loader, state_dict_saver
from torch.sagemaker.grad_norm import clip_grad_norm_

STEPS = 3
LENGTH = 16


def made(spec, seed):
    torch.manual_seed(seed)
    model, config = CLASSES[spec["kind"]]
    found = model(config(**spec["sizes"], use_cache=False, max_position_embeddings=32))
    if spec["frozen"]:
        found.get_input_embeddings().requires_grad_(False)
    if spec["checkpointed"]:
        found.gradient_checkpointing_enable({"use_reentrant": False})
    return found


def divided(model, kind, degrees):
    world(**degrees)
    shared = kind == "none" and degrees["tensor"] != RANKS  # without any, copies would train by themselves
    return wrapped(tsm.transform(model), "fully_shard" if shared else kind)


def optimizer_of(spec, model):
    if spec["optimizer"] == "SGD":
        return torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)
    return torch.optim.AdamW(model.parameters(), 0.01, eps=0.01)


def batch(spec, step):
    """Four sequences, labels of which one of each isn't counted, and positions where several are packed in one."""
    generator = torch.Generator().manual_seed(spec["seed"] + step)
    words = torch.randint(0, 23, (RANKS, LENGTH), generator=generator)
    labels = words.clone()
    labels[range(RANKS), range(2, 2 + RANKS)] = -100
    found = {"input_ids": words, "labels": labels}
    if spec["packed"]:
        cuts = [[0, 5, 9], [0, 1, 10], [0, 7, 8], [0, 4, 12]]
        found["position_ids"] = torch.stack([
            torch.cat([torch.arange(end - begin) for begin, end in zip(some, [*some[1:], LENGTH])]) for some in cuts
        ])  # fmt: skip
    return found


def train(spec, model, alone, numbers):
    """The largest difference of losses, with the updates of both."""
    two = (model, alone)
    optimizers = (
        [optimizer_of(spec, each) for each in two] if not hasattr(model, "made") else [each.made for each in two]
    )
    for each, optimizer in zip(two, optimizers):
        each.__dict__["made"] = optimizer
    schedules = [torch.optim.lr_scheduler.StepLR(each, 1, 0.7) for each in optimizers if spec["schedules"]]
    worst = 0.0
    for step in numbers:
        for optimizer in optimizers:
            optimizer.zero_grad()
        for part in range(spec["accumulates"]):
            given = batch(spec, 2 * step + part)
            loss = model(**own(given)).loss
            loss.backward()
            expected = alone(**given).loss
            expected.backward()
            worst = max(worst, (mean(loss) - expected.detach()).abs().item())
        if spec["clips"]:
            norm = clip_grad_norm_(model, 0.3)
            expected = torch.nn.utils.clip_grad_norm_(alone.parameters(), 0.3)
            norm = norm.full_tensor() if hasattr(norm, "full_tensor") else norm
            worst = max(worst, (norm - expected).abs().item())
        for each in (*optimizers, *schedules):
            each.step()
        if spec["evaluates"]:
            for each in two:
                each.eval()
            with torch.no_grad():
                given = batch(spec, 99)
                worst = max(worst, (mean(model(**own(given)).loss) - alone(**given).loss).abs().item())
            for each in two:
                each.train()
    return worst


def check(spec, folder):
    alone = made(spec, spec["seed"])
    model = divided(copy.deepcopy(alone), spec["wrap"], spec["world"])
    worst = max(train(spec, model, alone, range(STEPS)), distance(whole(model), alone.state_dict()))
    if spec["resumed"]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            state_dict_saver.save(both(model, model.made), checkpoint_id=folder)
            again = divided(made(spec, spec["seed"] + 1), "fully_shard", spec["resumed"])
            again.__dict__["made"] = optimizer_of(spec, again)
            state = both(again, again.made)
            state_dict_loader.load(state, checkpoint_id=folder)
            set_state_dict(again, again.made, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
        for group, rate in zip(again.made.param_groups, alone.made.param_groups):
            group["initial_lr"] = rate.get("initial_lr", rate["lr"])
        worst = max(worst, train(spec, again, alone, range(STEPS, STEPS + 1)))
        worst = max(worst, distance(whole(again), alone.state_dict()))
    return worst


if ranks():
    found = []
    with open(sys.argv[1], encoding="utf-8") as file:
        for number, line in enumerate(file):
            try:
                found.append(check(json.loads(line), f"{sys.argv[1]}.{number}"))
            except Exception as error:
                found.append(f"{type(error).__name__}: {error}")
                if len(sys.argv) > 2:
                    raise
            everyones = [None] * dist.get_world_size() if dist.is_initialized() else [None]
            dist.all_gather_object(everyones, found[-1])
            found[-1] = everyones
    if dist.get_rank() == 0:
        print(json.dumps(found))
    dist.destroy_process_group()
