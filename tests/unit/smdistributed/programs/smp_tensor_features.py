"""What a table of models doesn't show of tensors that two ranks share out; ``check`` returns errors of values."""

import math

import smdistributed.modelparallel.torch as smp
import smp_references as references
import torch
from another import begin as begin_world
from comparing import distance
from ending import error_of
from smdistributed.modelparallel.torch.distributed_parameters import division, part_of_state, whole_of, whole_state
from smdistributed.modelparallel.torch.nn.attention import rotated
from torch import nn
from torch.nn import functional

WIDTH = 8


def begin(**config):
    begin_world({"ddp": True, "tensor_parallel_degree": 2, **config})


@smp.step
def train(model, *inputs):
    output = model(*inputs)
    output = output[0] if isinstance(output, tuple) else output
    model.backward(output.square().sum())
    return output


def embeddings(prescaled):
    """Of every kind, and linear layers of vectors without a batch."""
    begin(prescaled_batch=prescaled)
    number = 0 if prescaled else smp.tp_rank()
    given = torch.tensor([[1, 3, 3], [2, 1, 0]]) + number
    worst = 0.0
    for options in ({"max_norm": 0.5}, {"max_norm": 0.7, "norm_type": 1.0}, {"scale_grad_by_freq": True},
                    {"padding_idx": 1}, {"sparse": True}):  # fmt: skip
        torch.manual_seed(0)
        plain = nn.Embedding(6, WIDTH, **options)
        ours = smp.nn.DistributedEmbedding(6, WIDTH, _weight=plain.weight.detach().clone(), **options)
        numbers = range(1) if prescaled else range(2)
        expected = [plain(torch.tensor([[1, 3, 3], [2, 1, 0]]) + each) for each in numbers]
        torch.cat(expected).square().sum().backward()
        found = ours(given)
        found.square().sum().backward()
        gradient, wanted = (each.grad.to_dense() if each.grad.is_sparse else each.grad for each in
                            (ours.weight, plain.weight))  # fmt: skip
        parts = (whole_of(gradient, division(ours.weight)), wanted), (found, expected[number])
        worst = max(worst, *(distance(*each) for each in parts))
    torch.manual_seed(0)
    plain = nn.Linear(WIDTH, 3)
    torch.manual_seed(0)
    ours = smp.nn.DistributedLinear(WIDTH, 3)  # of the same random numbers
    data = torch.arange(float(WIDTH)) * (number + 1)
    return {"error": max(worst, distance(ours(data), plain(data)))}


def dropout(prescaled):
    """What all ranks have is dropped alike, what each has a part of is not."""
    begin(prescaled_batch=prescaled, optimize="speed")
    torch.manual_seed(smp.rank())
    own = torch.rand(3)
    torch.manual_seed(smp.rank())
    net = smp.nn.DistributedTransformerLayer(4, hidden_size=WIDTH, intermediate_size=16, attention_dropout_prob=0.5,
                                             hidden_dropout_prob=0.5)  # fmt: skip
    model = smp.DistributedModel(net)
    torch.manual_seed(smp.rank())
    torch.randint(2, ())
    output = train(model, (torch.ones(2, 3, WIDTH), torch.zeros(2, 1, 1, 3))).outputs[0]
    outputs = smp.allgather(output, smp.TP_GROUP)
    alike = torch.equal(*outputs)
    assert alike is prescaled and not torch.equal(output[0], output[1]), (alike, prescaled)
    for name, parameter in model.default_reducer_named_parameters():
        assert torch.equal(*smp.allgather(parameter.grad, smp.TP_GROUP)), name
    torch.manual_seed(smp.rank())
    return {"error": distance(torch.rand(3), own)}


def kinds():
    """Which parameters are which."""
    begin()
    model = smp.DistributedModel(nn.Sequential(smp.nn.DistributedLinear(4, 3), nn.LayerNorm(3)))
    default, scaled = ([name for name, _ in each()] for each in (
        model.default_reducer_named_parameters, model.scaled_batch_reducer_named_parameters))  # fmt: skip
    assert default == ["0.bias", "1.weight", "1.bias"] and scaled == ["0.weight"], (default, scaled)
    weight, bias = model.module[0].weight, model.module[0].bias
    assert model.is_distributed_parameter(weight) and not model.is_distributed_parameter(bias)
    assert model.is_scaled_batch_parameter(weight) and not model.is_scaled_batch_parameter(bias)
    assert not model.is_distributed_buffer(bias) and not model.is_scaled_batch_buffer(bias)
    moments = {"step": torch.tensor(1.0), "average": weight.detach().clone()}
    whole = whole_state(moments, weight)
    assert whole["average"].shape == (3, 4) and torch.equal(part_of_state(whole, weight)["average"], weight)
    assert whole_state(moments, bias) is moments
    return {"error": distance(model.state_dict()["0.weight"], whole["average"])}


def attention():
    """Of queries, keys and values that are there already."""
    torch.manual_seed(0)
    qkv = torch.randn(2, 5, 3, 4, 6)
    mask = torch.randn(2, 1, 1, 5)
    query, key, value = (each.transpose(1, 2) for each in qkv.unbind(2))
    worst = 0.0
    for causal in (False, True):
        for alibi in (False, True):
            layer = smp.nn.FlashAttentionLayer(0.1, use_alibi=alibi, scale_attn_by_layer_idx=True, layer_idx=1).eval()
            scores = query @ key.transpose(-1, -2) / math.sqrt(6) / 2 + mask
            if alibi:
                slopes = torch.tensor([1 / 4, 1 / 16, 1 / 64, 1 / 256]).view(1, 4, 1, 1)
                scores = scores + slopes * (torch.arange(5) - 4)
            if causal:
                scores = scores.masked_fill(torch.ones(5, 5, dtype=torch.bool).triu(1), -math.inf)
            expected = (functional.softmax(scores, -1) @ value).transpose(1, 2)
            worst = max(worst, distance(layer(qkv, mask, causal), expected))
    return {"error": worst}


