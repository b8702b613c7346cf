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
import transformers
from forked import RANKS, ranks
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_state_dict,
    set_state_dict,
)
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.distributed.fsdp.wrap import ModuleWrapPolicy
from torch.sagemaker.context_parallel import own_part
from torch.sagemaker.distributed.checkpoint import state_dict_loader, state_dict_saver
from torch.sagemaker.grad_norm import clip_grad_norm_

STEPS = 3
LENGTH = 16
CLASSES = {
    "llama": (transformers.LlamaForCausalLM, transformers.LlamaConfig),
    "mistral": (transformers.MistralForCausalLM, transformers.MistralConfig),
    "neox": (transformers.GPTNeoXForCausalLM, transformers.GPTNeoXConfig),
    "gemma": (transformers.GemmaForCausalLM, transformers.GemmaConfig),
    "qwen": (transformers.Qwen3ForCausalLM, transformers.Qwen3Config),
    "mixtral": (transformers.MixtralForCausalLM, transformers.MixtralConfig),
}


def made(spec, seed):
    torch.manual_seed(seed)
    model, config = CLASSES[spec["kind"]]
    found = model(config(**spec["sizes"], use_cache=False, max_position_embeddings=32))
    if spec["frozen"]:
        found.get_input_embeddings().requires_grad_(False)
    if spec["checkpointed"]:
        found.gradient_checkpointing_enable({"use_reentrant": False})
    return found


def begin(world):
    tsm.state._world = None
    tsm.init({
        "tensor_parallel_degree": world["tensor"], "context_parallel_degree": world["context"],
        "expert_parallel_degree": world["experts"], "hybrid_shard_degree": world["shards"],
    })  # fmt: skip


def wrapped(model, kind, world):
    layer = type(model.base_model.layers[0])
    if kind == "fsdp":
        return FullyShardedDataParallel(
            model, auto_wrap_policy=ModuleWrapPolicy({layer}), device_id=torch.device("cpu"), use_orig_params=True
        )
    if kind == "fully_shard" or world["tensor"] != RANKS:  # without any, copies would train by themselves
        for each in model.base_model.layers:
            fully_shard(each)
        fully_shard(model)
    return model


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


def own(given):
    found = {key: each.chunk(tsm.state.dp_size)[tsm.state.dp_rank] for key, each in given.items()}
    if tsm.state.cp_size > 1:
        found = {key: own_part(each, tsm.state.cp_rank, tsm.state.cp_size) for key, each in found.items()}
    return found


def mean(loss):
    total = loss.detach().clone()
    dist.all_reduce(total)
    return total / dist.get_world_size()


def train(spec, model, alone, numbers):
    """The largest difference of losses, with the updates of both."""
    both = (model, alone)
    optimizers = (
        [optimizer_of(spec, each) for each in both] if not hasattr(model, "made") else [each.made for each in both]
    )
    for each, optimizer in zip(both, optimizers):
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
            for each in both:
                each.eval()
            with torch.no_grad():
                given = batch(spec, 99)
                worst = max(worst, (mean(model(**own(given)).loss) - alone(**given).loss).abs().item())
            for each in both:
                each.train()
    return worst


def distance(model, alone):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True))
    expected = alone.state_dict()
    assert set(found) == set(expected), set(found) ^ set(expected)
    return max(float((found[key] - value).abs().max()) for key, value in expected.items())


def check(spec, folder):
    begin(spec["world"])
    alone = made(spec, spec["seed"])
    model = wrapped(tsm.transform(copy.deepcopy(alone)), spec["wrap"], spec["world"])
    worst = max(train(spec, model, alone, range(STEPS)), distance(model, alone))
    if spec["resumed"]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            state = dict(zip(("model", "optimizer"), get_state_dict(model, model.made)))
            state_dict_saver.save(state, checkpoint_id=folder)
            begin(spec["resumed"])
            again = wrapped(tsm.transform(made(spec, spec["seed"] + 1)), "fully_shard", spec["resumed"])
            again.__dict__["made"] = optimizer_of(spec, again)
            state = dict(zip(("model", "optimizer"), get_state_dict(again, again.made)))
            state_dict_loader.load(state, checkpoint_id=folder)
            set_state_dict(again, again.made, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
        for group, rate in zip(again.made.param_groups, alone.made.param_groups):
            group["initial_lr"] = rate.get("initial_lr", rate["lr"])
        worst = max(worst, train(spec, again, alone, range(STEPS, STEPS + 1)), distance(again, alone))
    return worst


if ranks():
    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float64)
    torch.Tensor.float = torch.Tensor.double  # transformers' losses, which are of single precision otherwise
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
