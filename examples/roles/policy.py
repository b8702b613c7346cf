"""The policy server: samples answers to prompts with the trainer's latest weights. Stands for vLLM or SGLang.

A prompt is a number, an answer is a number, and the weights are a table of logits: a row for each prompt.

    POST /rollouts {"count": 64}                  → {"version": 3, "prompts": […], "answers": […]}
    POST /weights  {"version": 4, "logits": [[…]]}  → {}
"""

from __future__ import annotations

import math
import random
from typing import Any

from server import serve

NUMBERS = 16
policy: dict[str, Any] = {"version": 0, "logits": [[0.0] * NUMBERS for _ in range(NUMBERS)]}


def rollouts(asked: dict[str, Any]) -> dict[str, Any]:
    now = policy.copy()  # new weights may come meanwhile
    prompts = random.choices(range(NUMBERS), k=asked["count"])
    weights = [[math.exp(logit) for logit in row] for row in now["logits"]]
    answers = [random.choices(range(NUMBERS), weights[prompt])[0] for prompt in prompts]
    return {"version": now["version"], "prompts": prompts, "answers": answers}


def take_weights(asked: dict[str, Any]) -> dict[str, Any]:
    policy.update(version=asked["version"], logits=asked["logits"])
    return {}


if __name__ == "__main__":
    serve({"/rollouts": rollouts, "/weights": take_weights})