def turned():
    """Channels of queries and keys, by position: complex numbers times e^(i angle)."""
    torch.manual_seed(0)
    heads = torch.randn(2, 4, 5, 8)
    angles = torch.arange(5)[:, None] * 10000.0 ** (-torch.arange(0, 6, 2) / 6)
    factors = torch.polar(torch.ones_like(angles), angles)
    first = torch.view_as_complex(heads[..., :6].reshape(2, 4, 5, 3, 2)) * factors
    halves = torch.complex(heads[..., :3], heads[..., 3:6]) * factors
    expected = {False: torch.view_as_real(first).flatten(-2), True: torch.cat((halves.real, halves.imag), -1)}
    return {
        str(each): distance(rotated(heads, 6, halves=each), torch.cat((expected[each], heads[..., 6:]), -1))
        for each in (False, True)
    }


def side_by_side(prescaled):
    """Attention and output layer with one input, as in GPT-J."""
    begin(prescaled_batch=prescaled)
    given = {"hidden_size": WIDTH, "num_attention_heads": 2, "intermediate_size": 16, "pre_layernorm": True,
             "post_layernorm": False}  # fmt: skip
    torch.manual_seed(0)
    plain = references.Layer(**given)
    ours = smp.nn.DistributedTransformerLayer(**given, parallel_attn_output=True, single_pre_layernorm=True).eval()
    ours.load_state_dict(plain.state_dict(), strict=False)
    hidden = torch.randn(2, 4, WIDTH) + (0 if prescaled else smp.tp_rank())
    states = plain.attention.pre_layernorm(hidden)
    plain.attention.pre_layernorm = plain.output.pre_layernorm = None
    expected = hidden + plain.attention((states, 0.0)) + plain.output(states)
    return {"error": distance(ours((hidden, None))[0], expected)}


class Own(nn.Module):
    """A script's own module, with its own way of being made and called."""

    def __init__(self, size, names):
        super().__init__()
        self.layer = references.Output(size, 2 * size)

    def forward(self, states, twice=False):
        return {"states": self.layer(states) * (2 if twice else 1)}


class Ours(smp.nn.DistributedTransformerOutputLayer):
    def forward(self, states, factor):
        return super().forward(states) * factor


def registered():
    """Hooks translate arguments and results; arguments of the context count most."""
    begin()
    smp.tp_register_with_module(
        Own, Ours, init_hook=lambda size, names: ((size,), {"intermediate_size": size, "hidden_dropout_prob": 0.5}),
        forward_hook=lambda states, twice=False: ((states, 2 if twice else 1), {}),
        return_hook=lambda states: {"states": states},
    )  # fmt: skip
    with smp.tensor_parallelism(intermediate_size=2 * WIDTH, hidden_dropout_prob=0.0, fused_bias_gelu=True):
        net = nn.ModuleDict({"own": Own(WIDTH, "names")})
        with smp.tensor_parallelism(enabled=False):
            net["other"] = nn.Linear(WIDTH, WIDTH)
    smp.set_tensor_parallelism(net["own"].layer.dense1, False)
    plain = references.Output(WIDTH, 2 * WIDTH)
    plain.load_state_dict(net["own"].layer.state_dict())
    model = smp.DistributedModel(net)
    assert [type(each) for each in net.values()] == [Ours, nn.Linear]
    model.load_state_dict({f"own.{key}": value for key, value in plain.state_dict().items()}, strict=False)
    states = torch.randn(2, 3, WIDTH)
    return {"error": distance(net["own"](states, twice=True)["states"], 2 * plain(states))}


def errors():
    """Sizes that can't be divided, and ranks that are fed different shapes."""
    begin()
    said = error_of(lambda: smp.nn.DistributedLinear(5, 4))
    assert "in_features=5 isn't a multiple of tensor_parallel_degree 2" in said, said
    said = error_of(lambda: smp.nn.DistributedAttentionLayer(num_attention_heads=3, hidden_size=6))
    assert "num_attention_heads=3" in said, said
    said = error_of(lambda: smp.nn.DistributedTransformerOutputLayer(activation="swish"))
    assert "activation='swish': expected gelu or relu" in said, said
    model = smp.DistributedModel(smp.nn.DistributedLinear(4, 4))
    said = error_of(lambda: train(model, torch.zeros(2 + smp.tp_rank(), 4)))
    assert "SMPStepError" in said and f"({2 + smp.tp_rank()}, 4) float64, and ranks [{1 - smp.tp_rank()}]" in said, said
    said = error_of(lambda: smp.set_tensor_parallelism(model))
    assert "before smp.DistributedModel wraps" in said, said
    return {"error": 0.0}


def check():
    return {
        **{f"embeddings, {each}": embeddings(each) for each in (False, True)},
        **{f"dropout, {each}": dropout(each) for each in (False, True)},
        **{f"side by side, {each}": side_by_side(each) for each in (False, True)},
        "turned": turned(), "kinds": kinds(), "attention": attention(), "registered": registered(), "errors": errors(),
    }  # fmt: skip
