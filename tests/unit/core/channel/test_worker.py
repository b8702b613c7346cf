"""A worker whose connection to the leader breaks, freezes, or goes for good."""

from __future__ import annotations

import time
from typing import Any, Callable

import pytest

from musterpoint.base import exit_codes
from musterpoint.base.failure import Failure, Secondary
from musterpoint.core.channel import wire
from musterpoint.core.channel.peers import (
    AllDone,
    GroupEnded,
    JobFailed,
    PeerBack,
    PeerLost,
    PeerSilent,
    StartAsked,
    StartEnded,
    StopAll,
)
from musterpoint.core.channel.topics.ended_groups import MOST_GROUPS

from ...meeting import EVER, SHORT_CUT, SHORT_SILENCE, TIMEOUTS, Arrived, gathered, spoken

Start = Callable[..., Any]
BOOM = Failure("algo-2", 7, "user", "user", "ValueError: boom")
RESET = Failure("algo-2", 1, "user", "peer", "connection reset by peer")


def test_a_connection_that_breaks_is_made_again_and_nothing_is_lost_or_doubled(start: Start, cable: Any) -> None:
    leader, worker = gathered(start, 2, cable)
    for round_ in range(5):
        cable.snap()
        for host in (leader, worker):
            host.say("arrive", f"before-{round_}")
        cable.snap()
        for host in (worker, leader):
            host.say("arrive", f"after-{round_}")
    expected = [Arrived(f"{when}-{round_}") for round_ in range(5) for when in ("before", "after")]
    for host in (leader, worker):
        host.wait(lambda host=host: len(host.heard(Arrived)) >= 10)
        assert host.heard(Arrived) == expected
        assert not host.has(PeerLost)
        assert host.has(PeerBack)


def test_silence_is_told_and_survived(start: Start, cable: Any) -> None:
    leader, worker = gathered(start, 2, cable, timeouts=SHORT_SILENCE)
    cable.freeze()
    assert worker.event(PeerSilent).host == "algo-1"
    assert leader.event(PeerSilent).host == "algo-2"
    worker.say("arrive", "x")
    leader.say("arrive", "x")
    cable.plug()
    for host in (leader, worker):
        host.event(PeerBack)
        host.event(Arrived)
        assert not host.has(PeerLost)


def test_a_leader_that_refuses_is_lost_and_the_worker_goes_on_alone(start: Start, cable: Any) -> None:
    _leader, worker = gathered(start, 2, cable, timeouts=SHORT_CUT)
    worker.say("arrive", "x")
    cable.pull()
    lost = worker.event(PeerLost)
    assert lost.host == "algo-1"
    assert "nobody has answered there" in lost.why
    worker.event(Arrived)
    worker.say("failed", BOOM)
    assert worker.event(JobFailed) == JobFailed(BOOM)
    worker.say("done", 7)
    worker.event(AllDone)


def test_a_symptom_becomes_the_loss_of_the_leader(start: Start, cable: Any) -> None:
    _leader, worker = gathered(start, 2, cable, timeouts=SHORT_CUT)
    cable.freeze()
    worker.say("failed", RESET)
    cable.pull()
    verdict = worker.event(JobFailed)
    assert (verdict.failure.host, verdict.failure.code) == ("algo-1", exit_codes.HOST_LOST)
    assert verdict.failure.reason.startswith("muster: host algo-1 was lost: ")
    assert not worker.has(PeerLost)


def test_a_cause_stays_the_cause_without_the_leader(start: Start, cable: Any) -> None:
    _leader, worker = gathered(start, 2, cable, timeouts=SHORT_CUT)
    cable.freeze()
    worker.say("failed", RESET)
    worker.say("failed", BOOM)
    cable.pull()
    assert worker.event(JobFailed) == JobFailed(BOOM, Secondary(lost=1))


