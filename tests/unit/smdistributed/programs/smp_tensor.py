"""Trains models whose tensors ranks share out, and compares everything with one process that has the whole of them."""

import importlib
import json
import sys

import smdistributed.modelparallel.torch as smp
import smp_references as references
import torch
from another import forget
from comparing import Worst, distance, gradients
from ending import leave
from smdistributed.modelparallel.torch.distributed_parameters import division, whole_of
from torch import nn
from torch.nn import functional

torch.set_default_dtype(torch.float64)
WIDTH, HEADS, WORDS, LENGTH = 16, 4, 13, 6
STEPS = 2


class Words(nn.Module):
    """Torch's own modules, of which some can't be distributed: tied weights, sizes, and one that is switched off."""

    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH, padding_idx=0)
        self.inner = nn.Sequential(nn.Linear(WIDTH, 2 * WIDTH), nn.GELU(), nn.Linear(2 * WIDTH, WIDTH, bias=False))
        self.norm = nn.LayerNorm(WIDTH)
        self.odd = nn.Linear(WIDTH, 7)
        self.indivisible = nn.Linear(7, WIDTH)
        self.frozen = nn.Linear(WIDTH, WIDTH)
        self.frozen.weight.requires_grad_(False)
        self.tied = nn.Linear(WIDTH, WIDTH)
        self.tied_too = nn.Linear(WIDTH, WIDTH)
        self.tied_too.weight = self.tied.weight
        self.head = nn.Linear(WIDTH, WORDS)

    def forward(self, ids, mask):
        hidden = self.words(ids)
        hidden = self.norm(hidden + self.inner(hidden))
        hidden = hidden + self.indivisible(self.odd(hidden).tanh())
        hidden = self.tied_too(self.tied(self.frozen(hidden)).tanh()) + hidden
        return self.head(self.inner(hidden))


class Encoder(nn.Module):
    """A transformer between other modules; ``crossed``: that looks at other states as well."""

    def __init__(self, kind, crossed=False, **more):
        super().__init__()
        self.crossed = crossed
        self.words = nn.Embedding(WORDS, WIDTH)
        self.transformer = kind(num_layers=2, hidden_size=WIDTH, num_attention_heads=HEADS, intermediate_size=32,
                                add_cross_attention=crossed, **QUIET, **more)  # fmt: skip
        self.head = nn.Linear(WIDTH, WORDS)

    def forward(self, ids, mask):
        hidden = self.words(ids)
        mask = mask[:, None, None, :].to(hidden.dtype) * -1e4
        if self.crossed:
            hidden = self.transformer((hidden, hidden[:, :4].cos(), mask, mask[..., :4]))[0]
        else:
            hidden = self.transformer((hidden, mask))[0]
        return self.head(hidden)


class Language(nn.Module):
    def __init__(self, kind, **more):
        super().__init__()
        self.model = kind(num_layers=2, hidden_size=WIDTH, num_attention_heads=HEADS, intermediate_size=32,
                          vocab_size=WORDS, num_positions=LENGTH + 1, num_token_types=2, **QUIET, **more)  # fmt: skip

    def forward(self, ids, mask):
        return self.model((ids, mask, ids % 2, None, None))


class Alone(nn.Module):
    """Layers that are used by themselves, between others."""

    def __init__(self, attention, output, layer, norm):
        super().__init__()
        given = {"hidden_size": WIDTH, "num_attention_heads": HEADS, "intermediate_size": 32}
        self.words = nn.Embedding(WORDS, WIDTH)
        self.norm = norm(WIDTH)
        self.attention = attention(**given, causal_mask_size=LENGTH, pre_layernorm=True, **QUIET)
        self.output = output(hidden_size=WIDTH, intermediate_size=32, activation="relu", hidden_dropout_prob=0.0)
        self.layer = layer(**given, pre_layernorm=True, post_layernorm=False, **QUIET)
        self.head = nn.Linear(WIDTH, WORDS)

    def forward(self, ids, mask):
        hidden = self.norm(self.words(ids))
        mask = mask[:, None, None, :].to(hidden.dtype) * -1e4
        hidden = self.output(self.attention((hidden, mask)))
        return self.head(hidden + self.layer((hidden, mask))[0])


QUIET = {"attention_dropout_prob": 0.0, "hidden_dropout_prob": 0.0}
PRE = {"pre_layernorm": True, "post_layernorm": False, "residual": True, "causal_mask_size": LENGTH}


def register():
    smp.tp_register_with_module(references.Transformer, smp.nn.DistributedTransformer)


