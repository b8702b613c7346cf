"""The leader's end of the channel: who is lost, who only leaves, and whose failure it was."""

from __future__ import annotations

import time
from typing import Any, Callable

import pytest

from musterpoint.base import exit_codes
from musterpoint.base.failure import Failure, Secondary, lost_host
from musterpoint.core.channel import wire
from musterpoint.core.channel.peers import (
    AllDone,
    GroupEnded,
    JobFailed,
    PeerBack,
    PeerLost,
    StartAsked,
    Started,
    StartEnded,
    StillRunning,
    StopAll,
)

from ...meeting import EVER, OFFER, SHORT_CUT, SHORT_SILENCE, TIMEOUTS, UNHURRIED, Arrived, all_done, gathered

Start = Callable[..., Any]
BOOM = Failure("algo-3", 7, "user", "user", "ValueError: boom")
RESET = Failure("algo-1", 1, "user", "peer", "connection reset by peer")


def test_a_host_that_is_gone_is_lost_for_everybody(start: Start, cable: Any) -> None:
    leader, _gone, other = gathered(start, 3, cable, timeouts=SHORT_CUT)
    cable.pull()
    for host in (leader, other):
        lost = host.event(PeerLost)
        assert lost.host == "algo-2"
        assert "its connection was closed and it did not come back within 0.5 s" in lost.why
        assert not host.has(JobFailed)


def test_a_worker_that_fails_for_a_lost_host_names_that_one(start: Start, cable: Any) -> None:
    """In the leader's words: of hosts that are here, and in words of its own, it can say nothing."""
    leader, _gone, other = gathered(start, 3, cable, timeouts=SHORT_CUT)
    cable.pull()
    lost = leader.event(PeerLost)
    other.event(PeerLost)
    other.say("failed", lost_host("algo-2", "or so they say"))
    for host in (leader, other):
        failure = host.event(JobFailed).failure
        assert (failure.host, failure.cause, failure.code) == ("algo-2", "host", exit_codes.HOST_LOST)
        assert failure.reason == f"muster: host algo-2 was lost: {lost.why}"


def test_a_worker_cannot_give_up_a_host_that_is_here(start: Start, cable: Any) -> None:
    leader, _here, other = gathered(start, 3, cable)
    other.say("failed", lost_host("algo-2", "or so they say"))
    assert leader.event(JobFailed).failure.host == "algo-3"


def test_a_job_that_bears_the_loss_goes_on_and_ends(start: Start, cable: Any) -> None:
    leader, _gone, other = gathered(start, 3, cable, timeouts=SHORT_CUT)
    cable.pull()
    leader.event(PeerLost)
    all_done((leader, other))
    for host in (leader, other):
        assert [type(event) for event in host.events] == [PeerLost, GroupEnded, AllDone]


def test_a_symptom_waits_for_the_fate_of_who_is_cut_off(start: Start, cable: Any) -> None:
    leader, _gone, other = gathered(start, 3, cable, timeouts=UNHURRIED)
    cable.pull()
    other.say("failed", RESET._replace(host="algo-3"))
    leader.say("failed", RESET)
    for host in (leader, other):
        verdict = host.event(JobFailed)
        assert (verdict.failure.host, verdict.failure.code) == ("algo-2", exit_codes.HOST_LOST)
        assert verdict.secondary.lost == 2


def test_only_the_first_failure_is_announced(start: Start, cable: Any) -> None:
    hosts = gathered(start, 3, cable)
    for host in hosts:
        host.say("failed", BOOM._replace(host=host.me))
    verdicts = {host.event(JobFailed).failure.host for host in hosts}
    assert len(verdicts) == 1
    all_done(hosts, 7)
    for host in hosts:
        assert [type(event) for event in host.events] == [JobFailed, GroupEnded, AllDone]


def test_who_is_done_learns_who_still_runs(start: Start, cable: Any) -> None:
    leader, done, other = gathered(start, 3, cable)
    done.say("done", 0)
    for host in (leader, done, other):
        host.say("arrive", "heard")
    leader.event(Arrived)
    done.say("ask_running")
    assert done.event(StillRunning) == StillRunning((leader.me, other.me))
    leader.say("done", 0)
    leader.say("ask_running")
    assert leader.event(StillRunning) == StillRunning((other.me,))


def test_a_rank_that_others_had_left_says_so(start: Start, cable: Any) -> None:
    """Nobody tells of a cause, and the hosts of all other ranks are done with 0."""
    leader, done, left = gathered(start, 3, cable)
    for host in (leader, done):
        host.say("done", 0)
    left.say("failed", RESET._replace(host=left.me, rank=5, local_rank=1, ended=(4,)))
    for host in (leader, done, left):
        told = host.event(JobFailed).failure
        assert "ranks 0–4 had ended with 0; rank 5 was still running" in told.reason
        assert told.kind == "user"


def test_who_was_done_is_not_lost(start: Start, cable: Any) -> None:
    leader, done, other = gathered(start, 3, cable, timeouts=SHORT_CUT)
    done.say("done", 0)
    for host in (leader, done, other):
        host.say("arrive", "heard")
    leader.event(Arrived)
    leader.say("done", 0)
    cable.pull()
    done.event(AllDone)
    other.say("done", 0)
    for host in (leader, other):
        host.event(AllDone)
        assert not host.has(PeerLost)


def test_who_leaves_before_it_is_done_is_lost(start: Start, cable: Any) -> None:
    leader, early, other = gathered(start, 3, cable)
    early.leave()
    assert leader.event(PeerLost) == other.event(PeerLost) == PeerLost("algo-2", "it left before its ranks were done")


