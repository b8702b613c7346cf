"""Models of transformers divided by torch.sagemaker's degrees, on four ranks, against one process.

Arguments: a folder for checkpoints, a script to run as well, and the models to train. Prints an object of what rank 0
found.
"""

import copy
import json
import os
import runpy
import sys
import warnings

import torch
import torch.distributed as dist
import torch.sagemaker as tsm
import transformers
from divided import CLASSES, RANKS, both, distance, mean, own, ranks, whole, world, wrapped
from torch.distributed import checkpoint
from torch.distributed.checkpoint.optimizer import load_sharded_optimizer_state_dict
from torch.distributed.checkpoint.state_dict import set_state_dict
from torch.distributed.fsdp import FullyShardedDataParallel, StateDictType
from torch.sagemaker.delayed_param import DelayedParamIniter
from torch.sagemaker.distributed.checkpoint import state_dict_loader, state_dict_saver
from torch.sagemaker.distributed.fsdp.checkpoint import load_model_checkpoint, save_model_checkpoint
from torch.sagemaker.grad_norm import clip_grad_norm_
from torch.sagemaker.tensor_parallel.transformer import TransformerLayer
from torch.sagemaker.utils.process_group_utils import get_global_ranks

SIZES = {
    "vocab_size": 24, "hidden_size": 32, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 8,
    "use_cache": False,
}  # fmt: skip
OWN = {
    "llama": {"num_key_value_heads": 4},
    "mistral": {"num_key_value_heads": 4, "tie_word_embeddings": True, "sliding_window": 3, "pad_token_id": 14},
    "neox": {},
    "gemma": {"num_key_value_heads": 2, "head_dim": 4},
    "qwen": {"num_key_value_heads": 4, "head_dim": 4},
    "mixtral": {"num_key_value_heads": 4, "num_local_experts": 4, "experts_implementation": "eager"},
}
# By model: what wraps it, and the degrees of tensors, contexts, experts and shards.
WORLDS = {
    "llama": [("none", 4, 1, 1, 1), ("fully_shard", 2, 1, 1, 2), ("fsdp", 2, 1, 1, 0), ("fsdp", 1, 2, 1, 2),
              ("fully_shard", 2, 2, 1, 2)],
    "mistral": [("fully_shard", 2, 1, 1, 1), ("fully_shard", 1, 4, 1, 4)],
    "neox": [("fsdp", 2, 1, 1, 0), ("fully_shard", 1, 2, 1, 2)],
    "gemma": [("fully_shard", 2, 1, 1, 2)],
    "qwen": [("fsdp", 2, 1, 1, 0)],
    "mixtral": [("fully_shard", 2, 1, 1, 2), ("fully_shard", 1, 1, 2, 4), ("fully_shard", 1, 1, 2, 2),
                ("fsdp", 1, 1, 2, 2)],
}  # fmt: skip
RESUMED = {"llama": ("fully_shard 2 1 1 2", "fsdp 2 1 1 0"), "mixtral": ("fully_shard 1 1 2 4", "fsdp 1 1 2 2")}
"""Those whose checkpoints are read at another degree."""


def made(kind, **more):
    model, config = CLASSES[kind]
    return model(config(**{**SIZES, **OWN[kind], **more}))


def optimizer_of(model):
    return torch.optim.AdamW(model.parameters(), 0.01, eps=0.01)


def batch(step):
    """Four sequences, and their labels: one word of each has none."""
    words = torch.randint(0, 24, (RANKS, 8), generator=torch.Generator().manual_seed(step))
    labels = words.clone()
    labels[range(RANKS), range(2, 2 + RANKS)] = -100
    return {"input_ids": words, "labels": labels}


def train(model, steps):
    """The last loss, and the norm of the last gradient; on the parts of batches that this rank is given."""
    optimizer = model.optimizer
    for step in steps:
        optimizer.zero_grad()
        loss = model(**own(batch(step))).loss
        loss.backward()
        norm = clip_grad_norm_(model, 0.5)
        optimizer.step()
    return float(mean(loss)), float(norm)


def alone(model, steps):
    for step in steps:
        model.optimizer.zero_grad()
        loss = model(**batch(step)).loss
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        model.optimizer.step()
    return float(loss), float(norm)


def elements(model):
    """What this rank has of the parameters."""
    return sum((each.to_local() if hasattr(each, "to_local") else each).numel() for each in model.parameters())


def ready(model, kind):
    model = wrapped(tsm.transform(model), kind)
    model.optimizer = optimizer_of(model)
    return model


