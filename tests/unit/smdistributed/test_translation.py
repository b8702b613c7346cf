"""State dicts of transformers and of smp.nn; tests/hosts/stacks/test_huggingface.py compares what models compute."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, Callable

import pytest

from .conftest import Modules

pytestmark = pytest.mark.torch

LAYER = {
    "gpt2": {"ln_1.weight": (4,), "attn.c_attn.weight": (4, 12), "attn.c_attn.bias": (12,),
             "attn.c_proj.weight": (4, 4), "mlp.c_fc.weight": (4, 16), "mlp.c_proj.bias": (4,)},
    "gptj": {"ln_1.weight": (4,), "attn.q_proj.weight": (4, 4), "attn.out_proj.weight": (4, 4),
             "mlp.fc_in.weight": (16, 4)},
    "gptneo": {"ln_2.bias": (4,), "attn.attention.k_proj.weight": (4, 4), "attn.attention.out_proj.bias": (4,),
               "mlp.c_fc.weight": (16, 4)},
    "gptneox": {"input_layernorm.weight": (4,), "attention.query_key_value.weight": (12, 4),
                "attention.query_key_value.bias": (12,), "mlp.dense_4h_to_h.weight": (4, 16)},
    "bert": {"attention.self.key.weight": (4, 4), "attention.output.LayerNorm.bias": (4,),
             "output.dense.weight": (4, 16)},
}  # fmt: skip
BEGIN = {
    "gpt2": "transformer.h",
    "gptj": "transformer.h",
    "gptneo": "transformer.h",
    "gptneox": "gpt_neox.layers",
    "bert": "bert.encoder.layer",
    "roberta": "roberta.encoder.layer",
}
AROUND = {
    "gpt2": ("transformer.wpe.weight", "lm_head.weight"),
    "gptj": ("transformer.ln_f.bias", "lm_head.bias"),
    "gptneo": ("transformer.wte.weight", "lm_head.weight"),
    "gptneox": ("gpt_neox.embed_in.weight", "embed_out.weight"),
    "bert": ("bert.embeddings.LayerNorm.weight", "classifier.bias"),
    "roberta": ("lm_head.bias",),
}


@pytest.fixture
def functions(modelparallel: Modules) -> Callable[[str], tuple[Any, Any]]:
    def of(family: str) -> tuple[Any, Any]:
        module = modelparallel(f"torch.nn.huggingface.{family}")
        there = getattr(module, f"translate_hf_state_dict_to_smdistributed_{family}")
        return there, getattr(module, f"translate_state_dict_to_hf_{family}")

    return of


@pytest.mark.parametrize("family", sorted(BEGIN))
def test_there_and_back(functions: Callable[[str], tuple[Any, Any]], family: str, torch: Any) -> None:
    there, back = functions(family)
    shapes = LAYER.get(family, LAYER["bert"])
    values = OrderedDict((name, torch.randn(4)) for name in AROUND[family])
    for number in range(11):
        values.update({f"{BEGIN[family]}.{number}.{name}": torch.randn(shape) for name, shape in shapes.items()})
    heads = {"num_attention_heads": 2} if family == "gptneox" else {}
    ours = there(values, **heads)
    assert not [name for name in ours if BEGIN[family] in name]
    again = back(ours, **heads)
    assert list(again) == list(values)
    assert all(torch.equal(again[name], value) for name, value in values.items())
    for function, given in ((there, ours), (back, values)):  # which have the names already
        same = function(given, **heads)
        assert list(same) == list(given) and all(same[name] is value for name, value in given.items())


def test_heads_of_gpt_neox(functions: Callable[[str], tuple[Any, Any]], modelparallel: Modules, torch: Any) -> None:
    there, _ = functions("gptneox")
    values = {"gpt_neox.layers.0.attention.query_key_value.bias": torch.arange(12.0),
              "gpt_neox.layers.0.attention.rotary_emb.inv_freq": torch.ones(1)}  # fmt: skip
    found = there(values, num_attention_heads=2)
    attention = "transformer.seq_layers.0.attention"
    assert {name: value.tolist() for name, value in found.items()} == {
        f"{attention}.query.bias": [0, 1, 6, 7], f"{attention}.key.bias": [2, 3, 8, 9],
        f"{attention}.value.bias": [4, 5, 10, 11],
    }  # fmt: skip
    with pytest.raises(ValueError, match=r"how many heads there are: pass num_attention_heads=…, or wrap the model"):
        there(values)
    with pytest.raises(ValueError, match=r"num_attention_heads=3: expected a number that divides 4,"):
        there(values, num_attention_heads=3)
    t5 = modelparallel("torch.nn.huggingface.t5")
    with pytest.raises(Exception, match=r"t5\.translate_state_dict_to_hf_t5: .*linear layers of other models"):
        t5.translate_state_dict_to_hf_t5({})


def test_queries_and_masks_of_gpt2(functions: Callable[[str], tuple[Any, Any]], torch: Any) -> None:
    there, back = functions("gpt2")
    whole = torch.arange(48.0).view(4, 12)
    ours = there({
        "transformer.h.0.attn.c_attn.weight": whole, "transformer.h.0.attn.bias": torch.ones(1),
        "transformer.h.0.ln_1.weight": torch.ones(4),
    })  # fmt: skip
    attention = "transformer.seq_layers.0.attention"
    assert list(ours) == [*(f"{attention}.{part}.weight" for part in ("query", "key", "value")),
                          f"{attention}.pre_layernorm.weight"]  # fmt: skip
    assert ours[f"{attention}.key.weight"].tolist() == whole[:, 4:8].t().tolist()
    masks = back(ours, max_seq_len=3)
    assert masks["transformer.h.0.attn.bias"][0, 0].tolist() == [[1, 0, 0], [1, 1, 0], [1, 1, 1]]
    assert masks["transformer.h.0.attn.masked_bias"] == -1e4
    with pytest.raises(
        ValueError, match=r"has no 'transformer\.seq_layers\.0\.attention\.value\.weight': query, key and"
    ):
        back({name: value for name, value in ours.items() if "value" not in name})
    for function in (there, back):
        with pytest.raises(ValueError, match=r"'decoder\.weight' is no key of a gpt2 model's state dict in "):
            function({"decoder.weight": whole})
