from __future__ import annotations

import pytest

from musterpoint.base.failure import Failure, Secondary
from musterpoint.base.loop import Loop
from musterpoint.core.channel.lone import LoneChannel
from musterpoint.core.channel.peers import AllDone, Arrived, JobFailed, PeerEvent
from musterpoint.core.channel.topics.raised_ranks import RaisedAsked

from ...meeting import spoken


def test_what_a_lone_host_says_comes_back() -> None:
    loop = Loop()
    peers = LoneChannel(loop)
    heard: list[PeerEvent] = []
    peers.listen(heard.append)
    boom, later = (Failure("algo-1", code, "user", "user", "boom") for code in (7, 8))
    spoken(peers).arrive("ready")
    peers.failed(boom)
    peers.failed(later)
    peers.stopping(15)
    peers.done(7)
    loop.turn(0)
    assert heard == [Arrived("ready"), JobFailed(boom), AllDone(stopped=True)]
    loop.close()


def test_a_lone_host_asks_nobody_and_is_asked_by_nobody() -> None:
    loop = Loop()
    peers = LoneChannel(loop)
    with pytest.raises(ValueError, match="'algo-2'"):
        spoken(peers).start("algo-2", 7, ("orted",))
    for answer in (lambda: spoken(peers).started(7), lambda: spoken(peers).start_ended(7, 0)):
        with pytest.raises(RuntimeError):
            answer()
    loop.close()


def judged(*failures: Failure) -> tuple[list[PeerEvent], int]:
    """What a lone host hears after it told these failures, and after how many seconds of a clock of our own."""
    seconds = 0
    loop = Loop(lambda: seconds)
    peers = LoneChannel(loop)
    heard: list[PeerEvent] = []
    peers.listen(heard.append)
    for failure in failures:
        peers.failed(failure)
    loop.turn(0)
    while not any(isinstance(event, JobFailed) for event in heard):
        seconds += 1
        loop.turn(0)
    peers.close()
    loop.close()
    return heard, seconds


SYMPTOM = Failure("algo-1", 72, "muster", "peer", "mpirun ended")
CAUSE = Failure("algo-1", 7, "user", "user", "boom")


def test_a_symptom_waits_for_its_cause() -> None:
    heard, took = judged(SYMPTOM, CAUSE)
    assert heard == [JobFailed(CAUSE, Secondary(lost=1))]
    assert took == 0


def test_a_symptom_stands_where_no_cause_follows() -> None:
    heard, took = judged(SYMPTOM)
    assert heard == [RaisedAsked(), JobFailed(SYMPTOM)]
    assert took == 3, "the clock has whole seconds"


def test_events_wait_for_a_listener_and_never_come_from_within_a_call() -> None:
    loop = Loop()
    peers = LoneChannel(loop)
    heard: list[PeerEvent] = []
    spoken(peers).arrive("one")
    loop.turn(0)
    peers.listen(heard.append)
    assert heard == []
    loop.turn(0)
    assert heard == [Arrived("one")]
    peers.done(0)
    assert heard == [Arrived("one")]
    loop.turn(0)
    assert heard == [Arrived("one"), AllDone()]
    peers.done(0)
    peers.close()
    loop.turn(0)
    assert heard == [Arrived("one"), AllDone()]
    loop.close()