def resumed(folder, start, model):
    """Trains one more step from a file, at another degree."""
    state_dict_saver.save(both(model, model.optimizer), checkpoint_id=folder)
    world(tensor=4, shards=1)
    again = ready(copy.deepcopy(start), "none")
    state = both(again, again.optimizer)
    state_dict_loader.load(state, checkpoint_id=folder)
    set_state_dict(again, again.optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
    train(again, range(2, 3))
    return whole(again)


def compared(kind, folder):
    torch.manual_seed(0)
    start = made(kind)
    plain = copy.deepcopy(start)
    plain.optimizer = optimizer_of(plain)
    expected = alone(plain, range(2))
    weights = copy.deepcopy(plain.state_dict())
    alone(plain, range(2, 3))
    found = {}
    for how, *degrees in WORLDS[kind]:
        world(*degrees)
        model = ready(copy.deepcopy(start), how)
        got = train(model, range(2))
        error = max(distance(whole(model), weights), *(abs(a - b) for a, b in zip(got, expected)))
        name = " ".join([how, *map(str, degrees)])
        found[name] = [error, elements(model)]
        if name in RESUMED.get(kind, ()):
            got = resumed(f"{folder}/{kind} {name}", start, model)
            found[f"{name}, resumed"] = [distance(got, plain.state_dict()), elements(start)]
    return found


def delayed():
    """A model without values: made by all ranks while it is sharded, and given out by rank 0."""
    weights = []
    for degree in (1, 2):
        world(tensor=degree, shards=2)
        torch.manual_seed(3)
        with torch.device("meta"):
            model = made("llama")
        initer = DelayedParamIniter(tsm.transform(model), init_method_using_config=own_values)
        with initer.validate_params_and_buffers_inited():
            model = wrapped(model, "fsdp", param_init_fn=initer.get_param_init_fn())
        weights.append(whole(model))
    torch.manual_seed(5)
    start = made("llama")
    world(tensor=2)
    with torch.device("cpu" if dist.get_rank() == 0 else "meta"):
        model = copy.deepcopy(start) if dist.get_rank() == 0 else made("llama")
    model = tsm.transform(model, load_state_dict_from_rank0=True)
    if dist.get_rank() < 2:  # FullyShardedDataParallel gives them to the others, on GPUs only
        given = distance({name: each.full_tensor() for name, each in model.state_dict().items()}, start.state_dict())
        assert torch.equal(model.model.rotary_emb.inv_freq, start.model.rotary_emb.inv_freq)
    else:
        given = sum(not each.is_meta for each in model.parameters())
    return [distance(*weights), float(given)]


def full_states():
    """As older scripts write and read whole models, by FullyShardedDataParallel's own context."""
    start = made("llama")
    world(tensor=2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        given = wrapped(tsm.transform(copy.deepcopy(start)), "fsdp")
        with FullyShardedDataParallel.state_dict_type(given, StateDictType.FULL_STATE_DICT):
            state = given.state_dict()
            found = distance(state, start.state_dict())
        taken = wrapped(tsm.transform(made("llama")), "fsdp")
        with FullyShardedDataParallel.state_dict_type(taken, StateDictType.FULL_STATE_DICT):
            taken.load_state_dict(state)
    return [found, distance(whole(taken), start.state_dict())]


def two_sharded():
    """Two models whose layers are wrapped as AWS's scripts do it."""
    return [wrapped(tsm.transform(made("llama")), "fsdp", TransformerLayer) for _ in range(2)]


def in_parts(folder):
    """As AWS's scripts wrap layers, and write and read models in shards; each of the ranks that share layers has been
    given a directory of its own."""
    torch.manual_seed(6)
    found = []
    for degrees in ({"tensor": 2}, {"shards": 2}):
        world(**degrees)
        model, other = two_sharded()
        found.append(sum(isinstance(each, FullyShardedDataParallel) for each in model.modules()))
        schedule = [torch.optim.lr_scheduler.ConstantLR(optimizer_of(each)) for each in (model, other)]
        model.optimizer, other.optimizer = (each.optimizer for each in schedule)
        train(model, range(1))
        schedule[0].step()
        place = f"{folder}/in parts {degrees} {tsm.state.tp_rank}"
        first = tsm.state.ranker.get_rep_rank(dist.get_rank()) == 0
        of = (None, (model.process_group, min(get_global_ranks(model.process_group)), first))
        kind = StateDictType.SHARDED_STATE_DICT
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            save_model_checkpoint(
                model, kind, place, *of, optimizer=model.optimizer, scheduler=schedule[0], extra_exports={"steps": 1}
            )
            had = load_model_checkpoint(
                other, kind, place, *of, optimizer=other.optimizer, scheduler=schedule[1], extra_imports={"steps": 0}
            )
        train(model, range(1, 2))
        train(other, range(1, 2))
        found += [had["steps"], schedule[1].last_epoch, distance(whole(model), whole(other))]
    return found


def in_own_folders(folder):
    """As AWS's scripts call torch.distributed.checkpoint: each of the ranks that share layers has a folder, which the
    ranks with its shards write and read."""
    torch.manual_seed(7)
    found = []
    for degrees in ({"tensor": 2}, {"tensor": 4}):
        world(**degrees)
        model, other = two_sharded()
        model.optimizer, other.optimizer = optimizer_of(model), optimizer_of(other)
        train(model, range(1))
        place = os.path.join(folder, f"own {degrees}", str(tsm.state.tp_rank))
        group = {"process_group": model.process_group, "coordinator_rank": min(get_global_ranks(model.process_group))}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with FullyShardedDataParallel.state_dict_type(model, StateDictType.SHARDED_STATE_DICT):
                values = {"model": model.state_dict()}
                values["optimizer"] = FullyShardedDataParallel.optim_state_dict(model, model.optimizer)
                checkpoint.save_state_dict(values, checkpoint.FileSystemWriter(place), **group)
            with FullyShardedDataParallel.state_dict_type(other, StateDictType.SHARDED_STATE_DICT):
                values = {"model": other.state_dict()}
                checkpoint.load_state_dict(values, checkpoint.FileSystemReader(place), **group)
                other.load_state_dict(values["model"])
                states = load_sharded_optimizer_state_dict(
                    values["model"], "optimizer", checkpoint.FileSystemReader(place), process_group=model.process_group
                )
                states = FullyShardedDataParallel.optim_state_dict_to_load(
                    model=other, optim=other.optimizer, optim_state_dict=states["optimizer"]
                )
                other.optimizer.load_state_dict(states)
        found.append(distance(whole(model), whole(other)))
        train(model, range(1, 2))
        train(other, range(1, 2))
        found.append(distance(whole(model), whole(other)))
    return found


def own_values(module):
    """A script's own way; transformers' buffers have no other."""
    tsm.utils.module_utils.empty_module_params(module)
    for each in module.parameters(recurse=False):
        torch.nn.init.normal_(each)
    for name, buffer in module.named_buffers(recurse=False):
        if buffer.is_meta:
            values, _ = module.compute_default_rope_parameters(module.config)
            module._buffers[name] = values


def refusals():
    """By what asks for them: the errors."""

    def error(model, *degrees, **more):
        world(*degrees)
        try:
            tsm.transform(model, **more)
        except (ValueError, NotImplementedError) as wrong:
            return str(wrong)
        return ""

    with torch.device("meta"):
        model = made("llama")
        gpt2 = transformers.GPT2LMHeadModel(transformers.GPT2Config(n_layer=1, n_embd=8, n_head=2, vocab_size=24))
        odd = made("llama", intermediate_size=25)
        few = made("llama", num_key_value_heads=2)
        moe = made("mixtral", num_local_experts=6)
    found = {
        "heads": error(few, 4), "width": error(odd, 2), "plan": error(gpt2, 2),
        "attention": error(torch.nn.Linear(2, 2), 1, 2), "kind": error(model, 1, 2, cp_comm_type="ring"),
        "experts": error(model, 1, 1, 2), "count": error(moe, 1, 1, 4), "meta": error(moe, 1, 1, 2),
    }  # fmt: skip
    world(tensor=2)
    tied = tsm.transform(made("mistral"))
    try:
        wrapped(tied, "fsdp")
    except NotImplementedError as wrong:
        found["tied"] = str(wrong)
    model = tsm.transform(made("llama"))
    words = torch.full((1, 4), dist.get_rank())
    try:
        model(input_ids=words)
    except ValueError as wrong:
        found["batch"] = str(wrong)
    return found


def example(path, folder):
    """The loss after some steps of the script that the documentation names."""
    os.environ.update(SM_HP_MP_PARAMETERS='{"tensor_parallel_degree": 2}', SM_MODEL_DIR=folder)
    tsm.state._world = None
    sys.argv[1:] = ["--steps", "10"]
    return runpy.run_path(path)["mean"].item() / RANKS


if ranks():
    folder, script, *kinds = sys.argv[1:]
    said = {
        "worst": {kind: compared(kind, folder) for kind in kinds},
        "delayed": delayed(),
        "full": full_states(),
        "in parts": in_parts(folder),
        "in own folders": in_own_folders(folder),
        "refused": refusals(),
    }
    said["example"] = example(script, folder)
    dist.barrier()
    if dist.get_rank() == 0:
        print(json.dumps(said))
    dist.destroy_process_group()
