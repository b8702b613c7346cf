"""State dicts of transformers and of smp.nn; tests/hosts/stacks/test_huggingface.py compares what models compute."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, Callable

import pytest

pytestmark = pytest.mark.torch

LAYER = {
    "gpt2": {"ln_1.weight": (4,), "attn.c_attn.weight": (4, 12), "attn.c_attn.bias": (12,),
             "attn.c_proj.weight": (4, 4), "mlp.c_fc.weight": (4, 16), "mlp.c_proj.bias": (4,)},
    "gptj": {"ln_1.weight": (4,), "attn.q_proj.weight": (4, 4), "attn.out_proj.weight": (4, 4),
             "mlp.fc_in.weight": (16, 4)},
    "bert": {"attention.self.key.weight": (4, 4), "attention.output.LayerNorm.bias": (4,),
             "output.dense.weight": (4, 16)},
}  # fmt: skip
BEGIN = {
    "gpt2": "transformer.h",
    "gptj": "transformer.h",
    "bert": "bert.encoder.layer",
    "roberta": "roberta.encoder.layer",
}
AROUND = {"gpt2": ("transformer.wpe.weight", "lm_head.weight"), "gptj": ("transformer.ln_f.bias", "lm_head.bias"),
          "bert": ("bert.embeddings.LayerNorm.weight", "classifier.bias"), "roberta": ("lm_head.bias",)}  # fmt: skip


@pytest.fixture
def functions(modelparallel: Callable[[str], Any]) -> Callable[[str], tuple[Any, Any]]:
    def of(family: str) -> tuple[Any, Any]:
        module = modelparallel(f"torch.nn.huggingface.{family}")
        there = getattr(module, f"translate_hf_state_dict_to_smdistributed_{family}")
        return there, getattr(module, f"translate_state_dict_to_hf_{family}")

    return of


@pytest.mark.parametrize("family", ["gpt2", "gptj", "bert", "roberta"])
def test_there_and_back(functions: Callable[[str], tuple[Any, Any]], family: str) -> None:
    torch = pytest.importorskip("torch")
    there, back = functions(family)
    shapes = LAYER.get(family, LAYER["bert"])
    values = OrderedDict((name, torch.randn(4)) for name in AROUND[family])
    for number in range(11):
        values.update({f"{BEGIN[family]}.{number}.{name}": torch.randn(shape) for name, shape in shapes.items()})
    ours = there(values)
    assert not [name for name in ours if ".h." in name or "encoder.layer." in name]
    again = back(ours)
    assert list(again) == list(values)
    assert all(torch.equal(again[name], value) for name, value in values.items())


def test_queries_and_masks_of_gpt2(functions: Callable[[str], tuple[Any, Any]]) -> None:
    torch = pytest.importorskip("torch")
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
