"""Rank order by topology: hosts at one switch side by side, so that rings of ranks cross each link once."""

from __future__ import annotations

from typing import Mapping, Sequence

Path = tuple[str, ...]


def by_topology(hosts: Sequence[str], grouped: frozenset[str], places: Mapping[str, str]) -> tuple[list[str], str]:
    """``hosts`` in their new order, and a sentence about it.

    ``places``: for each host of the group its switches from the network's root on, such as ``s0.s4.s8.node3``. The
    group's first host stays the first. Hosts outside the group keep their places.
    """
    members = [host for host in hosts if host in grouped]
    silent = [host for host in members if not places.get(host)]
    if silent:
        names = ", ".join(silent[:4]) + (f" and {len(silent) - 4} more" if len(silent) > 4 else "")
        return list(hosts), (
            f"warning: --host-order topology: {names} can't say at which switch (MUSTER_TOPOLOGY, or "
            "SLURM_TOPOLOGY_ADDR, which Slurm sets with a topology plugin): hosts keep the platform's order"
        )
    ordered = _together(members, {host: tuple(places[host].split("."))[:-1] for host in members}, 0)
    following = iter(ordered)
    told = f"rank order by topology: {', '.join(ordered[:8])}{' …' if len(ordered) > 8 else ''}"
    return [next(following) if host in grouped else host for host in hosts], told


def _together(hosts: Sequence[str], switches: Mapping[str, Path], depth: int) -> list[str]:
    """Hosts below one switch of this depth follow each other; switches come in the order of their first hosts."""
    if len(hosts) < 3:
        return list(hosts)
    below: dict[str, list[str]] = {}
    for host in hosts:
        path = switches[host]
        below.setdefault(path[depth] if depth < len(path) else "", []).append(host)
    if len(below) == 1 and "" in below:
        return list(hosts)
    return [host for name, some in below.items() for host in (_together(some, switches, depth + 1) if name else some)]