MODELS = {
    "words": (Words, Words),
    "registered": (lambda: Encoder(references.Transformer), lambda: Encoder(references.Transformer)),
    "alone": (lambda: Alone(references.Attention, references.Output, references.Layer, nn.LayerNorm),
              lambda: Alone(smp.nn.DistributedAttentionLayer, smp.nn.DistributedTransformerOutputLayer,
                            smp.nn.DistributedTransformerLayer, smp.nn.DistributedLayerNorm)),
    "crossed": (lambda: Encoder(references.Transformer, True), lambda: Encoder(smp.nn.DistributedTransformer, True)),
    "causal": (lambda: Encoder(references.Transformer, **PRE), lambda: Encoder(smp.nn.DistributedTransformer, **PRE)),
    "language": (lambda: Language(references.LanguageModel, causal_mask_size=LENGTH, pre_layernorm=True,
                                  post_layernorm=False),
                 lambda: Language(smp.nn.DistributedTransformerLMHead, causal_mask_size=LENGTH, pre_layernorm=True,
                                  post_layernorm=False)),
    "untied": (lambda: Language(references.LanguageModel, add_lm_head=False),
               lambda: Language(smp.nn.DistributedTransformerLMHead, add_lm_head=False)),
}  # fmt: skip
"""The plain model, and the one whose tensors are shared out."""


@smp.step
def train(model, ids, mask):
    output = model(ids, mask)
    loss = loss_of(output, ids)
    model.backward(loss)
    return loss, output


@smp.step
def evaluate(model, ids, mask):
    return model(ids, mask)


def loss_of(output, ids):
    if output.shape[-1] == WIDTH:
        return output.square().mean() + output.sin().sum()
    return functional.cross_entropy(output.flatten(0, 1), ids.flatten())


def batch(step, number, length):
    """What the ranks of one data-parallel rank train with."""
    generator = torch.Generator().manual_seed(100 * step + number)
    ids = torch.randint(WORDS, (2 * smp.state.cfg.microbatches, length), generator=generator)
    mask = torch.randint(4, ids.shape, generator=generator) == 0
    mask[:, 0] = False
    return ids, mask


def check(name, length):
    """The largest error in each kind of value."""
    forget()
    plain, ours = MODELS[name]
    torch.manual_seed(0)
    alone = plain()
    torch.manual_seed(smp.rank())  # the values of rank 0 count
    with smp.tensor_parallelism(enabled=name in ("words", "registered")):
        net = ours()
    plainly = torch.optim.SGD(alone.parameters(), 0.05, momentum=0.9)
    before = name in ("words", "registered")  # there are scripts that make the optimizer first
    optimizer = torch.optim.SGD(net.parameters(), 0.05, momentum=0.9)
    model = smp.DistributedModel(net)
    if not before:
        optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)
    optimizer = smp.DistributedOptimizer(optimizer)
    count = len(list(model.distributed_modules()))
    assert (count > 0) is (not before or smp.tp_size() > 1), (name, count)
    model.load_state_dict(alone.state_dict())
    worst = Worst()
    kind = smp.rdp_rank if smp.state.cfg.prescaled_batch else smp.dp_rank
    number, numbers = kind(), smp.size() // smp.pp_size() // (smp.tp_size() if smp.state.cfg.prescaled_batch else 1)
    count = smp.state.cfg.microbatches
    for step in range(STEPS):
        optimizer.zero_grad()
        losses, outputs = train(model, *batch(step, number, length))
        plainly.zero_grad()
        for each in range(numbers):
            ids, mask = batch(step, each, length)
            expected = []
            for part, masked in zip(ids.chunk(count), mask.chunk(count)):
                output = alone(part, masked)
                loss = loss_of(output, part)
                (loss / (count * numbers)).backward()
                expected.append((loss.detach(), output.detach()))
            if each == number:
                worst.note("loss", distance(losses.stack(), torch.stack([loss for loss, _ in expected])))
                worst.note("output", distance(outputs.concat(), torch.cat([output for _, output in expected])))
        for parameter, wanted in gradients(model, alone):
            found = division(parameter)
            gradient = parameter.grad if found is None else whole_of(parameter.grad, found)
            worst.note("gradient", distance(gradient, wanted.grad))
        norm, wanted = (nn.utils.clip_grad_norm_(each.parameters(), 0.5) for each in (model, alone))
        worst.note("norm", distance(norm, wanted))
        optimizer.step()
        plainly.step()
    moments = optimizer.state_dict()["state"]
    for index, each in plainly.state_dict()["state"].items():
        key = [name for name, _ in alone.named_parameters()][index]
        own = [name for name, _ in net.named_parameters()].index(key)
        worst.note("moment", distance(moments[own]["momentum_buffer"], each["momentum_buffer"]))
    optimizer.load_state_dict(optimizer.state_dict())
    values = model.state_dict()
    assert list(values) == list(alone.state_dict())
    for key, value in alone.state_dict().items():
        worst.note("weight", distance(values[key], value))
    model.eval()
    alone.eval()
    ids, mask = batch(99, number, length)
    with torch.no_grad():
        found = evaluate(model, ids, mask).concat()
        expected = [alone(part, masked) for part, masked in zip(ids.chunk(count), mask.chunk(count))]
        worst.note("evaluated", distance(found, torch.cat(expected)))
    return worst


result = {}
for world, names, length in json.loads(sys.argv[1]):
    smp.state._world = None  # a world per process is what scripts have
    smp.init({"ddp": True, "microbatches": 2, **world})
    register()
    for name in names or MODELS:
        result[f"{name}, {length}, {world}"] = check(name, length)
for module in sys.argv[2:]:
    result.update(importlib.import_module(module).check())
leave(**result)
