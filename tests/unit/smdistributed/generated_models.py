"""Models and steps that nobody thought of, as plain values: hypothesis draws them, and ``programs/smp_generated.py``
trains each in parts and in one process.
"""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

LIMIT = 1e-11
"""The largest difference from one process."""
REFUSALS = (
    "has neither parameters nor buffers", "Change state in the forward function", "Change it in the forward function",
    "gradients of gradients", "it was set here for the first time",
)  # fmt: skip
"""What an error says that refuses a model."""
KINDS = (
    "linear", "norm", "inplace", "residual", "frozen", "checkpointed", "noted", "counting", "collecting", "keeping",
    "borrowing", "shared", "reading", "setting", "branching", "twice", "watching", "structured", "extra",
)  # fmt: skip
"""Kinds of blocks; ``programs/smp_generated.py`` has a class for each."""


@st.composite
def models(draw: Any, ranks: int = 4) -> dict[str, Any]:
    """A model, how it is divided over ``ranks`` ranks, and what the steps do."""
    parts = draw(st.sampled_from([each for each in (1, 2, 4) if each <= ranks]))
    kinds = draw(st.lists(st.sampled_from(KINDS), min_size=2, max_size=6))
    blocks = [
        {"kind": kind, "part": draw(st.integers(0, parts - 1)), "other": draw(st.integers(0, 5))} for kind in kinds
    ]
    microbatches = draw(st.sampled_from((1, 2, 4)))
    return {
        "blocks": blocks,
        "world": {
            "partitions": parts,
            "microbatches": microbatches,
            "ddp": True,
            "auto_partition": draw(st.booleans()),
            "default_partition": 0,
            "skip_tracing": draw(st.booleans()),
            "pipeline": draw(st.sampled_from(("interleaved", "simple"))),
            "active_microbatches": draw(st.integers(1, 4)),
            "placement_strategy": draw(st.sampled_from(("cluster", "spread"))),
        },
        "loss": draw(st.sampled_from(("mean", "penalty", "two", "split", "adversarial"))),
        "optimizer": draw(st.sampled_from(("SGD", "Adam"))),
        "clips": draw(st.booleans()),
        "evaluates": draw(st.booleans()),
        "accumulates": draw(st.integers(1, 2)),
        "schedules": draw(st.booleans()),
        "seed": draw(st.integers(0, 1 << 20)),
    }


def refused(errors: list[Any]) -> bool:
    """Whether a model was refused by name, on all ranks."""
    return all(isinstance(each, str) and any(words in each for words in REFUSALS) for each in errors)
