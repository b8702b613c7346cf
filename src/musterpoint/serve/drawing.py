"""The hyperparameters of each training job of a tuning job: drawn at random, or every combination in turn.

The values of job number N depend on the tuning job's name and N only: after a restart of the server they are the same.
"""

from __future__ import annotations

import itertools
import math
import random
from typing import Any, Mapping, Sequence


def drawn(ranges: Mapping[str, Any], seed: str) -> dict[str, str]:
    """Values at random, as the texts that a training job gets."""
    source = random.Random(seed)
    found = {}
    for each in ranges.get("CategoricalParameterRanges") or ():
        found[each["Name"]] = str(source.choice(each["Values"]))
    for each in ranges.get("IntegerParameterRanges") or ():
        low, high = int(each["MinValue"]), int(each["MaxValue"])
        value = _scaled(low - 0.5, high + 0.5, each.get("ScalingType", "Auto"), source.random(), low)
        found[each["Name"]] = str(min(high, max(low, round(value))))
    for each in ranges.get("ContinuousParameterRanges") or ():
        low_, high_ = float(each["MinValue"]), float(each["MaxValue"])
        value = _scaled(low_, high_, each.get("ScalingType", "Auto"), source.random(), low_)
        found[each["Name"]] = repr(min(high_, max(low_, value)))
    return found


def _scaled(low: float, high: float, scaling: str, share: float, least: float) -> float:
    if scaling == "Logarithmic" and least > 0:
        low = max(low, least / 2)
        return math.exp(math.log(low) + share * (math.log(high) - math.log(low)))
    if scaling == "ReverseLogarithmic" and low >= 0 and high < 1:
        return 1 - math.exp(math.log(1 - low) + share * (math.log(1 - high) - math.log(1 - low)))
    return low + share * (high - low)


def combinations(ranges: Mapping[str, Any]) -> int:
    """How many a grid has."""
    return math.prod(len(each["Values"]) for each in ranges.get("CategoricalParameterRanges") or ())


def combination(ranges: Mapping[str, Any], number: int) -> dict[str, str]:
    """The combination ``number`` of a grid, counted from 0."""
    each: Sequence[Mapping[str, Any]] = ranges.get("CategoricalParameterRanges") or ()
    values = next(itertools.islice(itertools.product(*(one["Values"] for one in each)), number, None))
    return {one["Name"]: str(value) for one, value in zip(each, values, strict=True)}
