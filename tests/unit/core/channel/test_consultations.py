"""Questions to the leader: pure, then between a leader and workers."""

from __future__ import annotations

import time
from typing import Any, Callable

import pytest

from musterpoint.core.channel import wire
from musterpoint.core.channel.peers import PeerLost, Report
from musterpoint.core.channel.topics.consultations import MOST_TEXT, Answer, Answered, Ask, Questions

from ...meeting import SHORT_CUT, gathered, spoken


def joined(reports: dict[str, Report]) -> Answer:
    point = next(iter(reports.values())).said.point
    return Answer(point, ",".join(f"{host}={report.said.text}" for host, report in sorted(reports.items())))


def ignore(_answer: Answer | None) -> None:
    pass


def said(point: str, text: str) -> Report:
    return Report(Ask(point, text), 0.0)


def test_the_leader_decides_when_all_have_reported() -> None:
    leader = Questions("a", ("b", "c"))
    assert leader.report("b", said("x", "2")) == []
    assert leader.ask(said("x", "1"), joined, ignore) == []
    assert leader.report("c", said("x", "3")) == [Answered(Answer("x", "a=1,b=2,c=3"), ("b", "c"), ignore)]


def test_who_left_is_not_waited_for_and_who_is_late_gets_the_answer() -> None:
    leader = Questions("a", ("b", "c", "d"))
    leader.ask(said("x", "1"), joined, ignore)
    leader.report("b", said("x", "2"))
    assert leader.left("c") == []
    assert leader.expire("x") == [Answered(Answer("x", "a=1,b=2"), ("b",), ignore)]
    assert leader.expire("x") == [] and leader.expire("y") == []
    assert leader.report("d", said("x", "4")) == [Answered(Answer("x", "a=1,b=2"), ("d",), None)]
    assert leader.ask(said("y", "1"), joined, ignore) == [], "who has reported at last is waited for again"
    with pytest.raises(wire.WireError, match="two reports"):
        leader.report("d", said("x", "4"))


def test_who_was_late_is_not_waited_for_until_it_reports() -> None:
    leader = Questions("a", ("b", "c"))
    leader.ask(said("x", "1"), joined, ignore)
    leader.report("b", said("x", "2"))
    leader.expire("x")
    leader.ask(said("y", "1"), joined, ignore)
    assert leader.report("b", said("y", "2")) == [Answered(Answer("y", "a=1,b=2"), ("b",), ignore)]
    assert leader.report("c", said("x", "3")) == [Answered(Answer("x", "a=1,b=2"), ("c",), None)]


def test_a_host_that_leaves_may_be_the_last_one() -> None:
    leader = Questions("a", ("b",))
    leader.ask(said("x", "1"), joined, ignore)
    assert leader.left("b") == [Answered(Answer("x", "a=1"), (), ignore)]


def test_in_the_next_attempt_all_are_asked_again_and_a_new_host_is_told_what_was_decided() -> None:
    leader = Questions("a", ("b", "c"))
    leader.ask(said("x", "1"), joined, ignore)
    leader.report("b", said("x", "2"))
    leader.report("c", said("x", "3"))
    leader.gone("c")
    for host in ("b", "c"):  # their ranks have ended
        leader.left(host)
    leader.begin(("b", "c"))
    assert leader.report("c", said("x", "")) == [Answered(Answer("x", "a=1,b=2,c=3"), ("c",), None)]
    assert leader.ask(said("y", "1"), joined, ignore) == []
    assert leader.report("b", said("y", "2")) == []
    assert leader.report("c", said("y", "3")) == [Answered(Answer("y", "a=1,b=2,c=3"), ("b", "c"), ignore)]


@pytest.mark.parametrize(
    "bad",
    [
        Ask("x" * 65, "0"),
        Ask("x", "9" * (MOST_TEXT + 1)),
        *(Ask("x", text) for text in ("", "no json", "[" * 9000, "1" * 400, '"\\ud800"', "1e999")),
    ],
)
def test_what_the_leader_would_refuse_is_not_sent(start: Callable[..., Any], bad: Ask) -> None:
    _leader, worker = gathered(start, 2)
    assert isinstance(worker.ask(lambda peers: spoken(peers).consult(bad, joined, ignore, 1.0)), ValueError)


def test_a_host_cannot_report_at_ever_more_points() -> None:
    leader = Questions("a", ("b", "c"))
    with pytest.raises(wire.WireError, match="more points"):
        for number in range(100):
            leader.report("b", said(str(number), "0"))


def wait_for(done: Callable[[], object]) -> None:
    until = time.monotonic() + 500
    while not done() and time.monotonic() < until:
        time.sleep(0.01)


def consult(host: Any, answers: list[str | None]) -> None:
    def answered(answer: Answer | None) -> None:
        answers.append(None if answer is None else answer.text)

    host.say("consult", Ask("x", host.me[-1]), joined, answered, 60.0)


def test_every_host_gets_the_leaders_answer(start: Callable[..., Any]) -> None:
    hosts = gathered(start, 3)
    answers: list[list[str | None]] = [[], [], []]
    for host, got in zip(hosts, answers, strict=True):
        consult(host, got)
    wait_for(lambda: all(answers))
    assert answers == [["algo-1=1,algo-2=2,algo-3=3"]] * 3


def test_a_lost_host_is_not_waited_for(start: Callable[..., Any], cable: Any) -> None:
    leader, _gone, other = gathered(start, 3, cable, timeouts=SHORT_CUT)
    answers: list[list[str | None]] = [[], []]
    consult(leader, answers[0])
    consult(other, answers[1])
    cable.pull()
    for host in (leader, other):
        host.event(PeerLost)
    wait_for(lambda: all(answers))
    assert answers == [["algo-1=1,algo-3=3"]] * 2


def test_a_worker_that_loses_its_leader_gets_no_answer(start: Callable[..., Any], cable: Any) -> None:
    _leader, worker = gathered(start, 2, cable, timeouts=SHORT_CUT)
    answers: list[str | None] = []
    consult(worker, answers)
    cable.pull()
    worker.event(PeerLost)
    wait_for(lambda: answers)
    assert answers == [None]
