"""Which replica keeps the optimizer's state of which parameter, or piece of one; pure arithmetic."""

from __future__ import annotations

from typing import Collection, NamedTuple, Sequence

ALIGNED = 64
"""Pieces begin at multiples of so many elements: vector instructions then compute a piece as they compute the whole."""


class Piece(NamedTuple):
    """Elements ``start`` to ``stop`` of the parameter with this number; all of them where it isn't cut."""

    number: int
    start: int
    stop: int


def divide(
    sizes: Sequence[int], owners: int, whole: Collection[int] = (), loads: Sequence[int] | None = None, first: int = 0
) -> list[list[Piece]]:
    """The pieces of each owner, so that all have about the same number of elements.

    Args:
        sizes: the parameters' numbers of elements.
        whole: places in ``sizes`` of those that must not be cut: each goes to whoever has least then, the largest
            first. The others are cut where an owner has its share.
        loads: what the owners have already.
        first: the index of the first parameter.
    """
    held = list(loads or [0] * owners)
    share = -(-(sum(held) + sum(sizes)) // owners)
    found: list[list[Piece]] = [[] for _ in range(owners)]
    for place in sorted(whole, key=lambda place: -sizes[place]):
        owner = held.index(min(held))
        held[owner] += sizes[place]
        found[owner].append(Piece(first + place, 0, sizes[place]))
    owner = 0
    for place, size in enumerate(sizes):
        start = 0
        while start < size and place not in whole:
            room = size - start if owner == owners - 1 else share - held[owner]
            stop = size if room >= size - start else start + max(room, 0) // ALIGNED * ALIGNED
            if stop == start:
                owner += 1
                continue
            held[owner] += stop - start
            found[owner].append(Piece(first + place, start, stop))
            start = stop
    return [sorted(pieces) for pieces in found]
