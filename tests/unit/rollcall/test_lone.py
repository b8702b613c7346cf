from __future__ import annotations

from musterpoint.loop import Loop
from musterpoint.peers import AllDone, Arrived, Failure, JobFailed, PeerEvent
from musterpoint.rollcall.lone import LonePeers


def test_what_a_lone_host_says_comes_back() -> None:
    loop = Loop()
    peers = LonePeers(loop)
    heard: list[PeerEvent] = []
    peers.listen(heard.append)
    boom, later = (Failure("algo-1", code, "user", "user", "boom") for code in (7, 8))
    peers.arrive("ready")
    peers.failed(boom)
    peers.failed(later)
    peers.stopping(15)
    peers.done(7)
    loop.turn(0)
    assert heard == [Arrived("ready"), JobFailed(boom), AllDone()]
    loop.close()
