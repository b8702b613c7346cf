"""How many examples a property test draws that says itself how many: fewer where the profile draws fewer."""

from __future__ import annotations

from hypothesis import settings

USUAL = 100
"""Of so many that a profile draws, a test draws its own number."""


def examples(most: int) -> int:
    default = settings.default
    drawn = default.max_examples if default is not None else USUAL
    return max(1, min(most, most * drawn // USUAL))
