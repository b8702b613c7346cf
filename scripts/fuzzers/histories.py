"""Plays the histories of several jobs at once: each job goes on from what the one before has left."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from typing import Callable

from fuzzers.findings import MOST_WRONG, Findings


def played(play: Callable[[int, int], list[str]], seed: int, inputs: int, turns: int, at_once: int) -> Findings:
    """``inputs`` turns in all, at most ``turns`` of each history; ``play`` gets a seed and the number of turns, and
    returns what didn't hold. ``at_once``: histories at a time.
    """
    draw = random.Random(seed)
    seeds = [draw.randrange(10**6) for _ in range(-(-inputs // turns))]
    with ThreadPoolExecutor(at_once) as pool:
        tries = list(pool.map(play, seeds, (min(turns, inputs - at) for at in range(0, inputs, turns))))
    wrong = [sentence for found in tries for sentence in found]
    return Findings(inputs, tuple(wrong[:MOST_WRONG]))