def test_a_loss_after_the_stop_is_no_news(start: Start, cable: Any) -> None:
    leader, _gone, other = gathered(start, 3, cable, timeouts=SHORT_CUT)
    leader.say("stopping", 15)
    assert other.event(StopAll) == StopAll("algo-1", 15)
    cable.pull()
    all_done((leader, other), 143)
    for host in (leader, other):
        assert not host.has(PeerLost)


def test_a_start_request_and_its_answers(start: Start, cable: Any) -> None:
    leader, *workers = gathered(start, 3, cable)
    words = ("orted", "-mca", "ess", '"env"', "a b\n$(c) \u00e9 \udcff", "")
    for number, worker in enumerate(workers):
        leader.say("start", worker.me, number, (*words, worker.me))
    for number, worker in enumerate(workers):
        assert worker.event(StartAsked) == StartAsked(number, (*words, worker.me))
        worker.say("started", number)
        worker.say("start_ended", number, -15, f"ended on {worker.me}")
    for number, worker in enumerate(workers):
        expected = [Started(worker.me, number), StartEnded(worker.me, number, -15, f"ended on {worker.me}")]
        heard = lambda host=worker.me: [event for event in leader.heard(Started, StartEnded) if event.host == host]  # noqa: E731
        leader.wait(lambda heard=heard: len(heard()) == 2)
        assert heard() == expected
        assert len(worker.events) == 1


def test_the_verdict_on_a_lost_host_comes_before_the_ends_of_its_daemons(start: Start, cable: Any) -> None:
    leader, gone, _other = gathered(start, 3, cable, timeouts=SHORT_CUT._replace(hold=EVER))
    leader.say("start", "algo-2", 1, ("orted",))
    gone.event(StartAsked)
    leader.say("failed", RESET)
    cable.pull()
    ended = leader.event(StartEnded)
    assert (ended.host, ended.number, ended.status) == ("algo-2", 1, 255)
    assert [type(event) for event in leader.events] == [JobFailed, StartEnded]


@pytest.mark.parametrize("done", [False, True])
def test_what_a_host_that_leaves_was_asked_to_start_has_ended(start: Start, cable: Any, done: bool) -> None:
    leader, early, _other = gathered(start, 3, cable)
    leader.say("start", "algo-2", 1, ("orted",))
    early.event(StartAsked)
    if done:
        early.say("done", 0)
    early.leave()
    how = "has left" if done else "was lost: it left before its ranks were done"
    assert leader.event(StartEnded) == StartEnded("algo-2", 1, 255, f"host algo-2 {how}")
    assert leader.has(PeerLost) != done


BAD = {
    "a start": wire.pack("startasked", number=1, words=["sh", "-c", "id"]),
    "started by nobody's wish": wire.pack("daemonruns", number=1),
    "ended by nobody's wish": wire.pack("daemonended", number=1, status=0, said=""),
    "an answer in another's name": wire.pack("daemonruns", number=3),
    "a status too high": wire.pack("daemonended", number=2, status=256, said=""),
    "too many words": wire.pack("daemonended", number=2, status=0, said="x" * 8193),
}


@pytest.mark.parametrize("said", BAD.values(), ids=BAD)
def test_what_a_worker_may_not_say_reaches_nobody_and_the_session_goes_on(
    start: Start, cable: Any, said: bytes
) -> None:
    leader, bad, other = gathered(start, 3, cable)
    leader.say("start", "algo-2", 2, ("orted",))
    leader.say("start", "algo-3", 3, ("orted",))
    for worker in (bad, other):
        worker.event(StartAsked)
    bad.ask(lambda peers: peers._post(said))
    leader.event(PeerBack)
    assert not leader.heard(Started, StartEnded)
    assert len(other.events) == 1
    for worker, number in ((bad, 2), (other, 3)):
        worker.say("start_ended", number, 0)
    leader.wait(lambda: len(leader.heard(StartEnded)) == 2)
    assert {event.host: event.number for event in leader.heard(StartEnded)} == {"algo-2": 2, "algo-3": 3}


def test_who_falls_silent_alone_is_named(start: Start, cable: Any) -> None:
    leader, _mute, other = gathered(start, 3, cable, timeouts=SHORT_SILENCE, silence_timeout=EVER)
    cable.freeze()
    leader.say("failed", RESET)
    for host in (leader, other):
        failure = host.event(JobFailed).failure
        assert failure.host == "algo-2"
        assert "nothing was heard of it for 0.8 s, while algo-3 went on answering" in failure.reason


def test_the_failures_of_all_hosts_are_counted_by_kind(start: Start) -> None:
    leader, worker = gathered(start, 2)
    leader.say("done", 7, Secondary(1, 2, 3))
    worker.say("done", 7, Secondary(1, 0, 1))
    for host in (leader, worker):
        assert host.event(AllDone) == AllDone(Secondary(2, 2, 4))


def test_a_symptom_waits_for_a_host_whose_program_may_still_be_ending(start: Start) -> None:
    offer = OFFER._replace(launcher="script", independent=True)
    leader, worker = gathered(start, 2, offer=offer)
    leader.say("failed", RESET)
    time.sleep(5 * TIMEOUTS.hold)
    assert not leader.has(JobFailed)
    worker.say("failed", BOOM._replace(host="algo-2"))
    for host in (leader, worker):
        assert host.event(JobFailed) == JobFailed(BOOM._replace(host="algo-2"), Secondary(lost=1))
