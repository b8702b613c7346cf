"""The leader's end of the channel: who is lost, who only leaves, and whose failure it was."""

from __future__ import annotations

from typing import Any, Callable

from musterpoint import exit_codes
from musterpoint.peers import AllDone, Arrived, Failure, JobFailed, PeerLost, StopAll

Start = Callable[..., Any]
BOOM = Failure("algo-3", 7, "user", "user", "ValueError: boom")
RESET = Failure("algo-1", 1, "user", "peer", "connection reset by peer")


def trio(start: Start, cable: Any, **options: Any) -> tuple[Any, Any, Any]:
    """The leader, a worker behind the cable, and another."""
    hosts = start(1, 3, **options), start(2, 3, port=cable.port, **options), start(3, 3, **options)
    for host in hosts:
        host.mustered()
    return hosts


def test_a_host_that_is_gone_is_lost_for_everybody(start: Start, cable: Any) -> None:
    leader, _gone, other = trio(start, cable)
    cable.pull()
    for host in (leader, other):
        lost = host.event(PeerLost)
        assert lost.host == "algo-2"
        assert "its connection was closed and it did not come back within 0.5 s" in lost.why
        assert not host.has(JobFailed)


def test_a_job_that_bears_the_loss_goes_on_and_ends(start: Start, cable: Any) -> None:
    leader, _gone, other = trio(start, cable)
    cable.pull()
    leader.event(PeerLost)
    for host in (leader, other):
        host.say("arrive", "x")
        host.say("done", 0)
    for host in (leader, other):
        host.event(Arrived)
        host.event(AllDone)


def test_a_symptom_waits_for_the_fate_of_who_is_cut_off(start: Start, cable: Any) -> None:
    leader, _gone, other = trio(start, cable)
    cable.pull()
    other.say("failed", RESET._replace(host="algo-3"))
    leader.say("failed", RESET)
    for host in (leader, other):
        verdict = host.event(JobFailed)
        assert (verdict.failure.host, verdict.failure.code, verdict.secondary) == ("algo-2", exit_codes.HOST_LOST, 2)
        assert verdict.failure.reason.startswith("muster: host algo-2 was lost: ")


def test_a_symptom_told_before_the_silence_is_seen_waits_for_it(start: Start, cable: Any) -> None:
    leader, _mute, other = trio(start, cable)
    cable.freeze()
    other.say("failed", RESET._replace(host="algo-3"))
    for host in (leader, other):
        assert host.event(JobFailed).failure.host == "algo-2"


def test_the_cause_overtakes_the_symptom(start: Start, cable: Any) -> None:
    hosts = trio(start, cable)
    hosts[0].say("failed", RESET)
    hosts[2].say("failed", BOOM)
    for host in hosts:
        assert host.event(JobFailed).failure == BOOM


def test_a_symptom_without_a_cause_is_told_in_the_end(start: Start, cable: Any) -> None:
    hosts = trio(start, cable)
    hosts[0].say("failed", RESET)
    for host in hosts:
        assert host.event(JobFailed) == JobFailed(RESET, 0)


def test_only_the_first_failure_is_announced(start: Start, cable: Any) -> None:
    hosts = trio(start, cable)
    for host in hosts:
        host.say("failed", BOOM._replace(host=host.me))
    verdicts = {host.event(JobFailed).failure.host for host in hosts}
    assert len(verdicts) == 1
    for host in hosts:
        host.say("done", 7)
    for host in hosts:
        host.event(AllDone)
        assert [type(event) for event in host.events] == [JobFailed, AllDone]


def test_who_was_done_is_not_lost(start: Start, cable: Any) -> None:
    leader, done, other = trio(start, cable)
    done.say("done", 0)
    for host in (leader, done, other):
        host.say("arrive", "the leader has heard that by now")
    leader.event(Arrived)
    leader.say("done", 0)
    cable.pull()
    done.event(AllDone)
    other.say("done", 0)
    for host in (leader, other):
        host.event(AllDone)
        assert not host.has(PeerLost)


def test_who_leaves_before_it_is_done_is_lost(start: Start, cable: Any) -> None:
    leader, early, other = trio(start, cable)
    early.leave()
    assert leader.event(PeerLost) == other.event(PeerLost) == PeerLost("algo-2", "it left before its ranks were done")


def test_a_host_started_anew_is_refused_and_the_old_one_lost(start: Start, cable: Any) -> None:
    leader, _old, other = trio(start, cable)
    anew = start(2, 3)
    assert "job has already started with an earlier start of algo-2" in str(anew.failed())
    for host in (leader, other):
        assert host.event(PeerLost).why == "it was started anew while the job ran"


def test_a_loss_after_the_stop_is_no_news(start: Start, cable: Any) -> None:
    leader, _gone, other = trio(start, cable)
    leader.say("stopping", 15)
    assert other.event(StopAll) == StopAll("algo-1", 15)
    cable.pull()
    for host in (leader, other):
        host.say("done", 143)
    for host in (leader, other):
        host.event(AllDone)
        assert not host.has(PeerLost)
