"""Models of transformers divided by torch.sagemaker's degrees over four ranks, which are forked from one process that
has imported everything: that takes seconds.
"""

import os
import signal
import sys
import warnings

import torch
import torch.distributed as dist
import torch.sagemaker as tsm
import transformers
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict, get_state_dict
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.distributed.fsdp.wrap import ModuleWrapPolicy
from torch.sagemaker.context_parallel import own_part

RANKS = 4
CLASSES = {
    "llama": (transformers.LlamaForCausalLM, transformers.LlamaConfig),
    "mistral": (transformers.MistralForCausalLM, transformers.MistralConfig),
    "neox": (transformers.GPTNeoXForCausalLM, transformers.GPTNeoXConfig),
    "gemma": (transformers.GemmaForCausalLM, transformers.GemmaConfig),
    "qwen": (transformers.Qwen3ForCausalLM, transformers.Qwen3Config),
    "mixtral": (transformers.MixtralForCausalLM, transformers.MixtralConfig),
}


def ranks() -> bool:
    """Forks; whether this process is a rank, which computes in double precision."""
    children = []
    for rank in range(RANKS):
        child = os.fork()
        if child == 0:
            os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(RANKS), LOCAL_WORLD_SIZE=str(RANKS))
            torch.set_num_threads(1)
            torch.set_default_dtype(torch.float64)
            torch.Tensor.float = torch.Tensor.double  # transformers' losses, which are of single precision otherwise
            return True
        children.append(child)
    codes = []
    while children:
        child, status = os.wait()
        children.remove(child)
        codes.append(os.waitstatus_to_exitcode(status))
        if codes[-1]:
            for other in children:
                os.kill(other, signal.SIGKILL)
    sys.exit(max(map(abs, codes)))


def world(tensor=1, context=1, experts=1, shards=0):
    tsm.state._world = None
    tsm.init({
        "tensor_parallel_degree": tensor, "context_parallel_degree": context, "expert_parallel_degree": experts,
        "hybrid_shard_degree": shards,
    })  # fmt: skip


def wrapped(model, kind, layer=None, **more):
    if kind == "fsdp":
        policy = ModuleWrapPolicy({layer or type(model.base_model.layers[0])})
        return FullyShardedDataParallel(
            model, auto_wrap_policy=policy, device_id=torch.device("cpu"), use_orig_params=True, **more
        )
    if kind == "fully_shard":
        for each in model.base_model.layers:
            fully_shard(each)
        fully_shard(model)
    return model


def own(given):
    """What of a batch this rank trains with."""
    found = {key: each.chunk(tsm.state.dp_size)[tsm.state.dp_rank] for key, each in given.items()}
    if tsm.state.cp_size > 1:
        found = {key: own_part(each, tsm.state.cp_rank, tsm.state.cp_size) for key, each in found.items()}
    return found


def mean(loss):
    total = loss.detach().clone()
    dist.all_reduce(total)
    return total / dist.get_world_size()


def whole(model):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return get_model_state_dict(model, options=StateDictOptions(full_state_dict=True))


def both(model, optimizer):
    """The values of both, as torch's checkpoints have them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return dict(zip(("model", "optimizer"), get_state_dict(model, optimizer)))


def distance(one, two):
    assert set(one) == set(two), set(one) ^ set(two)
    apart = torch.stack([(one[key] - value).abs().max() for key, value in two.items()]).max()
    return float("inf") if apart.isnan() else float(apart)
