"""Which training jobs of a tuning job are stopped before their end, by the values of the objective so far.

Each value of the objective metric counts as one epoch (one resource, as Hyperband calls it). A job is judged once at
each of its epochs, with what the others have come to by then.
"""

from __future__ import annotations

from statistics import fmean, median
from typing import Any, Mapping, NamedTuple, Sequence

ETA = 3
"""Of the jobs that reach a rung of Hyperband one in so many goes on; rungs are so many times further apart each."""
MOST_EPOCHS = 20_000
"""The largest MaxResource that SageMaker takes."""
_EPOCHS = ("epochs", "numepochs", "n-epochs", "n_epochs", "num_epochs")
"""Hyperparameters that MaxResource is taken from where it isn't given."""
Values = Sequence[float]


class CannotStop(Exception):
    """The configuration doesn't say when to stop; the text says what is missing."""


class Hyperband(NamedTuple):
    """Successive halving without waiting: at ``least`` epochs, at three times as many and so on up to ``most``.

    A job may end with its epoch ``most``; it is stopped when it goes on after that.
    """

    least: int
    most: int
    counts_running: bool = True

    def stops(self, own: Values, seen: int, others: Sequence[Values]) -> bool:
        rung = self.least
        while rung < self.most:
            if seen < rung <= len(own):
                there = [values[rung - 1] for values in others if len(values) >= rung]
                better = sum(value < own[rung - 1] for value in there)
                if len(there) + 1 >= ETA and better >= (len(there) + 1) // ETA:
                    return True
            rung *= ETA
        return len(own) > self.most


class Median(NamedTuple):
    """TrainingJobEarlyStoppingType Auto: worse than the median of the others' averages up to the same epoch."""

    counts_running: bool = False

    def stops(self, own: Values, seen: int, others: Sequence[Values]) -> bool:
        for epoch in range(seen + 1, len(own) + 1):
            averages = [fmean(values[:epoch]) for values in others if len(values) >= epoch]
            if averages and own[epoch - 1] > median(averages):
                return True
        return False


Rule = Hyperband | Median
"""``stops(own, seen, others)``: whether the job with the values ``own`` is stopped; smaller values are better.

It has been judged at its first ``seen`` epochs. ``others``: the values of the other jobs that are over, and where
``counts_running`` of those that run, too.
"""


def rule_of(config: Mapping[str, Any], static: Mapping[str, str]) -> Rule | None:
    """The rule of a HyperParameterTuningJobConfig; None: every job runs to its end.

    Raises:
        CannotStop: it has none that can be followed.
    """
    auto = config.get("TrainingJobEarlyStoppingType") == "Auto"
    given = config.get("StrategyConfig")
    if config["Strategy"] != "Hyperband":
        if given:
            raise CannotStop("StrategyConfig is supported for the strategy Hyperband only")
        return Median() if auto else None
    if auto:
        raise CannotStop("TrainingJobEarlyStoppingType must be Off for the strategy Hyperband")
    wanted = (given or {}).get("HyperbandStrategyConfig") or {}
    most = wanted.get("MaxResource") or _inferred(static)
    least = wanted.get("MinResource", 1)
    if not least <= most <= MOST_EPOCHS:
        raise CannotStop(
            f"HyperbandStrategyConfig: expected MinResource ≤ MaxResource ≤ {MOST_EPOCHS}, got {least} and {most}"
        )
    return Hyperband(least, most)


def _inferred(static: Mapping[str, str]) -> int:
    for name in _EPOCHS:
        text = static.get(name, "").strip('"')
        if text.isdecimal() and int(text):
            return int(text)
    raise CannotStop(
        "HyperbandStrategyConfig: MaxResource is required where no hyperparameter says it; expected it, or one of "
        f"{', '.join(_EPOCHS)} in StaticHyperParameters"
    )