@pytest.mark.parametrize("still", ["leader", "worker"])
def test_a_failure_right_after_a_standstill_of_a_host_is_no_silence_of_the_other(start: Start, still: str) -> None:
    failure = RESET if still == "worker" else BOOM._replace(host="algo-1")
    short = {still: {"timeouts": TIMEOUTS._replace(silence=2.0)}}
    hosts = {name: start(place, 2, **short.get(name, {})) for place, name in ((1, "leader"), (2, "worker"))}
    for host in hosts.values():
        host.gathered()

    def stand_still(peers: Any) -> None:
        time.sleep(3.0)
        peers.failed(failure)

    hosts[still].ask(stand_still)
    for host in hosts.values():
        assert host.event(JobFailed).failure == failure
        host.say("done", 1)
    for host in hosts.values():
        host.event(AllDone)
        assert "connection-ended" not in host.moments


def test_who_is_done_minds_a_leader_that_ends_without_a_word(start: Start, cable: Any) -> None:
    _leader, worker = gathered(start, 2, cable, timeouts=SHORT_CUT)
    worker.say("done", 0)
    cable.pull()
    assert worker.event(PeerLost).host == "algo-1"
    worker.event(AllDone)


def test_a_leader_that_leaves_without_a_verdict_is_lost(start: Start, cable: Any) -> None:
    leader, worker = gathered(start, 2, cable)
    leader.leave()
    assert worker.event(PeerLost).why == "it left before the job was over"


def test_a_worker_that_was_given_up_learns_the_verdict_when_it_is_back(start: Start, cable: Any) -> None:
    leader, worker = gathered(start, 2, cable, timeouts=SHORT_SILENCE, silence_timeout=EVER)
    cable.freeze()
    leader.event(PeerSilent)
    symptom = RESET._replace(host="algo-1")
    leader.say("failed", symptom)
    verdict = leader.event(JobFailed)
    assert (verdict.failure.host, verdict.failure.code) == ("algo-2", exit_codes.HOST_LOST)
    cable.plug()
    assert worker.event(JobFailed).failure == verdict.failure


def test_a_start_request_waits_for_a_listener(start: Start, cable: Any) -> None:
    leader, worker = gathered(start, 2, cable, listens=False)
    leader.say("start", "algo-2", 1, ("orted",))
    leader.say("arrive", "x")
    worker.say("arrive", "x")
    worker.ask(lambda peers: None)
    assert worker.events == []
    worker.listen()
    assert worker.event(StartAsked) == StartAsked(1, ("orted",))
    worker.say("start_ended", 1, 0)
    worker.event(Arrived)
    leader.listen()
    assert leader.event(StartEnded) == StartEnded("algo-2", 1, 0)


def test_a_worker_asks_nobody(start: Start, cable: Any) -> None:
    leader, worker = gathered(start, 2, cable)
    for host in ("algo-1", "algo-2", "algo-9"):
        error = worker.ask(lambda peers, host=host: spoken(peers).start(host, 1, ("orted",)))
        assert isinstance(error, RuntimeError)
    leader.say("arrive", "x")
    worker.say("arrive", "x")
    leader.event(Arrived)
    assert len(leader.events) == 1


def test_answers_without_a_leader_go_nowhere(start: Start, cable: Any) -> None:
    leader, worker = gathered(start, 2, cable)
    leader.say("start", "algo-2", 1, ("orted",))
    worker.event(StartAsked)
    leader.leave()
    worker.event(PeerLost)
    assert worker.ask(lambda peers: spoken(peers).started(1)) is None
    assert worker.ask(lambda peers: spoken(peers).start_ended(1, 0)) is None


BAD = {
    "an answer": wire.pack("daemonruns", number=1),
    "no words": wire.pack("startasked", number=1, words=[]),
    "a number below 0": wire.pack("startasked", number=-1, words=["orted"]),
    "too many words": wire.pack("startasked", number=1, words=["x"] * 4097),
    "words that are numbers": wire.pack("startasked", number=1, words=["orted", 7]),
    "a word that is no Unicode": wire.pack("startasked", number=1, words=["orted", "\ud800"]),
}


