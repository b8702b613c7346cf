"""The schedule of pairs and the verdict: tables, and every way in which one or two hosts can be bad."""

from __future__ import annotations

from typing import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from musterpoint.tools.check.bandwidth_rules import MOST_ROUNDS, Measured, bandwidth_findings, next_pairs
from musterpoint.tools.check.findings import CODES, Finding

from ....examples import examples

Speed = Callable[[str, str], float]


def run(hosts: list[str], speed: Speed) -> tuple[list[Measured], int]:
    """All rounds: what was measured, and how many rounds there were."""
    measured: list[Measured] = []
    rounds = 0
    while pairs := next_pairs(hosts, measured, rounds):
        rounds += 1
        busy = [host for pair in pairs for host in pair]
        assert len(busy) == len(set(busy)), "a host was in two pairs at a time"
        for one, two in pairs:
            value = speed(one, two)
            measured.append(Measured(one, two, 2, value, value, 1e-4, "gloo", "" if value else "timed out"))
    assert len({frozenset(each.pair) for each in measured}) == len(measured), "a pair was measured twice"
    return measured, rounds


def names(count: int) -> list[str]:
    return [f"algo-{number + 1}" for number in range(count)]


def named(found: list[Finding]) -> set[str]:
    for each in found:
        assert each.severity in CODES[each.code].severities
    return {each.host for each in found if each.severity != "ok" and each.host}


@settings(max_examples=examples(300), deadline=None)
@given(st.data())
def test_bad_hosts_are_named_and_nobody_else(data: st.DataObject) -> None:
    """One of three or more, two of four or more, slow or dead, wherever they are and however others vary a little."""
    hosts = names(data.draw(st.integers(3, 40)))
    most = 1 if len(hosts) == 3 else 2
    bad = dict(data.draw(st.lists(st.tuples(st.sampled_from(hosts), st.sampled_from([0.0, 0.05, 0.3])), max_size=most)))
    spread = data.draw(st.lists(st.floats(0.8, 1.2), min_size=len(hosts), max_size=len(hosts)))
    own = dict(zip(hosts, spread, strict=True))
    measured, rounds = run(hosts, lambda one, two: min(bad.get(one, own[one]), bad.get(two, own[two])))
    assert rounds <= MOST_ROUNDS
    found = bandwidth_findings(hosts, measured)
    assert named(found) == set(bad)
    for each in found:
        if each.host:
            expected = {0.0: ("host-mute", "fail"), 0.05: ("host-slow", "fail"), 0.3: ("host-slow", "warn")}
            assert (each.code, each.severity) == expected[bad[each.host]]
    assert not [each for each in found if each.code.startswith("pair")]


def test_a_healthy_cluster_is_measured_in_few_rounds() -> None:
    assert [run(names(count), lambda one, two: 1.0)[1] for count in (2, 3, 4, 5, 6, 7, 64, 1000)] == [
        1, 3, 3, 5, 1, 2, 1, 1,
    ]  # fmt: skip


@pytest.mark.parametrize("count", [8, 64, 512])
def test_one_bad_host_takes_few_more(count: int) -> None:
    _, rounds = run(names(count), lambda one, two: 0.1 if "algo-5" in (one, two) else 1.0)
    assert rounds == 2


@settings(max_examples=examples(100), deadline=None)
@given(st.integers(2, 20), st.floats(1e-4, 1e-2))
def test_a_slow_network_names_nobody_and_says_so(count: int, speed: float) -> None:
    hosts = names(count)
    found = bandwidth_findings(hosts, run(hosts, lambda one, two: speed)[0], link_speed=3.125)
    assert named(found) == set()
    assert [each.code for each in found] == ["network-slow", "bandwidth"]


@pytest.mark.parametrize(("expected", "codes"), [(0.0, ["bandwidth"]), (2.0, ["network-slow", "bandwidth"])])
def test_what_was_asked_for_counts(expected: float, codes: list[str]) -> None:
    hosts = names(4)
    found = bandwidth_findings(hosts, run(hosts, lambda one, two: 1.0)[0], expected)
    assert [each.code for each in found] == codes


