"""Which log rules' lines are missing over all hosts, as histories of their reports; and the same over the channel."""

from __future__ import annotations

from typing import Any

import pytest

from musterpoint.base.position import Position
from musterpoint.core.channel import codec, wire
from musterpoint.core.channel.peers import AllLooked, LookAsked, MissingLine, RuleReport, RuleState
from musterpoint.core.channel.rule_states import MOST_RULES, RuleStates
from musterpoint.core.channel.topics.quiet_hosts import WhoIsQuiet

HERE, THERE = Position(0, "place", "is in f at t.py:7"), Position(1, "place", "is in g at t.py:9")


def says(host: str, state: RuleState, *ranks: int, line: str = "", rule: str = "r") -> tuple[str, RuleReport]:
    return host, RuleReport(rule, state, ranks, line)


LATE, OVERDUE = MissingLine("r", "late"), MissingLine("r", "overdue")


@pytest.mark.parametrize(
    ("steps", "missing"),
    [
        ([says("a", "late")], []),
        ([says("a", "late"), says("b", "late")], [LATE]),
        ([says("a", "late"), says("c", "late")], []),  # c is no host of the group
        ([says("a", "fresh"), says("b", "late")], []),
        ([says("a", "late"), "b"], [LATE]),  # the other host's ranks have ended
        ([says("b", "fresh"), says("a", "late"), "b"], []),  # it came, if only there
        ([says("b", "off"), says("a", "late"), "b"], []),
        ([says("a", "fresh"), says("a", "overdue")], [OVERDUE]),
        ([says("a", "fresh"), says("b", "fresh"), says("a", "overdue")], []),
        ([says("a", "fresh"), says("b", "fresh"), says("a", "overdue"), says("b", "overdue")], [OVERDUE]),
        ([says("a", "fresh"), says("b", "fresh"), says("a", "overdue"), "b"], [OVERDUE]),
        ([says("a", "overdue"), says("b", "late"), says("a", "overdue")], [OVERDUE]),  # said once
        ([says("a", "overdue"), says("a", "fresh"), says("a", "overdue")], [OVERDUE, OVERDUE]),
        ([says("a", "overdue"), says("b", "off")], [OVERDUE]),
        ([says("a", "late", 0, 2, line="x")], [MissingLine("r", "late", (0, 2), "x")]),
        ([says("a", "overdue", 2), says("b", "overdue", 5)], [MissingLine("r", "overdue", (2,))]),
        ([says("a", "overdue", 2), says("a", "fresh", 2), says("b", "overdue", 5)],
         [MissingLine("r", "overdue", (2,)), MissingLine("r", "overdue", (5,))]),
        ([says("b", "overdue", 5), "b"], [MissingLine("r", "overdue", (5,))]),
    ],
)  # fmt: skip
def test_histories(steps: list[Any], missing: list[MissingLine]) -> None:
    states, found = RuleStates(["a", "b"]), []
    for step in steps:
        found += states.left(step) if isinstance(step, str) else states.report(*step)
    assert found == missing


def test_no_host_reports_about_any_number_of_rules() -> None:
    states = RuleStates(["a"])
    for number in range(MOST_RULES):
        states.report(*says("a", "fresh", rule=str(number)))
    with pytest.raises(wire.WireError, match="more than 256 log rules"):
        states.report(*says("a", "fresh", rule="one more"))


def test_a_look_because_of_a_rule_needs_no_silence_and_waits_for_one_that_is_under_way() -> None:
    hosts = WhoIsQuiet(["a", "b"])
    decisions = [*hosts.quiet("a", True), *hosts.quiet("b", True)]
    decisions += [*hosts.rule_state(*says("a", "overdue")), *hosts.rule_state(*says("a", "overdue", rule="s"))]
    decisions += [*hosts.looked("a", (HERE,)), *hosts.looked("b", (THERE,))]
    decisions += hosts.rule_state(*says("b", "fresh", rule="s"))  # comes in time after all
    decisions += [*hosts.looked("a", (HERE,)), *hosts.looked("b", None)]
    assert decisions == [LookAsked(), AllLooked((HERE, THERE)), LookAsked("r"), AllLooked(None, OVERDUE)]
    decisions = [*hosts.rule_state(*says("b", "overdue", rule="s")), *hosts.rule_state(*says("a", "fresh", rule="s"))]
    decisions += [*hosts.looked("a", (HERE,)), *hosts.looked("b", (THERE,))]
    assert decisions == [LookAsked("s"), AllLooked((HERE, THERE))]


def test_a_line_that_no_host_prints_makes_all_look(start: Any) -> None:
    leader, other = start(1, 2), start(2, 2)
    leader.gathered(), other.gathered()
    leader.say("rule_state", RuleReport("r", "late"))
    other.say("rule_state", RuleReport("r", "late"))
    for host, found in ((leader, HERE), (other, THERE)):
        assert host.event(LookAsked) == LookAsked("r")
        host.say("looked", (found,))
    looked = leader.event(AllLooked)
    assert (sorted(looked.positions), looked.missing) == ([HERE, THERE], LATE)


@pytest.mark.parametrize(
    "report",
    [1, ["r", "late", []], ["r", "soon", [], ""], ["r", "late", [-1], ""], ["r", "late", [], 1],
     ["r", ["late"], [], ""], ["r" * 999, "late", [], ""]],
)  # fmt: skip
def test_a_wrong_report_is_none(report: Any) -> None:
    with pytest.raises(wire.WireError):
        codec.unpack(RuleReport, dict(zip(RuleReport._fields, report)) if isinstance(report, list) else {})
