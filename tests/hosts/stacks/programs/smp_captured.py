"""Outputs that transformers captures with hooks, of models on two ranks: what differs from one process, at most."""

import json
import os
import sys

import smdistributed.modelparallel.torch as smp
import torch
import transformers

torch.set_default_dtype(torch.float64)
torch.set_num_threads(1)
ALL = {"output_hidden_states": True, "output_attentions": True}
LAYERS = {"vocab_size": 32, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 4,
          "num_attention_heads": 2, "num_key_value_heads": 2, "attn_implementation": "eager"}  # fmt: skip
EXPERTS = {"num_local_experts": 4, "experts_implementation": "eager", "output_router_logits": True}
IMAGES = {"num_encoder_blocks": 2, "depths": [1, 1], "sr_ratios": [2, 1], "hidden_sizes": [8, 16], "mlp_ratios": [2, 2],
          "num_attention_heads": [1, 2], "patch_sizes": [3, 3], "strides": [2, 2], "decoder_hidden_size": 16,
          "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0, "classifier_dropout_prob": 0.0,
          "drop_path_rate": 0.0, "num_labels": 2}  # fmt: skip
MODELS = {
    "llama": (transformers.LlamaForCausalLM, transformers.LlamaConfig(**LAYERS, **ALL)),
    "mixtral": (transformers.MixtralForCausalLM, transformers.MixtralConfig(**LAYERS, **EXPERTS)),
    "t5": (transformers.T5ForConditionalGeneration, transformers.T5Config(
        vocab_size=32, d_model=16, d_kv=8, d_ff=24, num_layers=2, num_heads=2, dropout_rate=0.0,
        decoder_start_token_id=0, **ALL)),
    "segformer": (transformers.SegformerForSemanticSegmentation, transformers.SegformerConfig(**IMAGES)),
    "vit": (transformers.ViTForImageClassification, transformers.ViTConfig(
        hidden_size=16, num_hidden_layers=4, num_attention_heads=2, intermediate_size=24, image_size=32, patch_size=16,
        hidden_dropout_prob=0.0)),
    "swin": (transformers.SwinForImageClassification, transformers.SwinConfig(
        image_size=32, patch_size=4, embed_dim=8, depths=[2, 2], num_heads=[2, 2], window_size=4, drop_path_rate=0.0)),
}  # fmt: skip
KINDS = ("hidden_states", "attentions", "router_logits", "decoder_hidden_states", "cross_attentions")


def made(name):
    torch.manual_seed(1)
    kind, config = MODELS[name]
    return kind(config)


def batch(name, number):
    generator = torch.Generator().manual_seed(number)
    if name not in ("segformer", "vit", "swin"):
        tokens = torch.randint(2, 32, (4, 6), generator=generator)
        return {"input_ids": tokens, "labels": tokens}
    pixels = torch.randn(4, 3, 32, 32, generator=generator)
    labels = (pixels[:, 0] > 0).long()
    return {"pixel_values": pixels, "labels": labels if name == "segformer" else labels[:, 0, 0]}


def run(model, given, backward):
    out = model(**given)
    captured = [each for kind in KINDS for each in getattr(out, kind, None) or ()]
    loss = out.loss + sum(each.pow(2).mean() for each in captured)
    backward(loss)
    return loss, captured


name = sys.argv[1]
smp.init({"partitions": 2, "microbatches": 2})
whole, model = made(name), smp.DistributedModel(made(name))
optimizer = smp.DistributedOptimizer(torch.optim.SGD(model.parameters(), 0.05))
alone = torch.optim.SGD(whole.parameters(), 0.05)
step = smp.step(lambda model, given: run(model, given, model.backward))
worst, count = 0.0, 0
for number in range(3):
    optimizer.zero_grad(), alone.zero_grad()
    loss, captured = step(model, batch(name, number))
    for index in range(2):
        part = {key: each.chunk(2)[index] for key, each in batch(name, number).items()}
        right, seen = run(whole, part, torch.Tensor.backward)
        assert len(seen) == len(captured), (len(seen), len(captured))
        for one, two in zip([right, *seen], [loss, *captured]):
            worst = max(worst, (one - two.outputs[index]).abs().max().item())
    for parameter in whole.parameters():
        if parameter.grad is not None:
            parameter.grad /= 2
    optimizer.step(), alone.step()
    count += len(captured)
state = model.state_dict()
worst = max(worst, *((state[key] - each).abs().max().item() for key, each in whole.state_dict().items()))
print(json.dumps({"worst": worst, "captured": count}), flush=True)
os._exit(0)
