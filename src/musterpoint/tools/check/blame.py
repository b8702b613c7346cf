"""Which hosts explain what went wrong between pairs of hosts. It does no I/O."""

from __future__ import annotations

from collections import Counter
from typing import Collection, NamedTuple

Pair = tuple[str, str]


class Blame(NamedTuple):
    """``hosts``: those that explain bad pairs by themselves; ``pairs``: bad pairs that no such host explains."""

    hosts: tuple[str, ...] = ()
    pairs: tuple[Pair, ...] = ()


def blamed(bad: Collection[Pair], good: Collection[Pair]) -> Blame:
    """The hosts that explain the ``bad`` pairs: none of a host's pairs is good, and it is in more bad ones than others.

    A host with a good pair works, so its bad pairs are the other host's fault, or that of what is between the two.
    """
    works = {host for pair in good for host in pair}
    hosts: list[str] = []
    left = list(dict.fromkeys(bad))
    while left:
        counts = Counter(host for pair in left for host in pair if host not in works)
        ranked = counts.most_common()
        if not ranked:
            break
        worst, most = ranked[0]
        tied = [host for host, count in ranked if count == most]
        if len(tied) > 1 and most == 1 and _either(left, tied):
            break
        hosts.append(worst)
        left = [pair for pair in left if worst not in pair]
    return Blame(tuple(hosts), tuple(left))


def _either(left: Collection[Pair], tied: Collection[str]) -> bool:
    """Whether a pair has two hosts that may both be at fault, and nothing tells which."""
    return any(one in tied and other in tied for one, other in left)