@pytest.mark.parametrize("said", BAD.values(), ids=BAD)
def test_what_a_leader_may_not_say_starts_nothing_and_the_session_goes_on(
    start: Start, cable: Any, said: bytes
) -> None:
    leader, worker = gathered(start, 2, cable)
    leader.ask(lambda peers: peers._members["algo-2"].post(said))
    worker.event(PeerBack)
    leader.say("start", "algo-2", 5, ("orted",))
    assert worker.event(StartAsked) == StartAsked(5, ("orted",))


ONCE = {
    "stop": wire.pack("stop", host="algo-1", signal=15),
    "lost": wire.pack("lost", host="algo-1", why="gone"),
    "alldone": wire.pack("alldone", failures=[0, 0, 0], stopped=False),
    "verdict": wire.pack("verdict", failure=BOOM._asdict(), secondary=[0, 0, 0]),
}


@pytest.mark.parametrize("kind", ONCE)
def test_what_a_leader_repeats_is_heard_once(start: Start, cable: Any, kind: str) -> None:
    """Each would be a line of the log, and a moment of the timeline."""
    leader, worker = gathered(start, 2, cable)
    for _ in range(20):
        leader.ask(lambda peers: peers._members["algo-2"].post(ONCE[kind]))
    worker.event(PeerBack)
    worker.wait(lambda: any(f"a '{kind}' twice" in text for text in worker.said))
    worker.wait(lambda: len(worker.heard(StopAll, PeerLost, AllDone, JobFailed)) == 1)


@pytest.mark.parametrize(("groups", "most"), [(["x"] * 20, 1), ([f"x{n}" for n in range(20)], MOST_GROUPS)])
def test_groups_that_a_leader_makes_up_end_with_its_connection(start: Start, groups: list[str], most: int) -> None:
    leader, worker = gathered(start, 2)
    leader.ask(lambda peers: [peers._members["algo-2"].post(wire.pack("groupended", group=name)) for name in groups])
    for host in (leader, worker):
        host.say("arrive", "behind")
    worker.event(Arrived)
    assert len(worker.heard(GroupEnded)) == most


@pytest.mark.parametrize("limit", ["_MOST_STARTS", "_MOST_WAITING"])
def test_start_requests_without_end_end_with_the_connection(
    start: Start, cable: Any, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    """Each is kept until its daemon has ended, and its answer until the leader has that."""
    data = [wire.pack("startasked", number=number, words=["orted", f"{number:03}"]) for number in range(40)]
    most = {"_MOST_STARTS": 5, "_MOST_WAITING": 5 * (len(data[11]) - wire.HEAD)}
    monkeypatch.setattr(f"musterpoint.core.channel.topics.start_requests.{limit}", most[limit])
    leader, worker = gathered(start, 2, cable)
    leader.ask(lambda peers: [peers._members["algo-2"].post(one) for one in data])
    worker.wait(lambda: any("more start requests than can wait" in text for text in worker.said))
    worker.wait(lambda: len(worker.heard(StartAsked)) == 5)


def test_both_ends_of_a_cut_name_both_in_the_same_words(start: Start, cable: Any) -> None:
    leader, worker = gathered(start, 2, cable, timeouts=SHORT_SILENCE, silence_timeout=EVER)
    cable.freeze()
    leader.say("failed", RESET._replace(host="algo-1"))
    worker.say("failed", RESET)
    verdicts = [host.event(JobFailed).failure for host in (leader, worker)]
    assert [failure.host for failure in verdicts] == ["algo-2", "algo-1"]
    assert len({failure.reason for failure in verdicts}) == 1
    assert verdicts[0].reason.startswith("muster: hosts algo-1 and algo-2 lost each other: ")
