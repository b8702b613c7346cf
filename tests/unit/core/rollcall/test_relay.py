"""Somebody sits between a worker and its leader, and has every frame in its hands. With a secret it can only cut."""

from __future__ import annotations

import random
import select
import socket
import threading
from typing import Any, Callable, Iterator

import pytest

from musterpoint.core.channel import wire
from musterpoint.core.channel.peers import AllDone, Arrived, PeerBack

from ...meeting import PATIENCE, TIMEOUTS, free_port

Start = Callable[..., Any]
Evil = Callable[["Relay", int, bytes], list[tuple[int, bytes]]]
SECRET = "an example of a secret"
# A hello that the relay kept is soon sent again.
SHORT_HELLO = TIMEOUTS._replace(hello=1.0)
WORKER, LEADER = 0, 1
"""Whose frames; and to whom one goes."""
STOPS = [wire.pack("abandon", host="algo-1", signal=15), wire.pack("bye"), wire.pack_beat(0)]
TO_WORKER = [wire.pack("stop", host="algo-1", signal=15), wire.pack("refused", reason="no", over=True)]
TO_LEADER = [wire.pack("stopping", signal=15), wire.pack("leaving"), wire.pack("done", code=0, failures=0)]
FORGED = {WORKER: [*STOPS, *TO_WORKER, wire.pack("startasked", number=1, words=["id"])], LEADER: [*STOPS, *TO_LEADER]}


class Relay:
    """Forwards frames; ``evil(relay, sender, frame)`` says what to send instead, and to whom, while it is set."""

    def __init__(self, to: int) -> None:
        self.port, self._to = free_port(), to
        self.evil: Evil | None = None
        self._done = 0
        self._change = threading.Condition()
        self.seen: dict[int, list[bytes]] = {WORKER: [], LEADER: []}
        self.draw = random.Random(7)
        self._listener = socket.create_server(("127.0.0.1", self.port))
        self._wake = socket.socketpair()
        self._ends: dict[socket.socket, tuple[int, wire.Frames, list[socket.socket]]] = {}
        self._thread = threading.Thread(target=self._run, name="relay")
        self._thread.start()

    def wait(self, done: int) -> None:
        """Returns when it has sent something else than a frame as often as this."""
        with self._change:
            assert self._change.wait_for(lambda: self._done >= done, PATIENCE)

    def close(self) -> None:
        self._wake[1].close()
        self._thread.join(500)
        for sock in (self._listener, self._wake[0], *self._ends):
            sock.close()

    def _run(self) -> None:
        while True:
            for ready in select.select([self._wake[0], self._listener, *self._ends], [], [])[0]:
                if ready is self._wake[0]:
                    return
                if ready is self._listener:
                    near = ready.accept()[0]
                    try:
                        far = socket.create_connection(("127.0.0.1", self._to))
                    except OSError:  # the leader does not listen yet
                        near.close()
                        continue
                    pair = [near, far]
                    self._ends[near] = WORKER, wire.Frames(wire.LEADER_LIMIT), pair
                    self._ends[far] = LEADER, wire.Frames(wire.LEADER_LIMIT), pair
                elif ready in self._ends:
                    self._pass_on(ready)

    def _pass_on(self, sock: socket.socket) -> None:
        sender, frames, pair = self._ends[sock]
        try:
            data = sock.recv(65536)
            if not data:
                raise ConnectionError
            frames.feed(data)
            while (payload := frames.next()) is not None:
                frame = wire.frame(payload)
                out = [(1 - sender, frame)]
                if self.evil is not None and self.seen[sender]:
                    out = self.evil(self, sender, frame)
                    with self._change:
                        self._done += out != [(1 - sender, frame)]
                        self._change.notify_all()
                self.seen[sender].append(frame)
                for to, one in out:
                    pair[to].sendall(one)
        except OSError:
            for one in pair:
                self._ends.pop(one, None)
                one.close()


def flipped(relay: Relay, sender: int, frame: bytes) -> list[tuple[int, bytes]]:
    at = relay.draw.randrange(4, len(frame))
    return [(1 - sender, frame[:at] + bytes([frame[at] ^ 1 << relay.draw.randrange(8)]) + frame[at + 1 :])]


def repeated(relay: Relay, sender: int, frame: bytes) -> list[tuple[int, bytes]]:
    return [(1 - sender, frame), (1 - sender, frame)]


def replayed(relay: Relay, sender: int, frame: bytes) -> list[tuple[int, bytes]]:
    return [(1 - sender, relay.draw.choice(relay.seen[sender])), (1 - sender, frame)]


def left_out(relay: Relay, sender: int, frame: bytes) -> list[tuple[int, bytes]]:
    return [] if relay.draw.random() < 0.5 else [(1 - sender, frame)]


def reflected(relay: Relay, sender: int, frame: bytes) -> list[tuple[int, bytes]]:
    return [(sender, frame), (1 - sender, frame)]


def forged(relay: Relay, sender: int, frame: bytes) -> list[tuple[int, bytes]]:
    return [(1 - sender, relay.draw.choice(FORGED[1 - sender])), (1 - sender, frame)]


def forged_with_an_old_mark(relay: Relay, sender: int, frame: bytes) -> list[tuple[int, bytes]]:
    payload = relay.draw.choice(FORGED[1 - sender])[4:]
    return [(1 - sender, wire.frame(frame[4:20] + payload)), (1 - sender, frame)]


@pytest.fixture
def relay(port: int) -> Iterator[Relay]:
    made = Relay(port)
    yield made
    made.close()


@pytest.mark.parametrize(
    "evil",
    [flipped, repeated, replayed, left_out, reflected, forged, forged_with_an_old_mark],
    ids=lambda f: f.__name__,
)
def test_with_a_secret_a_relay_can_cut_and_never_speak(start: Start, relay: Relay, evil: Evil) -> None:
    options = {"secret": SECRET, "timeouts": SHORT_HELLO}
    hosts = [start(1, 3, **options), start(2, 3, port=relay.port, **options), start(3, 3, **options)]
    for host in hosts:
        host.gathered()
    relay.evil = evil
    for number in range(3):
        for host in hosts:
            host.say("arrive", f"point {number}")
    relay.wait(5)
    relay.evil = None
    for host in hosts:
        host.wait(lambda host=host: len(host.heard(Arrived)) >= 3)
        assert host.heard(Arrived) == [Arrived(f"point {number}") for number in range(3)]
    for host in hosts:
        host.say("done", 0)
    for host in hosts:
        host.event(AllDone)
        assert {type(event) for event in host.events} <= {Arrived, PeerBack, AllDone}
        assert "internal-error" not in host.moments


@pytest.mark.parametrize("evil", [flipped, repeated, replayed, reflected, forged], ids=lambda f: f.__name__)
def test_nor_while_the_hosts_gather(start: Start, relay: Relay, evil: Evil) -> None:
    leader = start(1, 2, secret=SECRET, timeouts=SHORT_HELLO)
    relay.evil = evil
    worker = start(2, 2, secret=SECRET, port=relay.port, timeouts=SHORT_HELLO)
    relay.wait(3)
    relay.evil = None
    for host in (leader, worker):
        host.gathered()
    assert leader.roster.seats == worker.roster.seats
    assert leader.events == worker.events == [] or leader.has(PeerBack)
