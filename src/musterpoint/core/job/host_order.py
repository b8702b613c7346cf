"""The natural order of host names, which is rank order."""

import re
from typing import Iterable

_NUMBER = re.compile(r"([0-9]+)")


def _key(name: str) -> tuple[tuple[tuple[int, str], ...], str]:
    """Sort key: numbers compare by value (leading zeros don't count), everything else as text.

    The name itself decides between ``algo-1`` and ``algo-01``: each host may list them in another order.
    """
    chunks = _NUMBER.split(name)
    parts: list[tuple[int, str]] = []
    for index, chunk in enumerate(chunks):
        digits = chunk.lstrip("0") if index % 2 else ""
        parts.append((len(digits), digits) if index % 2 else (-1, chunk))
    return tuple(parts), name


def natural(names: Iterable[str]) -> tuple[str, ...]:
    """``names`` in natural order: ``algo-1``, ``algo-2``, ``algo-10``, in whatever order they come."""
    return tuple(sorted(names, key=_key))