def test_a_slow_link_between_two_hosts_names_the_two() -> None:
    hosts = names(8)
    measured, _ = run(hosts, lambda one, two: 0.1 if {one, two} == {"algo-3", "algo-4"} else 1.0)
    found = bandwidth_findings(hosts, measured)
    assert [(each.code, each.host) for each in found if each.severity != "ok"] == [("pair-slow", "")]
    assert "algo-3 and algo-4" in found[0].found


@pytest.mark.parametrize(("speed", "code"), [(0.0, "pair-mute"), (0.1, "network-slow")])
def test_of_two_hosts_none_is_named(speed: float, code: str) -> None:
    found = bandwidth_findings(names(2), run(names(2), lambda one, two: speed)[0], link_speed=12.5)
    assert named(found) == set() and found[0].code == code


def test_two_on_one_machine_that_are_faster_than_all_others_accuse_nobody() -> None:
    hosts = names(12)
    measured, rounds = run(hosts, lambda one, two: 10.0 if {one, two} == {"algo-1", "algo-2"} else 1.0)
    assert rounds <= MOST_ROUNDS and named(bandwidth_findings(hosts, measured)) == set()


def test_a_host_that_answers_late_is_named() -> None:
    hosts = names(4)
    measured = [each._replace(latency=0.2) if "algo-3" in each.pair else each for each in run(hosts, lambda *_: 1.0)[0]]
    assert [(each.code, each.host) for each in bandwidth_findings(hosts, measured) if each.severity != "ok"] == [
        ("host-slow", "algo-3")
    ]


def test_bus_bandwidth_is_that_of_nccl_tests() -> None:
    assert Measured("a", "b", 2, 10.0).bus == 10.0
    assert Measured("a", "b", 16, 10.0).bus == 18.75
    assert bandwidth_findings(["a"], []) == []


def test_two_bad_hosts_of_four_that_are_bad_in_different_ways() -> None:
    """Beside a dead host a slow one looks well, until it is compared with a sound one."""
    hosts, bad = names(4), {"algo-1": 0.0, "algo-4": 0.05}
    measured, _ = run(hosts, lambda one, two: min(bad.get(one, 1.0), bad.get(two, 1.0)))
    assert named(bandwidth_findings(hosts, measured)) == set(bad)


def pairs_of(waits: dict[str, float], speeds: dict[str, float]) -> list[Measured]:
    hosts = [*speeds]
    return [
        Measured(one, two, 2, speed, speed, 1e-4, "gloo", "", (waits.get(one, 0.0), waits.get(two, 0.0)))
        for number, one in enumerate(hosts)
        for two in hosts[number + 1 :]
        for speed in [min(speeds[one], speeds[two])]
    ]


def test_a_busy_host_is_not_blamed() -> None:
    """Its ranks waited for a processor for nine tenths of the time: that alone makes it as slow as it was."""
    measured = pairs_of({"c": 0.9}, {"a": 1.0, "b": 1.0, "c": 0.1, "d": 1.0})
    found = bandwidth_findings("abcd", measured)
    assert [(each.code, each.severity, each.host) for each in found if each.severity != "ok"] == [
        ("bandwidth-noisy", "warn", "")
    ]
    assert "too noisy to tell" in found[0].found
    assert "c (90%)" in found[0].found


def test_a_host_slower_than_its_load_explains_is_named() -> None:
    measured = pairs_of({"c": 0.5}, {"a": 1.0, "b": 1.0, "c": 0.05, "d": 1.0})
    found = bandwidth_findings("abcd", measured)
    assert [(each.code, each.severity, each.host) for each in found if each.severity != "ok"] == [
        ("host-slow", "fail", "c")
    ]


@given(st.lists(st.floats(0.0, 0.95), min_size=3, max_size=6))
def test_load_alone_blames_nobody(waits: list[float]) -> None:
    """Hosts that are alike but for what else they do: a pair is as fast as what both were given."""
    hosts = names(len(waits))
    part = dict(zip(hosts, waits, strict=True))
    measured = [
        Measured(one, two, 2, speed, speed, 1e-4 / speed, "gloo", "", (part[one], part[two]))
        for number, one in enumerate(hosts)
        for two in hosts[number + 1 :]
        for speed in [(1 - part[one]) * (1 - part[two])]
    ]
    assert named(bandwidth_findings(hosts, measured)) == set()
