"""Version 2: scripts with torch's FSDP, which shards as the configuration says, against one process."""

import copy
import warnings

import torch
import torch.distributed as dist
import torch.sagemaker as tsm
from torch import nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_state_dict,
    set_state_dict,
)
from torch.distributed.fsdp import FullyShardedDataParallel, ShardingStrategy, fully_shard
from torch.distributed.fsdp.wrap import ModuleWrapPolicy
from torch.sagemaker.delayed_param import DelayedParamIniter
from torch.sagemaker.distributed.checkpoint import state_dict_loader, state_dict_saver
from torch.sagemaker.grad_norm import clip_grad_norm_


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(8)
        self.inner = nn.Linear(8, 16)
        self.outer = nn.Linear(16, 8)

    def forward(self, x):
        return x + self.outer(torch.tanh(self.inner(self.norm(x))))


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(11, 8)
        self.blocks = nn.ModuleList(Block() for _ in range(3))
        self.head = nn.Linear(8, 11, bias=False)
        self.tie_weights()

    def tie_weights(self):
        self.head.weight = self.words.weight

    def forward(self, words):
        h = self.words(words)
        for block in self.blocks:
            h = block(h)
        return self.head(h)


def world(degree):
    tsm.state._world = None
    tsm.init({"hybrid_shard_degree": degree, "sm_activation_offloading": "False", "random_seed": 7})
    assert (tsm.state.hybrid_shard_degree, tsm.state.tp_rank, tsm.state.tensor_parallel_degree) == (degree, 0, 1)


def wrapped(model, kind, **more):
    if kind == "fully_shard":
        for block in model.blocks:
            fully_shard(block)
        return fully_shard(model)
    strategies = {"full": None, "zero2": ShardingStrategy._HYBRID_SHARD_ZERO2}
    return FullyShardedDataParallel(
        model, auto_wrap_policy=ModuleWrapPolicy({Block}), device_id=torch.device("cpu"), use_orig_params=True,
        sharding_strategy=strategies[kind], **more,
    )  # fmt: skip


def batch(step, rank):
    return torch.randint(0, 11, (4, 6), generator=torch.Generator().manual_seed(10 * step + rank))


def loss_of(model, words):
    return nn.functional.cross_entropy(model(words)[:, :-1].flatten(0, 1), words[:, 1:].flatten())


def train(model, optimizer, steps):
    """The norm of the last gradient."""
    for step in steps:
        optimizer.zero_grad()
        loss_of(model, batch(step, dist.get_rank())).backward()
        norm = clip_grad_norm_(model, 0.1)
        optimizer.step()
    return norm


def alone(model, optimizer, steps):
    for step in steps:
        optimizer.zero_grad()
        for rank in range(dist.get_world_size()):
            (loss_of(model, batch(step, rank)) / dist.get_world_size()).backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step()
    return norm


def optimizer_of(model):
    return torch.optim.AdamW(model.parameters(), 0.01, eps=0.01)


def distance(one, two):
    assert set(one) == set(two), set(one) ^ set(two)
    return max(float((one[key] - value).abs().max()) for key, value in two.items())


def whole(model):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return get_model_state_dict(model, options=StateDictOptions(full_state_dict=True))


def elements(model):
    """What this rank has of the parameters."""
    return sum((each.to_local() if hasattr(each, "to_local") else each).numel() for each in model.parameters())


def saved_and_loaded(folder, model, optimizer):
    """At another degree, from a file that was written meanwhile."""
    state = dict(zip(("model", "optimizer"), get_state_dict(model, optimizer)))
    state_dict_saver.async_save(state, checkpoint_id=folder)
    assert state_dict_saver.maybe_finalize_async_calls() == [0]
    world(4)
    again = wrapped(Tied(), "fully_shard")
    new = optimizer_of(again)
    state = dict(zip(("model", "optimizer"), get_state_dict(again, new)))
    state_dict_loader.load(state, checkpoint_id=folder)
    set_state_dict(again, new, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
    train(model, optimizer, range(2, 4))
    train(again, new, range(2, 4))
    return distance(whole(again), whole(model))


def delayed():
    """The model gets its values while it is cut; what is tied stays so."""
    world(2)
    with torch.device("meta"):
        model = Tied()
    initer = DelayedParamIniter(model)
    with initer.validate_params_and_buffers_inited():
        values = {"param_init_fn": initer.get_param_init_fn(), "post_param_init_fn": initer.get_post_param_init_fn()}
        model = wrapped(tsm.transform(model), "full", **values)
    optimizer = optimizer_of(model)
    first = float(loss_of(model, batch(0, 0)))
    train(model, optimizer, range(20))
    values = whole(model)
    assert torch.equal(values["words.weight"], values["head.weight"])
    return first - float(loss_of(model, batch(0, 0)))


def table(folder):
    torch.manual_seed(0)
    plain = Tied()
    start = copy.deepcopy(plain)
    expected_norm = alone(plain, optimizer_of(plain), range(2))
    found, kept = {}, {}
    for degree, kind in ((1, "full"), (2, "zero2"), (4, "full"), (2, "fully_shard")):
        world(degree)
        model = wrapped(copy.deepcopy(start), kind)
        optimizer = optimizer_of(model)
        norm = train(model, optimizer, range(2))
        found[f"{degree} {kind}"] = max(distance(whole(model), plain.state_dict()), float(abs(norm - expected_norm)))
        kept[f"{degree} {kind}"] = elements(model)
    ranks = (tsm.state.ranker.get_rep_rank(dist.get_rank()), dist.get_world_size(tsm.state.rep_rank_process_group))
    return {
        "errors": found, "kept": kept, "copy": ranks, "resumed": saved_and_loaded(folder, model, optimizer),
        "learned": delayed(),
    }  # fmt: skip
