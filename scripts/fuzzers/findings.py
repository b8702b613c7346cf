"""What a fuzzer has found."""

from __future__ import annotations

from typing import NamedTuple


class Findings(NamedTuple):
    """``tried`` counts inputs; each text of ``wrong`` says what was sent, what came of it, and what should have."""

    tried: int
    wrong: tuple[str, ...]
    """At most a screenful: a fuzzer stops after it."""


MOST_WRONG = 20
