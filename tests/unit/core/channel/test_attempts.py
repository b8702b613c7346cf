"""From one attempt to the next: what hosts say to each other, and what each of them forgets."""

from __future__ import annotations

from typing import Any, Callable

import pytest

from musterpoint.base.failure import Failure
from musterpoint.base.loop import Loop
from musterpoint.core.channel import codec, wire
from musterpoint.core.channel.lone import LoneChannel
from musterpoint.core.channel.peers import AllDone, GroupEnded, JobFailed, PeerLost, StopAll
from musterpoint.core.channel.topics import attempts
from musterpoint.core.channel.topics.attempts import AllReady, NextAttempt, NoRestart, Ready, SeatChange
from musterpoint.core.channel.topics.ended_groups import DISTRIBUTION

from ...meeting import SHORT_CUT, all_done, gathered, spoken

Start = Callable[..., Any]
KILLED = Failure("algo-2", 137, "user", "infra", "killed", 1, 0, 9)
NEXT = NextAttempt(1, 7778, (SeatChange("algo-2", "10.0.0.9", (5000, 5001)),))


@pytest.mark.parametrize(
    "message",
    [Ready("made", (5000,), 2), NEXT, NoRestart(KILLED, "why"), NoRestart(None), NoRestart(None, "", "algo-1", 15)],
)
def test_messages_come_back_as_they_were(message: Any) -> None:
    assert codec.unpack(type(message), wire.unpack(codec.pack(message)[wire.HEAD :])) == message


SEATS = (
    None, 7, [7], [["algo-2"]], [["algo-2", "no address", []]], [["algo-2", "10.0.0.1", [70000]]],
    [[None, "10.0.0.1", []]],
)  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        (Ready, {"progress": "much", "ports": [], "left": 0, "address": ""}),
        (Ready, {"progress": "made", "ports": [0], "left": 0, "address": ""}),
        (Ready, {"progress": "made", "ports": [], "left": -1, "address": ""}),
        (Ready, {"progress": "made", "ports": [], "left": 0, "address": "10.0.0.66"}),
        (NextAttempt, {"number": 0, "master_port": 1, "seats": []}),
        (NextAttempt, {"number": 1, "master_port": 0, "seats": []}),
        *((NextAttempt, {"number": 1, "master_port": 1, "seats": bad}) for bad in SEATS),
        (NoRestart, {"failure": {}, "why": "", "stopped_by": "", "signal": 0}),
        (NoRestart, {"failure": None, "why": 7, "stopped_by": "", "signal": 0}),
    ],
)
def test_what_no_host_says_is_refused(kind: type[Any], fields: dict[str, Any]) -> None:
    with pytest.raises(wire.WireError):
        codec.unpack(kind, fields)


@pytest.mark.parametrize("end", [NEXT._replace(seats=(SeatChange("algo-9", "10.0.0.1"),)), NoRestart(None, "", "a", 9)])
def test_what_a_leader_may_not_say_between_attempts(start: Start, end: Any) -> None:
    leader, worker = gathered(start, 2)
    end_attempt(leader, worker)
    leader.event(AllReady)
    leader.ask(lambda peers: peers.broadcast(end))
    worker.wait(lambda: "protocol-broken" in worker.moments)
    assert not worker.heard(NextAttempt, NoRestart)


def end_attempt(*hosts: Any) -> None:
    all_done(hosts, 137)
    for host in hosts:
        assert host.heard(GroupEnded) == [GroupEnded(DISTRIBUTION)]
        host.events.clear()
        host.say("ready", Ready())


def test_a_second_attempt_is_as_new_as_the_first(start: Start) -> None:
    leader, worker = gathered(start, 2)
    for number in (1, 2, 3):
        worker.say("failed", KILLED)
        for host in (leader, worker):
            assert host.event(JobFailed).failure == KILLED
        end_attempt(leader, worker)
        assert leader.event(AllReady) == AllReady({"algo-1": Ready(), "algo-2": Ready()})
        leader.say("restart", NEXT._replace(number=number))
        for host in (leader, worker):
            assert host.event(NextAttempt).number == number
            host.events.clear()
    worker.say("stopping", 15)
    assert leader.event(StopAll) == StopAll("algo-2", 15)


def test_all_hosts_end_with_what_the_leader_says(start: Start) -> None:
    leader, worker = gathered(start, 2)
    end_attempt(leader, worker)
    leader.event(AllReady)
    end = NoRestart(KILLED, "enough")
    leader.say("end_attempts", end)
    assert leader.event(NoRestart) == worker.event(NoRestart) == end


def test_an_end_that_comes_before_a_host_is_ready_waits_for_it(start: Start) -> None:
    leader, worker = gathered(start, 2)
    worker.say("done", 1)
    leader.say("done", 1)
    worker.event(AllDone)
    leader.say("end_attempts", NoRestart(None, "late"))
    leader.ask(lambda peers: None)
    worker.wait(lambda: worker.ask(lambda peers: peers.topic(attempts.TOPIC)._end))
    assert not worker.has(NoRestart)
    worker.say("ready", Ready())
    assert worker.event(NoRestart).why == "late"


def test_nothing_is_started_again_after_a_stop(start: Start) -> None:
    leader, worker = gathered(start, 2, max_restarts=1)
    end_attempt(leader, worker)
    leader.event(AllReady)
    worker.say("stopping", 15)
    leader.event(StopAll)
    assert leader.ask(lambda peers: spoken(peers).restart(NEXT)) is False
    assert not leader.has(NextAttempt)


def test_a_host_lost_meanwhile_is_gone_and_one_that_says_goodbye_has_left(start: Start, cable: Any) -> None:
    hosts = leader, lost, leaves = gathered(start, 3, cable, timeouts=SHORT_CUT)
    end_attempt(*hosts)
    leader.event(AllReady)
    leader.events.clear()
    cable.pull()
    assert leader.event(AllReady) == AllReady({"algo-1": Ready(), "algo-3": Ready()}, ("algo-2",))
    assert lost.event(NoRestart).why.startswith("algo-1, the leader, is gone: ")
    leader.events.clear()
    leaves.leave()
    assert leader.event(AllReady) == AllReady({"algo-1": Ready()}, ("algo-2",), ("algo-3",))


def test_a_host_whose_leader_was_lost_before_has_no_other_attempt(start: Start, cable: Any) -> None:
    _leader, worker = gathered(start, 2, cable, timeouts=SHORT_CUT)
    cable.pull()
    worker.event(PeerLost)
    worker.say("done", 76)
    worker.say("ready", Ready())
    assert worker.event(NoRestart).failure is None


def test_events_are_kept_while_nobody_listens() -> None:
    loop = Loop()
    peers = LoneChannel(loop)
    seen: list[Any] = []

    def first(event: Any) -> None:
        seen.append(event)
        peers.hold()

    peers.listen(first)
    spoken(peers).ready(Ready())
    spoken(peers).restart(NEXT)
    loop.turn()
    assert seen == [AllReady({"": Ready()})]
    peers.listen(seen.append)
    loop.turn()
    assert seen[1:] == [NEXT]
    peers.close()
    loop.close()
