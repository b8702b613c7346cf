"""Host order, which is rank order: natural, so that ``algo-2`` comes before ``algo-10`` on every host alike."""

from __future__ import annotations

import re
from typing import Iterable

_NUMBER = re.compile(r"([0-9]+)")


def _key(name: str) -> tuple[tuple[tuple[int, str], ...], str]:
    """Numbers compare by value (by length first, leading zeros aside), everything else as text.

    The name itself breaks ties such as ``algo-1`` and ``algo-01``: hosts may list them in different orders.
    """
    chunks = _NUMBER.split(name)
    parts: list[tuple[int, str]] = []
    for index, chunk in enumerate(chunks):
        digits = chunk.lstrip("0") if index % 2 else ""
        parts.append((len(digits), digits) if index % 2 else (-1, chunk))
    return tuple(parts), name


def natural(names: Iterable[str]) -> tuple[str, ...]:
    """``names`` in natural order: ``algo-1``, ``algo-2``, ``algo-10``; the same for any order they come in."""
    return tuple(sorted(names, key=_key))
