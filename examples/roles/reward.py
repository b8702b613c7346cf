"""The reward server: says how good answers are. Stands for a reward model, or for a sandbox that runs tests.

    POST /rewards {"prompts": [3, 5], "answers": [9, 1]} → {"rewards": [1.0, 0.0]}

An answer is right when it is three times the prompt, modulo 16.
"""

from __future__ import annotations

from typing import Any

from server import serve


def rewards(asked: dict[str, Any]) -> dict[str, Any]:
    pairs = zip(asked["prompts"], asked["answers"])
    return {"rewards": [float(answer == 3 * prompt % 16) for prompt, answer in pairs]}


if __name__ == "__main__":
    serve({"/rewards": rewards})
