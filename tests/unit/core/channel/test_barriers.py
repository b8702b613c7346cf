from __future__ import annotations

import time

from hypothesis import given
from hypothesis import strategies as st

from musterpoint.core.channel.topics.barriers import WhoWaits

GROUP = ["a", "b", "c"]
STEPS = st.lists(st.tuples(st.sampled_from([*GROUP, "outside"]), st.sampled_from(["x", "y", "through"])), max_size=20)


@given(STEPS)
def test_counting_finds_what_looking_at_all_finds(steps: list[tuple[str, str]]) -> None:
    points = WhoWaits(GROUP)
    here: dict[str, set[str]] = {}
    through: set[str] = set()
    for host, what in steps:
        if what == "through":
            through.add(host)
            found = points.left(host)
        else:
            here.setdefault(what, set()).add(host)
            found = points.arrive(host, what)
        expected = [point for point, arrived in here.items() if not set(GROUP) - arrived - through]
        for point in expected:
            del here[point]
        assert sorted(found) == sorted(expected)
        for one in [*GROUP, "outside"]:
            assert points.waits(one) == sum(one in arrived for arrived in here.values())


def test_ten_thousand_hosts_arrive_in_little_time() -> None:
    hosts = [f"algo-{number}" for number in range(10_000)]
    points = WhoWaits(hosts)
    before = time.process_time()
    reached = [points.arrive(host, point) for point in ("one", "two") for host in hosts]
    assert sum(map(len, reached)) == 2
    assert time.process_time() - before < 5  # it took longer when each arrival looked at all hosts
