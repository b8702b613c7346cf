"""Who comes to the leader's listener once the roster is out."""

from __future__ import annotations

import random
import select
import socket
import threading
import time
from typing import Any, Callable

import pytest

from musterpoint.core.channel import wire
from musterpoint.core.channel.peers import AllDone, GroupEnded, PeerBack, PeerLost
from musterpoint.core.channel.session import Resume
from musterpoint.core.channel.timeouts import Timeouts
from musterpoint.core.rollcall.hello import ANOTHER_SECRET, NO_SEAT, Hello
from musterpoint.core.rollcall.roster import Offer

from ...fixtures import closing_fixture
from ...meeting import EVER, PATIENCE, TIMEOUTS, Arrived, all_done, connect, free_port, gathered, replies

SECRET = "an example of a secret"
SHORT_ASK = TIMEOUTS._replace(sign_of_life=0.5)
Start = Callable[..., Any]
HELLO = Hello("algo-2", Offer("job", "torchrun", 2, "0.1"), "another", (), "127.0.0.1")


def test_a_session_nobody_knows_is_over(start: Start, port: int) -> None:
    leader, _ = gathered(start, 2)
    session = leader.roster.session
    token = leader.ask(lambda peers: peers._members["algo-2"].ticket.token)
    for resume in (
        Resume("algo-2", "session", token, 0),
        Resume("algo-2", "session", "token", 0),
        Resume("algo-2", session, "guessed", 0),
        Resume("algo-9", session, "token", 0),
    ):
        with connect(port) as ghost:
            ghost.sendall(resume.pack())
            (reply,) = replies(ghost)
        assert reply == {"t": "refused", "over": True, "reason": "it knows no such session"}
    assert leader.events == []


@pytest.mark.parametrize("nonce", ["", "nonce"])
def test_a_token_alone_resumes_nothing_where_there_is_a_secret(start: Start, port: int, nonce: str) -> None:
    leader, worker = gathered(start, 2, secret=SECRET)
    session = leader.roster.session
    token = leader.ask(lambda peers: peers._members["algo-2"].ticket.token)
    with connect(port) as ghost:
        ghost.sendall(Resume("algo-2", session, token, 0, nonce).pack() + wire.pack("proof", proof="0" * 64))
        *_challenge, reply = replies(ghost)
    assert reply == {"t": "refused", "reason": ANOTHER_SECRET}
    worker.say("stopping", 15)
    leader.wait(lambda: leader.events)
    assert not leader.has(PeerBack)


def test_a_lost_welcome_is_given_again_with_the_roster(start: Start, port: int) -> None:
    leader = start(1, 2, timeouts=Timeouts())
    with connect(port) as first:
        first.sendall(HELLO.pack())
        leader.gathered()
    with connect(port) as again:
        again.sendall(HELLO.pack())
        again.shutdown(socket.SHUT_WR)
        welcome, roster = replies(again)
    assert (welcome["t"], roster["t"]) == ("welcome", "roster")
    assert roster["roster"]["session"] == leader.roster.session


@pytest.mark.parametrize(
    ("hello", "address"),
    [
        (HELLO._replace(host="algo-9"), "127.0.0.1"),
        (HELLO._replace(offer=HELLO.offer._replace(job="another")), "127.0.0.1"),
        (HELLO, "127.0.0.5"),
    ],
    ids=["host", "job", "address"],
)
def test_others_are_refused_in_words_that_tell_nothing(start: Start, port: int, hello: Hello, address: str) -> None:
    """Other hosts, other jobs, and who only says from another address that it is a host of this one."""
    leader, _ = gathered(start, 2)
    with connect(port, address) as stranger:
        stranger.sendall(hello.pack())
        assert replies(stranger) == [{"t": "refused", "reason": NO_SEAT}]
    assert leader.events == []


@pytest.mark.parametrize("secret", ["", SECRET])
def test_a_host_started_anew_is_refused_and_the_old_one_lost(start: Start, cable: Any, secret: str) -> None:
    """When the earlier one doesn't answer."""
    hosts = gathered(start, 3, cable, secret=secret, timeouts=SHORT_ASK)
    cable.freeze()
    hosts[0].ask(lambda _: None)  # it has read then what came before
    anew = start(2, 3, secret=secret)
    assert "job has already started with an earlier start of algo-2" in str(anew.failed())
    for host in (hosts[0], hosts[2]):
        assert host.event(PeerLost).why == "it was started anew while the job ran"


