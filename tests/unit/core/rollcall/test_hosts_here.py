"""The hosts of a roll call when all are here: their order by topology, and libraries whose versions differ."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from musterpoint.core.rollcall.hosts_here import by_topology, differences


@pytest.mark.parametrize(
    ("places", "outside", "ordered"),
    [
        ({"a": "s0.s1.a", "b": "s0.s2.b", "c": "s0.s1.c", "d": "s0.s2.d"}, (), "acbd"),
        ({"a": "s0.s2.a", "b": "s0.s1.b", "c": "s0.s3.c", "d": "s0.s2.d", "e": "s0.s1.e"}, (), "adbec"),
        ({"a": "r.x.1.a", "b": "r.y.1.b", "c": "r.x.2.c", "d": "r.y.1.d", "e": "r.x.1.e"}, (), "aecbd"),
        ({"a": "s1.a", "b": "s2.b", "c": "s1.c", "d": "s2.d"}, ("b",), "abcd"),
        ({"a": "s1.a", "b": "s2.b", "c": "s3.c", "d": "s1.d"}, ("b",), "abdc"),
        ({"a": "a", "b": "b", "c": "c"}, (), "abc"),
    ],
)
def test_order(places: dict[str, str], outside: tuple[str, ...], ordered: str) -> None:
    grouped = frozenset(places) - frozenset(outside)
    found, told = by_topology(list(places), grouped, places)
    assert "".join(found) == ordered
    assert told.startswith("rank order by topology: a, ")


def test_a_host_that_cannot_say_leaves_the_order_as_it_is() -> None:
    found, told = by_topology("abc", frozenset("abc"), {"a": "s1.a", "b": "", "c": "s1.c"})
    assert found == ["a", "b", "c"]
    assert told.startswith("warning: --host-order topology: b can't say at which switch")


PLACES = st.lists(st.lists(st.sampled_from("xyz"), min_size=1, max_size=3).map(".".join), min_size=1, max_size=12)


@given(PLACES)
def test_each_switchs_hosts_follow_each_other(places: list[str]) -> None:
    hosts = [f"h{number}" for number in range(len(places))]
    of_hosts = {host: f"{place}.{host}" for host, place in zip(hosts, places, strict=True)}
    ordered, _ = by_topology(hosts, frozenset(hosts), of_hosts)
    assert ordered[0] == "h0" and sorted(ordered) == sorted(hosts)
    paths = [tuple(of_hosts[host].split(".")[:-1]) for host in ordered]
    for depth in range(1, 4):
        prefixes = [path[:depth] for path in paths if len(path) >= depth]
        if all(len(path) >= depth for path in paths):
            assert len([*itertools.groupby(prefixes)]) == len(set(prefixes))


NEW, OLD = "NCCL=2.27.3", "NCCL=2.26.2"


@pytest.mark.parametrize(
    ("hosts", "said"),
    [
        ({}, []),
        ({"algo-1": [NEW, "MLNX_OFED=5.4-1.0.3.0"], "algo-2": [NEW, "MLNX_OFED=5.4-1.0.3.0"]}, []),
        ({"algo-1": [NEW], "algo-2": [OLD], "algo-3": [NEW]},
         ["NCCL differs between hosts: 2.27.3 on algo-1, algo-3; 2.26.2 on algo-2."]),
        ({"algo-1": [NEW, "libfabric=1.22"], "algo-2": [NEW]},
         ["libfabric differs between hosts: 1.22 on algo-1; not found on algo-2."]),
        ({"algo-1": [OLD], **{f"algo-{n}": [NEW] for n in range(2, 8)}},
         ["2.26.2 on algo-1; 2.27.3 on algo-2, algo-3, algo-4 and 3 more."]),
    ],
)  # fmt: skip
def test_differences(hosts: dict[str, list[str]], said: list[str]) -> None:
    warnings = differences(hosts)
    assert len(warnings) == len(said)
    assert all(part in warning for part, warning in zip(said, warnings, strict=True)), warnings
