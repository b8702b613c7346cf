"""Models and steps that nobody thought of, as plain values that chance draws; ``programs/smp_generated.py``
trains each in parts and in one process.
"""

from __future__ import annotations

import random
from typing import Any

LIMIT = 1e-11
"""The largest difference from one process."""
REFUSALS = (
    "has neither parameters nor buffers", "Change state in the forward function", "Change it in the forward function",
    "gradients of gradients", "it was set here for the first time", "so this would compute something else than in one",
    "is asked for gradients of parameters that modules on another rank use", "torch.autograd is asked for a gradient:",
    "needs a weight that an earlier one has given up",
)  # fmt: skip
"""What an error says that refuses a model."""
KINDS = (
    "linear", "norm", "inplace", "residual", "frozen", "checkpointed", "noted", "counting", "collecting", "keeping",
    "borrowing", "shared", "reading", "setting", "branching", "twice", "watching", "structured", "extra", "dropping",
    "embedding", "containing", "sequence", "normalized", "recurrent", "attending", "hooked", "straight", "naming",
    "writing", "patched", "viewing",
)  # fmt: skip
"""Kinds of blocks; ``programs/generated_blocks.py`` has a class for each."""
LOSSES = ("mean", "penalty", "two", "split", "adversarial", "teacher", "parts", "weighted")
DEGREES = {
    2: ((2, 1, 1), (2, 1, 1), (1, 2, 1), (1, 1, 1), (1, 1, 2)),
    3: ((3, 1, 1),),
    4: ((4, 1, 1), (2, 1, 1), (2, 2, 1), (1, 2, 1), (1, 1, 2), (1, 1, 4), (1, 1, 1)),
}
"""By ranks: partitions, ranks that share tensors, and shards."""


def drawn(seed: int, count: int) -> list[dict[str, Any]]:
    """So many models, the same ones for a seed; by their numbers of ranks."""
    return sorted((model(random.Random(f"{seed} {number}")) for number in range(count)), key=lambda each: each["ranks"])


def world(draw: random.Random, ranks: int, microbatches: int) -> dict[str, Any]:
    """How a model is divided."""
    parts, tensors, shards = draw.choice(DEGREES[ranks])
    found: dict[str, Any] = {
        "partitions": parts,
        "microbatches": microbatches,
        "ddp": True,
        "auto_partition": draw.random() < 0.5,
        "default_partition": 0,
        "skip_tracing": draw.random() < 0.5,
        "pipeline": draw.choice(("interleaved", "simple")),
        "active_microbatches": draw.randint(1, 4),
        "placement_strategy": draw.choice(("cluster", "spread")),
    }
    if tensors > 1:
        found |= {"tensor_parallel_degree": tensors, "prescaled_batch": draw.random() < 0.5}
        found |= {"optimize": draw.choice(("memory", "speed"))}
    if shards > 1:
        found |= {"sharded_data_parallel_degree": shards, "sdp_gradient_clipping": draw.choice((0.0, 0.1))}
        found |= {"sdp_param_persistence_threshold": draw.choice((0, 1_000_000))}
    else:
        found["shard_optimizer_state"] = draw.random() < 0.5
    return found


def model(draw: random.Random) -> dict[str, Any]:
    """A model, how it is divided over ranks, and what the steps do."""
    ranks, microbatches = draw.choice((4, 4, 4, 2, 2, 3)), draw.choice((1, 2, 4))
    blocks = [
        {
            "kind": draw.choice(KINDS),
            "part": draw.randrange(4),
            "inner": draw.randrange(4),
            "other": draw.randrange(6),
            "again": draw.random() < 0.25,
            "tensor": draw.random() < 0.5,
        }
        for _ in range(draw.randint(2, 6))
    ]
    divided = world(draw, ranks, microbatches)
    return {
        "ranks": ranks,
        "blocks": blocks,
        "world": divided,
        "resumed": world(draw, ranks, microbatches) if draw.random() < 0.4 else None,
        "loss": draw.choice(LOSSES),
        "optimizer": draw.choice(("SGD", "momentum", "Adam", "AdamW")),
        "groups": draw.random() < 0.5,
        "made_before": draw.random() < 0.5,
        "delayed": draw.random() < 0.25,
        "averages": draw.random() < 0.7,
        "overlaps": draw.random() < 0.5,
        "clips": draw.choice(("", "norm", "value")),
        "evaluates": draw.random() < 0.5,
        "accumulates": draw.randint(1, 2),
        "schedules": draw.random() < 0.5,
        # sums of shared tensors are rounded differently
        "autocast": draw.random() < 0.1 and "tensor_parallel_degree" not in divided,
        "seed": draw.randrange(1 << 20),
    }


def exact(errors: list[Any], model: dict[str, Any]) -> bool:
    """Whether all ranks found what one process computes."""
    limit = 2e-4 if model["autocast"] else LIMIT  # in single precision, one step
    return all(isinstance(each, float) and each <= limit for each in errors)


def refused(errors: list[Any]) -> bool:
    """Whether a model was refused by name, on all ranks."""
    return all(isinstance(each, str) and any(words in each for words in REFUSALS) for each in errors)
