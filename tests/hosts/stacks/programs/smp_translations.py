"""Models of transformers, and smp.nn's with their translated weights: the largest difference of what they compute."""

import json
import os

import smdistributed.modelparallel.torch as smp
import torch
import transformers
from smdistributed.modelparallel.torch.nn.huggingface import bert, gpt2, gptj

torch.set_default_dtype(torch.float64)
torch.manual_seed(0)
smp.init()
ids = torch.randint(0, 31, (2, 9))
LAYERS = {"num_layers": 2, "num_attention_heads": 4, "hidden_size": 16, "intermediate_size": 64,
          "attention_dropout_prob": 0.0, "hidden_dropout_prob": 0.0}  # fmt: skip
HEAD = {**LAYERS, "activation": "gelu_new", "vocab_size": 31, "causal_mask_size": 12, "pre_layernorm": True,
        "post_layernorm": False}  # fmt: skip
CONFIG = {
    "n_layer": 2,
    "n_head": 4,
    "n_embd": 16,
    "vocab_size": 31,
    "n_positions": 12,
    "bos_token_id": 0,
    "eos_token_id": 0,
}


def random(model):
    model = model.double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0, 0.3)
    return model


def translated(model, there, back):
    """Its state dict as smp.nn's, of which the way back leads to the very same."""
    values = model.state_dict()
    ours = there(values)
    again = back(ours)
    assert list(again) == list(values)
    assert all(torch.equal(again[name], value) for name, value in values.items())
    return ours


def difference(one, two):
    return float((one - two).detach().abs().max())


found = {}
theirs = random(transformers.GPT2LMHeadModel(transformers.GPT2Config(**CONFIG)))
ours = smp.nn.DistributedTransformerLMHead(num_positions=12, **HEAD).double().eval()
ours.load_state_dict(
    translated(theirs, gpt2.translate_hf_state_dict_to_smdistributed_gpt2, gpt2.translate_state_dict_to_hf_gpt2)
)
found["gpt2"] = difference(theirs(ids).logits, ours((ids,)))

theirs = random(transformers.GPTJForCausalLM(transformers.GPTJConfig(rotary_dim=2, **CONFIG)))
ours = smp.nn.DistributedTransformerLMHead(
    num_positions=0, parallel_attn_output=True, single_pre_layernorm=True, use_qkv_bias=False,
    use_attn_dense_bias=False, rotary_dim=2, use_lm_head_bias=True, tie_input_output_embedding=False, **HEAD,
)  # fmt: skip
ours = ours.double().eval()
ours.load_state_dict(
    translated(theirs, gptj.translate_hf_state_dict_to_smdistributed_gptj, gptj.translate_state_dict_to_hf_gptj)
)
found["gptj"] = difference(theirs(ids).logits, ours((ids,)))

config = transformers.BertConfig(
    vocab_size=31, hidden_size=16, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64,
    max_position_embeddings=12, layer_norm_eps=1e-5,
)  # fmt: skip
theirs = random(transformers.BertModel(config))
values = translated(theirs, bert.translate_hf_state_dict_to_smdistributed_bert, bert.translate_state_dict_to_hf_bert)
ours = smp.nn.DistributedTransformer(**LAYERS).double().eval()
ours.load_state_dict(
    {name.removeprefix("encoder."): value for name, value in values.items() if name.startswith("encoder.")}
)
found["bert"] = difference(theirs(ids).last_hidden_state, ours((theirs.embeddings(ids), None))[0])
print(json.dumps(found), flush=True)
os._exit(0)