def test_with_a_secret_an_earlier_start_without_a_connection_is_lost_at_once(start: Start, cable: Any) -> None:
    hosts = gathered(start, 3, cable, secret=SECRET, timeouts=TIMEOUTS._replace(sign_of_life=EVER))
    cable.pull()
    hosts[0].wait(lambda: "connection-ended" in hosts[0].moments)
    assert "job has already started with an earlier start of algo-2" in str(start(2, 3, secret=SECRET).failed())
    assert hosts[2].event(PeerLost).why == "it was started anew while the job ran"


@pytest.mark.parametrize("secret", ["", SECRET])
@pytest.mark.parametrize("is_done", [False, True])
def test_a_second_start_ends_nobodys_session_while_the_first_answers(start: Start, secret: str, is_done: bool) -> None:
    """Also where the ranks of that host are done."""
    leader, worker = hosts = gathered(start, 2, secret=secret, timeouts=SHORT_ASK)
    if is_done:
        worker.say("done", 0)
        while leader.ask(lambda peers: peers._members["algo-2"].code) != 0:
            pass
    refused = start(2, 2, secret=secret).failed()
    assert "this job has already started with an earlier start of algo-2 (127.0.0.1)" in str(refused)
    leader.wait(lambda: "asked-for-a-sign" in leader.moments)
    over = threading.Event()
    leader.say("call_later", SHORT_ASK.sign_of_life, over.set)  # due after the leader has looked for an answer
    assert over.wait(PATIENCE)
    assert leader.events == worker.events == []
    for host in hosts[: 1 if is_done else 2]:
        host.say("done", 0)
    for host in hosts:
        host.event(AllDone)
        assert not host.has(PeerLost)


def test_a_process_beside_a_member_ends_nobodys_session_while_the_member_answers(start: Start, port: int) -> None:
    leader, worker = gathered(start, 2, timeouts=SHORT_ASK)
    for number in range(20):
        with connect(port) as impostor:
            impostor.sendall(HELLO._replace(incarnation=f"i{number}").pack())
            (reply,) = replies(impostor)
        assert "has already started with an earlier start of algo-2" in reply["reason"]
    leader.wait(lambda: leader.moments.count("asked-for-a-sign") >= 1)
    for _round in range(4):  # longer than what the member has to answer
        worker.ask(lambda peers: None)
        time.sleep(0.3)
    assert leader.events == worker.events == []
    worker.say("done", 0)
    leader.say("done", 0)
    leader.event(AllDone)
    assert not leader.has(PeerLost)


def test_a_thousand_calls_leave_a_few_lines(start: Start, port: int) -> None:
    leader, _ = gathered(start, 2)
    session = leader.roster.session
    token = leader.ask(lambda peers: peers._members["algo-2"].ticket.token)
    moments = len(leader.moments)
    for number in range(500):
        with connect(port) as ghost:
            ghost.sendall(Resume("algo-2", session, token, 0).pack())
            frames = wire.Frames(wire.MEMBER_LIMIT)
            while (answer := frames.next()) is None:
                frames.feed(ghost.recv(4096))
            assert wire.unpack(answer)["t"] == "resumed"
        with connect(port) as stranger:
            stranger.sendall(HELLO._replace(host=f"algo-{number + 3}").pack())
            replies(stranger)
    leader.ask(lambda peers: None)
    assert len(leader.moments) - moments < 80
    assert len(leader.events) < 40


Evil = Callable[["Relay", int, bytes], list[tuple[int, bytes]]]
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


relay = closing_fixture(Relay, "port")


@pytest.mark.parametrize(
    "evil",
    [flipped, repeated, replayed, left_out, reflected, forged, forged_with_an_old_mark],
    ids=lambda f: f.__name__,
)
def test_with_a_secret_a_relay_can_cut_and_never_speak(start: Start, relay: Relay, evil: Evil) -> None:
    hosts = gathered(start, 3, relay, secret=SECRET, timeouts=SHORT_HELLO)
    relay.evil = evil
    for number in range(3):
        for host in hosts:
            host.say("arrive", f"point-{number}")
    relay.wait(5)
    relay.evil = None
    for host in hosts:
        host.wait(lambda host=host: len(host.heard(Arrived)) >= 3)
        assert host.heard(Arrived) == [Arrived(f"point-{number}") for number in range(3)]
    all_done(hosts)
    for host in hosts:
        assert {type(event) for event in host.events} <= {Arrived, PeerBack, GroupEnded, AllDone}
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
