"""Models of transformers, degrees and steps that nobody thought of, as plain values that chance draws;
``programs/tsm_generated.py`` trains each on four ranks and in one process.
"""

from __future__ import annotations

import random
from typing import Any

LIMIT = 1e-11
RANKS = 4
KINDS = ("llama", "mistral", "neox", "gemma", "qwen", "mixtral")


def drawn(seed: int, count: int) -> list[dict[str, Any]]:
    """So many models, the same ones for a seed."""
    return [model(random.Random(f"{seed} {number}")) for number in range(count)]


def once_wrong() -> list[dict[str, Any]]:
    """Models that others drawn have been wrong with."""
    frozen = {**drawn(1, 1)[0], "frozen": True, "wrap": "fsdp", "resumed": None}  # torch's FSDP trained them again
    return [{**frozen, "world": {"tensor": 2, "context": 1, "experts": 1, "shards": 2}}]


def degrees(draw: random.Random, kind: str) -> dict[str, int]:
    tensor, context, experts = draw.choice(
        ((1, 1, 1), (2, 1, 1), (4, 1, 1), (1, 2, 1), (1, 4, 1), (2, 2, 1), (1, 1, 2))
    )
    if experts > 1 and kind != "mixtral":
        tensor, experts = 2, 1
    shards = draw.choice((0, *(each for each in (1, 2, 4) if (RANKS // tensor) % each == 0 and each >= context)))
    return {"tensor": tensor, "context": context, "experts": experts, "shards": shards}


def model(draw: random.Random) -> dict[str, Any]:
    kind = draw.choice(KINDS)
    heads = draw.choice((4, 8))
    sizes: dict[str, Any] = {
        "vocab_size": draw.choice((24, 23)),
        "num_hidden_layers": draw.randint(1, 3),
        "num_attention_heads": heads,
        "hidden_size": draw.choice((16, 32)),
        "intermediate_size": draw.choice((24, 16)),
        "tie_word_embeddings": draw.random() < 0.3,
    }
    if kind != "neox":
        sizes["num_key_value_heads"] = draw.choice((heads, heads // 2, 4))
    if kind in ("llama", "qwen"):
        sizes["attention_bias"] = draw.random() < 0.5
    if kind in ("gemma", "qwen"):
        sizes["head_dim"] = draw.choice((4, 8))
    if kind in ("mistral", "mixtral"):
        sizes |= {"sliding_window": draw.choice((None, 3, 5)), "pad_token_id": None}
    if kind == "neox":
        sizes |= {"rotary_pct": draw.choice((0.25, 1.0)), "use_parallel_residual": draw.random() < 0.5}
    if kind == "mixtral":
        sizes |= {"num_local_experts": 4, "num_experts_per_tok": draw.choice((1, 2)), "experts_implementation": "eager"}
        sizes["output_router_logits"] = False
    return {
        "kind": kind,
        "sizes": sizes,
        "world": degrees(draw, kind),
        "resumed": degrees(draw, kind) if draw.random() < 0.4 else None,
        "wrap": draw.choice(("fully_shard", "fully_shard", "fsdp", "none")),
        "packed": draw.random() < 0.4,
        "optimizer": draw.choice(("SGD", "AdamW")),
        "accumulates": draw.randint(1, 2),
        "clips": draw.random() < 0.5,
        "evaluates": draw.random() < 0.5,
        "schedules": draw.random() < 0.5,
        "frozen": draw.random() < 0.2,
        "checkpointed": draw.random() < 0.4,
        "seed": draw.randrange(1 << 20),
    }


def exact(errors: list[Any]) -> bool:
    """Whether all ranks found what one process computes."""
    return all(isinstance(each, float) and each <= LIMIT for each in errors)


def refused(errors: list[Any]) -> bool:
    """Whether a model was refused by name, on all ranks."""
    return all(
        isinstance(each, str) and each.startswith(("SMPConfigError:", "SMPUnsupportedError:")) for each in errors
    )
