"""Whether this host has a network at all, so that nobody waits for one that isn't there."""

from __future__ import annotations

import os


def has_route(proc: str = "/proc") -> bool:
    """Whether the kernel knows a way to any other host; True where it can't be asked (it isn't Linux)."""
    four = _lines(os.path.join(proc, "net/route"))
    if four is None:
        return True
    # the columns of route end with other things, those of ipv6_route with the interface
    six = _lines(os.path.join(proc, "net/ipv6_route")) or []
    return any(line[:1] not in (["Iface"], ["lo"]) for line in four) or any(line[-1:] != ["lo"] for line in six)


def _lines(path: str) -> list[list[str]] | None:
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            return [line.split() for line in file if line.strip()]
    except OSError:
        return None
