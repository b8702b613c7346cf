"""Slurm's lists of nodes and of counts, spelled out: containers have no ``scontrol show hostnames``.

Every list was compared with what ``scontrol`` of Slurm 22.05 makes of it; what that refuses is refused.
"""

from __future__ import annotations

import re

from musterpoint.core.job.fields import host, shown, wrong

_MOST = 65536
"""Nodes, and tasks of a list: more than any Slurm has."""
_LONGEST_NAME, _DIGITS = 512, 9
"""Characters of a node's name, with its brackets' numbers, before it is spelled out."""
_PARTS = re.compile(r"[^,\[\]]*(?:\[[^\[\]]*\][^,\[\]]*)*")
_RANGE = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?")
_TASKS = re.compile(r"([0-9]{1,5})(?:\(x([0-9]{1,5})\))?")


def nodes_of(text: str, where: str) -> tuple[str, ...]:
    """``node[08-10],login`` as ``node08 node09 node10 login``, in the list's order, each name once.

    Raises:
        UsageError: it is no such list; the message has ``where`` and the text.
    """
    names: dict[str, None] = {}
    for part in _split(text, where):
        names.update(dict.fromkeys(_names(part, text, where)))
        if len(names) > _MOST:
            raise _wrong(where, text)
    return tuple(host(name, f"{where}={shown(text)}: a node") for name in names)


def tasks_of(text: str, where: str) -> tuple[int, ...]:
    """``2(x3),1`` as ``2 2 2 1``: the tasks of each node.

    Raises:
        UsageError: it is no such list; the message has ``where`` and the text.
    """
    counts: list[int] = []
    for part in text.split(","):
        found = _TASKS.fullmatch(part)
        if not found or len(counts) + int(found[2] or 1) > _MOST:
            raise wrong(where, text, "the tasks of each node, such as 1(x2) or 2,1")
        counts += [int(found[1])] * int(found[2] or 1)
    return tuple(counts)


def _split(text: str, where: str) -> list[str]:
    """The parts between commas outside of brackets."""
    parts, at = [], 0
    while at <= len(text):
        found = _PARTS.match(text, at)
        assert found is not None  # it matches the empty text, too
        at = found.end() + 1
        if not found[0] or (at <= len(text) and text[at - 1] != ","):
            raise _wrong(where, text)
        parts.append(found[0])
    return parts


def _names(part: str, text: str, where: str) -> list[str]:
    """The names of one part: every combination of its brackets, the last one counting fastest."""
    *pairs, last = part.split("]")
    if pairs and last:
        raise _wrong(where, text)  # as Slurm: nothing may follow the last bracket
    names, longest = [""] if pairs else [last], 0
    for pair in pairs:
        before, _, ranges = pair.partition("[")
        longest += len(before) + _DIGITS
        if longest > _LONGEST_NAME:
            raise _wrong(where, text)
        numbers = _numbers(ranges, text, where)
        if len(names) * len(numbers) > _MOST:
            raise _wrong(where, text)
        names = [f"{name}{before}{number}" for name in names for number in numbers]
    return names


def _numbers(ranges: str, text: str, where: str) -> list[str]:
    """``098-101,7`` as its numbers, each as wide as the first of its range."""
    numbers: list[str] = []
    for each in ranges.split(","):
        found = _RANGE.fullmatch(each)
        if not found:
            raise _wrong(where, text)
        first, last = int(found[1]), int(found[2] or found[1])
        if not first <= last < first + _MOST:
            raise _wrong(where, text)
        numbers += [str(number).zfill(len(found[1])) for number in range(first, last + 1)]
        if len(numbers) > _MOST:
            raise _wrong(where, text)
    return numbers


def _wrong(where: str, text: str) -> Exception:
    return wrong(where, text, "a list of nodes as Slurm writes it, such as node[01-04],login1")
