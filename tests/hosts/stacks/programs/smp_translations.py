"""Models of transformers, and smp.nn's in their place, trained by ranks that share tensors: what differs, at most.

One process has transformers' own model, first as it is. Then its Python has double precision where its code says
single: what GPT-J, GPT-Neo and GPT-NeoX compute so whatever the model's type is.
"""

import contextlib
import copy
import json
import os
import sys

import smdistributed.modelparallel.torch as smp
import torch
import transformers
from smdistributed.modelparallel.torch import absent
from smdistributed.modelparallel.torch.nn import huggingface

VOCABULARY, LENGTH, BATCH = 32, 10, 8
GPT = {"vocab_size": VOCABULARY, "bos_token_id": 0, "eos_token_id": 0}
N = {"n_layer": 2, "n_head": 4, "n_embd": 16, "n_positions": 12, "resid_pdrop": 0.0, "embd_pdrop": 0.0,
     "attn_pdrop": 0.0, **GPT}  # fmt: skip
LAYERS = {"num_hidden_layers": 2, "num_attention_heads": 4, "hidden_size": 16, "intermediate_size": 64,
          "max_position_embeddings": 12, "vocab_size": VOCABULARY}  # fmt: skip
WITHOUT_NOISE = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
NEO = {"num_layers": 4, "num_heads": 4, "hidden_size": 16, "max_position_embeddings": 12, "window_size": 3,
       "attention_types": [[["global", "local"], 2]], "embed_dropout": 0.0, **GPT}  # fmt: skip
MODELS = {
    "gpt2": (transformers.GPT2LMHeadModel, transformers.GPT2Config, N),
    "gptj": (transformers.GPTJForCausalLM, transformers.GPTJConfig, {"rotary_dim": 2, **N}),
    "gptneo": (transformers.GPTNeoForCausalLM, transformers.GPTNeoConfig, NEO),
    "gptneox": (transformers.GPTNeoXForCausalLM, transformers.GPTNeoXConfig,
                {"rotary_pct": 0.5, "tie_word_embeddings": False, **LAYERS, **GPT}),
    "gptneox-behind": (transformers.GPTNeoXForCausalLM, transformers.GPTNeoXConfig,
                       {"use_parallel_residual": False, "attention_bias": False, "rotary_pct": 1.0, **LAYERS, **GPT}),
    "gpt2-classes": (transformers.GPT2ForSequenceClassification, transformers.GPT2Config, {"pad_token_id": 0, **N}),
    "bert": (transformers.BertForMaskedLM, transformers.BertConfig, {**LAYERS, **WITHOUT_NOISE}),
    "roberta": (transformers.RobertaForSequenceClassification, transformers.RobertaConfig,
                {**LAYERS, **WITHOUT_NOISE, "max_position_embeddings": 16, "pad_token_id": 1}),
    "t5": (transformers.T5ForConditionalGeneration, transformers.T5Config,
           {"vocab_size": VOCABULARY, "d_model": 16, "d_kv": 4, "d_ff": 32, "num_layers": 2, "num_heads": 4,
            "dropout_rate": 0.0, "decoder_start_token_id": 0}),
}  # fmt: skip

SINGLE = ("gptj", "gptneo", "gptneox", "gptneox-behind")
"""Whose scores of attention, or angles, are of single precision in transformers."""


class Wide:
    """torch, without single precision."""

    float = float32 = torch.float64

    def __getattr__(self, name):
        return getattr(torch, name)


@contextlib.contextmanager
def widened(model_class):
    """Transformers' file of a model with double precision where it says single."""
    module, single = sys.modules[model_class.__module__], torch.Tensor.float
    before = module.torch
    module.torch = Wide()
    torch.Tensor.float = torch.Tensor.double
    try:
        yield
    finally:
        module.torch = before
        torch.Tensor.float = single


def made(name):
    model_class, config_class, values = MODELS[name]
    torch.manual_seed(5)
    model = model_class(config_class(**values)).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0, 0.3)
    return model


def batches():
    """For each step what all replicas train on: whole sequences, and some that end sooner."""
    noise = torch.Generator().manual_seed(7)
    for step in range(3):
        ids = torch.randint(2, VOCABULARY, (BATCH, LENGTH), generator=noise)
        mask = torch.ones_like(ids)
        if step:
            mask[::2, LENGTH - step :] = 0
        yield {"input_ids": ids, "attention_mask": mask}


def arguments(name, batch):
    """T5's decoder begins with the same words."""
    return {**batch, "decoder_input_ids": batch["input_ids"]} if name == "t5" else batch


