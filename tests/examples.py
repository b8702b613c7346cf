"""How many examples a property test draws that says itself how many: in proportion to the profile."""

from __future__ import annotations

from hypothesis import settings

USUAL = 100
"""What a profile draws where a test draws its own number."""


def examples(number: int) -> int:
    default = settings.default
    drawn = default.max_examples if default is not None else USUAL
    return max(1, number * drawn // USUAL)
