"""Hosts that the platform starts anew while the job runs: who gets the seat, and what it hears."""

from __future__ import annotations

import socket
from typing import Any, Callable

import pytest

from musterpoint.base.errors import RollCallError, StoppedEarly
from musterpoint.core.channel import wire
from musterpoint.core.channel.peers import AllDone, PeerBack, PeerLost, StopAll
from musterpoint.core.channel.topics.attempts import AllReady, NextAttempt, NoRestart, Ready, SeatChange
from musterpoint.core.rollcall.hello import Hello
from musterpoint.core.rollcall.roster import Offer

from ...meeting import EVER, OFFER, SHORT_CUT, TIMEOUTS, all_done, gathered

Start = Callable[..., Any]
SECRET = "an example of a secret"
OPTIONS = {"timeouts": SHORT_CUT._replace(sign_of_life=0.3), "max_restarts": 3}


@pytest.fixture(params=["", SECRET])
def secret(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


def trio(start: Start, cable: Any, **options: Any) -> list[Any]:
    """The leader, a worker behind the cable, and another; the first two attempts' failures are left out."""
    return gathered(start, 3, cable, **{**OPTIONS, **options})


def lose(cable: Any, leader: Any, other: Any) -> None:
    """The worker behind the cable is lost, and the others are ready for another attempt."""
    cable.pull()
    for host in (leader, other):
        host.event(PeerLost)
        host.say("done", 76)
    for host in (leader, other):
        host.event(AllDone)
        host.say("ready", Ready())
    assert leader.event(AllReady).gone == ("algo-2",)
    leader.events.clear()


def anew(start: Start, **options: Any) -> Any:
    return start(2, 3, **{**OPTIONS, **options})


def test_a_host_started_anew_has_its_seat_in_the_next_attempt(start: Start, cable: Any, secret: str) -> None:
    leader, _lost, other = trio(start, cable, secret=secret)
    lose(cable, leader, other)
    again = anew(start, secret=secret, offer=OFFER._replace(ports=(5000,)))
    ready = leader.event(AllReady)
    assert ready == AllReady(
        {"algo-1": Ready(), "algo-2": Ready(ports=(5000,), address="127.0.0.1"), "algo-3": Ready()}
    )
    assert leader.event(PeerBack).host == "algo-2"
    leader.say("restart", NextAttempt(1, 7999, (SeatChange("algo-2", "127.0.0.1", (5000,)),)))
    roster = again.gathered()
    assert (roster.attempt, roster.max_restarts, roster.master_port) == (1, 3, 7999)
    assert roster.seat.ports == (5000,)
    assert roster.session == leader.gathered().session
    other.event(NextAttempt)
    # the new session is one like the others
    for host in (leader, again, other):
        host.events.clear()
    all_done((leader, again, other))


def test_its_own_session_is_over_when_it_does_not_answer(start: Start, cable: Any, secret: str) -> None:
    """The leader has not seen yet that the host is gone."""
    leader, _lost, _other = trio(start, cable, secret=secret)
    cable.freeze()
    anew(start, secret=secret)
    assert leader.event(PeerLost).why == "it was started anew while the job ran"
    assert leader.event(PeerBack).host == "algo-2"


def test_with_proof_nobody_is_asked_who_has_no_connection(start: Start, cable: Any) -> None:
    """Its container was killed a moment ago."""
    leader, _lost, _other = trio(start, cable, secret=SECRET, timeouts=TIMEOUTS._replace(sign_of_life=EVER))
    cable.pull()
    leader.wait(lambda: "connection-ended" in leader.moments)
    anew(start, secret=SECRET)
    assert leader.event(PeerLost).why == "it was started anew while the job ran"
    assert leader.event(PeerBack).host == "algo-2"


def test_a_host_that_answers_keeps_its_seat(start: Start, cable: Any, secret: str) -> None:
    leader, worker, _other = trio(start, cable, secret=secret)
    held = "another process has the seat of this host: an earlier start of algo-2 (127.0.0.1), which answers"
    assert held in str(anew(start, secret=secret).failed())
    assert not leader.has(PeerLost)
    assert worker.events == []


def test_one_that_waits_for_the_next_attempt_keeps_its_seat(start: Start, cable: Any, secret: str) -> None:
    """The platform has started the host anew, and then it is started a second time."""
    leader, _lost, other = trio(start, cable, secret=secret)
    lose(cable, leader, other)
    again = anew(start, secret=secret)
    leader.event(PeerBack)
    assert "another process has the seat of this host" in str(anew(start, secret=secret).failed())
    leader.say("restart", NextAttempt(1, 7999, (SeatChange("algo-2", "127.0.0.1", ()),)))
    assert again.gathered().attempt == 1
    assert not leader.has(PeerLost)


NO_NAME = {"algo-1": ("127.0.0.1",), "algo-2": ("127.9.9.9",), "algo-3": ("127.0.0.1",)}
AT_ONCE = SHORT_CUT._replace(sign_of_life=0.0, mismatch=0.0)


def stranger(port: int) -> socket.socket:
    """A process in the network, at an address that is no host's, that calls itself algo-2."""
    sock = socket.create_connection(("127.0.0.1", port), source_address=("127.0.0.7", 0), timeout=500)
    sock.sendall(Hello("algo-2", OFFER, "stranger", (), "127.0.0.1").pack())
    return sock


def kinds(sock: socket.socket, beats: int) -> list[str]:
    """The kinds of messages until ``beats`` of the leader's beats came, or the end."""
    found: list[str] = []
    frames = wire.Frames(wire.LEADER_LIMIT)
    while found.count("beat") < beats and (data := sock.recv(65536)):
        frames.feed(data)
        while (payload := frames.next()) is not None:
            found.append("beat" if wire.is_beat(payload) else str(wire.unpack(payload)["t"]))
    return found


@pytest.mark.parametrize("lost", [True, False])
def test_a_stranger_gets_no_seat_of_a_running_job_however_long_it_waits(
    start: Start, cable: Any, port: int, lost: bool
) -> None:
    """Not after a host's end, and not while the host is silent."""
    leader, _lost, other = trio(start, cable, timeouts=AT_ONCE)
    if lost:
        lose(cable, leader, other)
    else:
        cable.freeze()
    with stranger(port) as caller:
        assert set(kinds(caller, 3)) == {"wait", "beat"}
        assert not leader.has(PeerBack)
        assert lost or not leader.has(PeerLost)
        if lost:
            anew(start, timeouts=AT_ONCE)
            assert leader.event(PeerBack).host == "algo-2"
            assert kinds(caller, 1000)[-1] == "refused"


def test_a_host_that_was_admitted_with_a_warning_may_return_from_the_address_it_had(start: Start, cable: Any) -> None:
    leader, _lost, other = trio(start, cable, timeouts=AT_ONCE, addresses=NO_NAME)
    assert any("algo-2 calls from 127.0.0.1, but its name resolves to 127.9.9.9" in line for line in leader.said)
    lose(cable, leader, other)
    anew(start, timeouts=AT_ONCE, addresses=NO_NAME)
    assert leader.event(PeerBack).host == "algo-2"


def test_the_world_keeps_its_size(start: Start, cable: Any) -> None:
    leader, _lost, other = trio(start, cable)
    lose(cable, leader, other)
    error = anew(start, offer=Offer("job", "torchrun", 4, "0.1", 4)).failed()
    assert "algo-2 had 2 slots (room for 2) and has 4 (room for 4) now: the job's world keeps its size" in str(error)


@pytest.mark.parametrize("options", [{"max_restarts": 0}, {"rejoin_timeout": 0.0}])
def test_nobody_comes_back_unless_that_was_asked_for(start: Start, cable: Any, options: dict[str, Any]) -> None:
    leader, _lost, other = trio(start, cable, **options)
    lose(cable, leader, other)
    assert "has already started with an earlier start of algo-2" in str(anew(start, **options).failed())


def test_an_end_and_a_stop_reach_who_waits_for_the_next_attempt(start: Start, cable: Any) -> None:
    leader, _lost, other = trio(start, cable)
    lose(cable, leader, other)
    again = anew(start)
    leader.event(PeerBack)
    leader.say("end_attempts", NoRestart(None, "enough"))
    error = again.failed()
    assert isinstance(error, RollCallError)
    assert "algo-1 ended the job: enough" in str(error)
    assert other.event(NoRestart).why == "enough"


@pytest.mark.parametrize("who", ["leader", "newcomer"])
def test_a_stop_while_a_host_waits_for_the_next_attempt(start: Start, cable: Any, who: str) -> None:
    leader, _lost, other = trio(start, cable)
    lose(cable, leader, other)
    again = anew(start)
    leader.event(PeerBack)
    if who == "newcomer":
        again.stop(15)
        assert leader.event(StopAll) == StopAll("algo-2", 15)
    end = NoRestart(None, "", "algo-1", 15)
    leader.say("end_attempts", end)
    error = again.failed()
    assert isinstance(error, StoppedEarly)
    assert error.host == ("algo-1" if who == "leader" else "algo-2")
    assert other.event(NoRestart) == end


def test_one_that_is_lost_again_is_gone_and_may_come_a_second_time(start: Start, cable: Any) -> None:
    leader, _lost, other = trio(start, cable)
    lose(cable, leader, other)
    cable.plug()
    anew(start, port=cable.port)
    leader.event(PeerBack)
    leader.events.clear()
    cable.pull()
    assert leader.event(AllReady).gone == ("algo-2",)
    leader.events.clear()
    anew(start)
    assert leader.event(AllReady).gone == ()
