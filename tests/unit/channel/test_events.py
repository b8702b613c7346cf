from __future__ import annotations

from musterpoint.channel.lone import LoneChannel
from musterpoint.channel.peers import AllDone, Arrived, PeerEvent
from musterpoint.loop import Loop


def test_events_wait_for_a_listener_and_never_come_from_within_a_call() -> None:
    loop = Loop()
    peers = LoneChannel(loop)
    heard: list[PeerEvent] = []
    peers.arrive("one")
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
