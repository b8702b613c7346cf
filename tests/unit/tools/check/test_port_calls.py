"""Calls to ports: real ones on this machine, and what those between several hosts mean."""

from __future__ import annotations

import socket
from typing import Collection

import pytest
from hypothesis import given
from hypothesis import strategies as st

from musterpoint.base.loop import Loop
from musterpoint.tools.check.port_calls import Call, Calls, Endpoint, Listeners, Result, called_by, ephemeral_ports
from musterpoint.tools.check.port_rules import Pair, blamed, port_findings

HOSTS = ("algo-1", "algo-2", "algo-3")
AGREED = {7777: "the master port"}
PORTS = (7777, 33000, 45000, 60000)


def test_calls_come_through_and_others_do_not(loop: Loop) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        listeners = Listeners(loop, "token", (0, 0))
        ports = (*listeners.ports, closed.getsockname()[1])
        calls = Calls(loop, "a", "token", [Endpoint("b", "127.0.0.1", port, at) for at, port in enumerate(ports)])
        strangers = Calls(loop, "c", "another", [Endpoint("b", "127.0.0.1", listeners.ports[0])])
        while calls.done is None or strangers.done is None:
            loop.turn()
        assert sorted(call.result for call in calls.done) == ["ok", "ok", "refused"]
        assert [call.result for call in strangers.done] == ["refused"], "it is hung up on without an answer"
        listeners.close()


def test_a_port_that_is_taken_is_said(loop: Loop) -> None:
    with socket.socket() as other:
        other.bind(("", 0))
        other.listen()
        port = other.getsockname()[1]
        listeners = Listeners(loop, "token", (port, 0))
        assert listeners.taken == (port,) and len(listeners.ports) == 1
        listeners.close()


def test_the_ports_lie_across_the_systems_range() -> None:
    low, middle, high = ephemeral_ports("/none")
    assert 32768 <= low < 37000 and 46000 < middle < 51000 and 57000 < high <= 60999


def table(
    bad: Collection[tuple[str, str, int]], result: Result = "silent", hosts: Collection[str] = HOSTS
) -> list[Call]:
    """All calls between the hosts; those in ``bad`` (``*``: any host; port 0: all of the range) don't come through."""

    def is_bad(caller: str, called: str, port: int) -> bool:
        return any(
            one in ("*", caller) and two in ("*", called) and its == (0 if port not in AGREED and its == 0 else port)
            for one, two, its in bad
        )

    return [
        Call(caller, called, port, result if is_bad(caller, called, port) else "ok", place)
        for caller in hosts for called in hosts if caller != called for place, port in enumerate(PORTS)
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("bad", "expected"),
    [
        ([], []),
        ([("*", "algo-1", 7777)], [("fail", "algo-1")]),
        ([("*", "algo-2", 7777)], [("warn", "algo-2")]),
        ([("algo-3", "*", 7777)], [("fail", "algo-3")]),
        ([("algo-3", "algo-1", 7777)], [("fail", "algo-1")]),
        ([("*", "algo-2", 45000)], [("fail", "algo-2")]),
        ([("*", "algo-2", 45000), ("*", "algo-2", 60000)], [("fail", "algo-2")]),
        ([("algo-2", "*", 0)], [("fail", "algo-2")]),
        ([("algo-2", "*", 0), ("*", "algo-2", 0)], [("fail", "algo-2")]),
        ([("algo-2", "algo-3", 0)], [("fail", "algo-3")]),
    ],
)
def test_who_is_mute_at_a_port_is_named(bad: list[tuple[str, str, int]], expected: list[tuple[str, str]]) -> None:
    found = [each for each in port_findings(table(bad), "algo-1", AGREED, HOSTS) if each.severity != "ok"]
    assert [(each.severity, each.host) for each in found] == expected
    assert {each.code for each in found} <= {"port-blocked"}


def test_lost_large_packets_are_told_apart() -> None:
    (found, *_) = port_findings(table([("*", "algo-2", 7777)], "stuck"), "algo-1", AGREED, HOSTS)
    assert (found.code, found.severity, found.host) == ("large-packets-lost", "fail", "algo-2")


def test_answers_that_a_firewall_drops_are_its_hosts() -> None:
    """It drops by ports of the range: calls into it, and answers to calls that left from such a port."""
    bad = [("*", "algo-3", 60000), ("algo-3", "algo-1", 7777), ("algo-3", "algo-2", 33000)]
    found = [each for each in port_findings(table(bad), "algo-1", AGREED, HOSTS) if each.severity != "ok"]
    assert {each.host for each in found} == {"algo-3"}
    assert "it can't reach port 7777 (the master port) of algo-1" in found[0].found


@given(st.integers(3, 12), st.data())
def test_any_one_mute_host_is_named(count: int, data: st.DataObject) -> None:
    hosts = [f"algo-{number + 1}" for number in range(count)]
    mute = data.draw(st.sampled_from(hosts))
    port = data.draw(st.sampled_from([7777, 33000, 0]))
    rules = {"in": [("*", mute, port)], "out": [(mute, "*", port)]}
    chosen = data.draw(st.sampled_from(["in", "out", "both"]))
    bad = [rule for way, its in rules.items() if chosen in (way, "both") for rule in its]
    found = [each for each in port_findings(table(bad, hosts=hosts), hosts[0], AGREED, hosts) if each.severity != "ok"]
    assert {each.host for each in found} == {mute}


@given(st.integers(1, 2000))
def test_every_host_is_called_by_several_and_nobody_calls_all_of_many(count: int) -> None:
    called = [called_by(place, count) for place in range(count)]
    assert all(place not in its for place, its in enumerate(called))
    if count > 3:
        counts = [0] * count
        for its in called:
            for place in its:
                counts[place] += 1
        assert min(counts) >= 3
    assert max(map(len, called)) <= 32


@pytest.mark.parametrize(
    ("bad", "hosts"),
    [([("a", "b"), ("a", "c")], ["a"]), ([("a", "b"), ("a", "c"), ("d", "e")], ["a"]), ([("a", "b")], []), ([], [])],
)
def test_who_explains_bad_pairs(bad: list[Pair], hosts: list[str]) -> None:
    assert blamed(bad) == hosts
