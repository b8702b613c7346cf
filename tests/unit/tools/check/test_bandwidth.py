"""The leader's decisions between rounds, from what the hosts report; and one rank's process, which can't start."""

from __future__ import annotations

import json
from typing import Any

from musterpoint.base.loop import Loop
from musterpoint.core.channel.lone import LoneChannel
from musterpoint.core.channel.peers import Report
from musterpoint.tools.check.bandwidth import _Child, _Leader, _State
from musterpoint.tools.check.joint_steps import JointSteps
from musterpoint.tools.check.records import to_json

HOSTS = ("a", "b", "c")
GOOD = _State(7000, 2, backend="gloo")


def leader(loop: Loop, hosts: tuple[str, ...] = HOSTS) -> tuple[_Leader, JointSteps]:
    joint = JointSteps(loop, LoneChannel(loop), hosts[0])
    return _Leader(hosts, joint), joint


def decided(leading: _Leader, **states: _State) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(
        leading.decide({host: Report(json.dumps(to_json(state)), 0.0) for host, state in states.items()})
    )
    return found


def test_pairs_are_measured_until_enough_is_known(loop: Loop) -> None:
    leading, _ = leader(loop, ("a", "b"))
    first = decided(leading, a=GOOD, b=GOOD._replace(port=7001, ranks=4))
    assert (first["pairs"], first["hosts"], first["ports"], first["ranks"]) == (
        [["a", "b"]],
        ["a", "b"],
        [7000, 7001],
        [2, 4],
    )
    fast = GOOD._replace(all_reduce=2.0, broadcast=3.0, latency=1e-4)
    last = decided(leading, a=fast, b=GOOD._replace(ranks=4))
    assert last["pairs"] == []
    (measured,) = last["measured"]
    assert (measured["ranks"], measured["all_reduce"], measured["error"]) == (6, 2.0, "")


def test_an_error_of_either_host_is_the_pairs(loop: Loop) -> None:
    leading, joint = leader(loop, ("a", "b"))
    decided(leading, a=GOOD, b=GOOD)
    joint.lost["b"] = "gone"
    (measured,) = decided(leading, a=GOOD._replace(error="timed out"))["measured"]
    assert measured["error"] == "b was lost; timed out; it sent no report in time" and measured["all_reduce"] == 0


def test_a_host_that_says_nothing_of_its_result_has_failed(loop: Loop) -> None:
    leading, _ = leader(loop, ("a", "b"))
    decided(leading, a=GOOD, b=GOOD)
    assert decided(leading, a=GOOD, b=GOOD)["measured"][0]["error"] == "no result"


def test_a_host_without_torch_is_left_out_and_named(loop: Loop) -> None:
    leading, _ = leader(loop)
    answer = decided(leading, a=GOOD, b=_State(failed="ModuleNotFoundError: No module named 'torch'"), c=GOOD)
    assert answer["pairs"] == [["a", "c"]]
    assert [(each.code, each.severity, each.host) for each in leading.unable] == [("bandwidth-unmeasured", "fail", "b")]


def test_without_torch_on_any_host_nothing_is_measured(loop: Loop) -> None:
    leading, _ = leader(loop)
    nothing = _State(failed="ModuleNotFoundError: No module named 'torch'")
    assert decided(leading, a=nothing, b=nothing, c=nothing)["pairs"] == []
    assert [each.severity for each in leading.unable] == ["warn"] * 3


def test_backends_that_differ_measure_nothing(loop: Loop) -> None:
    leading, _ = leader(loop)
    assert decided(leading, a=GOOD, b=GOOD._replace(backend="nccl"), c=GOOD)["pairs"] == []
    assert "a: gloo, b: nccl, c: gloo" in leading.unable[0].found


def test_what_a_rank_says() -> None:
    child = _Child()
    for line in (
        "torch warns of something",
        '{"ready": {"port": 1, "backend": "gloo"}}',
        "[1]",
        '{"done": 3, "error": "x"}',
    ):
        child.on_line(line)
    assert (child.ready, child.answer) == ({"port": 1, "backend": "gloo"}, {"done": 3, "error": "x"})
    child.on_end(-11)
    assert child.failed == "its rank ended with -11: torch warns of something [1]"
