"""The network that the hosts' addresses lie in, as Open MPI's ``*_if_include`` take it.

Interface names differ between hosts, and one set of parameters holds for all of them, so it has to be networks. Open
MPI takes no ``/32``, warns on every host of each network that the host has no interface in, and PRRTE 3 ends with a
segmentation fault where none fits: one network that holds all addresses and as little else as possible is what works.
"""

from __future__ import annotations

from typing import Iterable

WIDEST = 16
"""Prefix length. Docker's bridges have a /16 each: a wider network could hold one that all hosts have, alike."""

_NARROWEST = 31
_LOOPBACK = 127


def common_networks(addresses: Iterable[str]) -> str:
    """The narrowest network around IPv4 ``addresses`` (``10.0.1.0/29``), or several, apart by a comma, where it would
    be wider than :data:`WIDEST`.
    """
    by_widest: dict[int, list[int]] = {}
    for number in map(_number, addresses):
        by_widest.setdefault(number >> 32 - WIDEST, []).append(number)
    return ",".join(_around(numbers) for _, numbers in sorted(by_widest.items()))


def _around(numbers: list[int]) -> str:
    length = min(_NARROWEST, 32 - (min(numbers) ^ max(numbers)).bit_length())
    if min(numbers) >> 24 == _LOOPBACK:
        length = 8  # the interface is known by its own address alone, 127.0.0.1
    first = min(numbers) >> 32 - length << 32 - length
    return ".".join(map(str, first.to_bytes(4, "big"))) + f"/{length}"


def _number(address: str) -> int:
    return int.from_bytes(bytes(map(int, address.split("."))), "big")


def is_ipv4(address: str) -> bool:
    """Whether it is numeric; a plan made without a roll call has names in place of addresses."""
    parts = address.split(".")
    return len(parts) == 4 and all(part.isdecimal() and int(part) < 256 for part in parts)