def loss_of(logits, batch):
    """A mean over the batch, in the logits' own precision, that each of them and no masked position counts for."""
    weights = torch.linspace(-1, 1, logits[0].numel(), dtype=logits.dtype).view_as(logits[0])
    values = (logits.log_softmax(-1) * weights).flatten(1)
    if logits.dim() == 3:
        kept = batch["attention_mask"][:, :, None].expand_as(logits).flatten(1)
        values = values * kept
    return values.sum(dim=1).mean()


def expected(name):
    """By transformers' own model in one process: logits and weights after each step."""
    model = made(name)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    found = []
    for batch in batches():
        optimizer.zero_grad()
        logits = model(**arguments(name, batch)).logits
        loss_of(logits, batch).backward()
        optimizer.step()
        found.append(logits.detach())
    return found, model.state_dict()


@smp.step
def train(model, inputs, name):
    logits = model(**arguments(name, inputs)).logits
    model.backward(loss_of(logits, inputs))
    return logits


def shared(name, same):
    """The same by this job, and that its state dicts go both ways."""
    smp.state.model = smp.state.optimizer = absent.fetch = None
    with smp.tensor_parallelism():
        before = made(name)
    values = copy.deepcopy(before.state_dict())
    model = smp.DistributedModel(before)
    both_ways(name.partition("-")[0], model, values)
    optimizer = smp.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9))
    rank, size = (smp.rdp_rank(), smp.rdp_size()) if same else (smp.dp_rank(), smp.dp_size())
    found = []
    for batch in batches():
        optimizer.zero_grad()
        mine = {key: value.chunk(size)[rank] for key, value in batch.items()}
        found.append(train(model, mine, name).concat().detach())
        optimizer.step()
    weights = model.state_dict()
    kinds = {type(each).__name__ for each in model.distributed_modules()}
    elements = sum(each.numel() for each in model.local_parameters())
    return found, weights, (rank, size), sorted(kinds), elements / sum(each.numel() for each in values.values())


def both_ways(family, model, values):
    """The wrapped model has the values of transformers' under their names, and takes either side's."""
    now = model.state_dict()
    assert now.keys() == values.keys(), now.keys() ^ values.keys()
    assert all(torch.equal(now[name], value) for name, value in values.items())
    if family == "t5":
        try:
            huggingface.t5.translate_hf_state_dict_to_smdistributed_t5(values)
        except Exception as error:
            assert "smp.nn.huggingface.t5.translate_hf" in str(error)
            return
        raise AssertionError("T5 has no translation")
    functions = getattr(huggingface, family)
    there = getattr(functions, f"translate_hf_state_dict_to_smdistributed_{family}")
    back = getattr(functions, f"translate_state_dict_to_hf_{family}")
    if family == "gpt2" and "score.weight" in values:
        return
    ours = there(values)
    assert any("seq_layers" in name for name in ours)
    again = back(ours)
    names = {name.replace("embed_out", "lm_head"): value for name, value in again.items()}
    assert names.keys() == {name.replace("embed_out", "lm_head") for name in values}
    assert all(torch.equal(names[name.replace("embed_out", "lm_head")], value) for name, value in values.items())
    for side in (ours, again if "embed_out.weight" not in again or "embed_out.weight" in values else values):
        model.load_state_dict({name: value.clone() for name, value in side.items()})
        loaded = model.state_dict()
        assert all(torch.equal(loaded[name], value) for name, value in values.items())


def difference(one, two):
    return float((one - two).detach().abs().max())


def compared(name, same):
    """The largest differences, of logits and of weights, from transformers' model as it is, and from the wide one."""
    logits, weights, (rank, size), kinds, share = shared(name, same)
    found = {"kinds": kinds, "share": share}
    model_class = MODELS[name][0]
    ways = {"as_is": contextlib.nullcontext(), "wide": widened(model_class) if name in SINGLE else None}
    for how, around in ways.items():
        if around is None:
            continue
        with around:
            theirs, trained = expected(name)
        found[how] = [
            max(difference(mine, each.chunk(size)[rank]) for mine, each in zip(logits, theirs)),
            max(difference(weights[key], value) for key, value in trained.items()),
        ]
    return found


torch.set_default_dtype(torch.float64)
result = {}
for world, names in json.loads(sys.argv[1]):
    smp.state._world = None  # a world per process is what scripts have
    smp.init({"ddp": True, **world})
    for name in names or MODELS:
        result[f"{name} {world}"] = compared(name, smp.state.cfg.prescaled_batch)
print(json.dumps(result), flush=True)
smp.barrier()
os._exit(0)
