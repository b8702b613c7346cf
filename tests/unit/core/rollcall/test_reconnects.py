"""Who comes to the leader's listener once the roster is out."""

from __future__ import annotations

import socket
import time
from typing import Any, Callable

import pytest

from musterpoint.core.channel import wire
from musterpoint.core.channel.peers import AllDone, PeerBack, PeerLost
from musterpoint.core.channel.session import Resume
from musterpoint.core.channel.timeouts import Timeouts
from musterpoint.core.rollcall.hello import ANOTHER_SECRET, NO_SEAT, Hello
from musterpoint.core.rollcall.roster import Offer

from ...meeting import TIMEOUTS, connect, replies

SECRET = "an example of a secret"
SHORT_ASK = TIMEOUTS._replace(sign_of_life=0.5)
Start = Callable[..., Any]
HELLO = Hello("algo-2", Offer("job", "torchrun", 2, "0.1"), "another", (), "127.0.0.1")


def pair(start: Start, **options: Any) -> tuple[Any, Any]:
    hosts = start(1, 2, **options), start(2, 2, **options)
    for host in hosts:
        host.gathered()
    return hosts


def test_a_session_nobody_knows_is_over(start: Start, port: int) -> None:
    leader, _ = pair(start)
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
    leader, worker = pair(start, secret=SECRET)
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
    "hello",
    [HELLO._replace(host="algo-9"), HELLO._replace(offer=HELLO.offer._replace(job="another"))],
    ids=["host", "job"],
)
def test_other_hosts_and_jobs_are_refused_in_words_that_tell_nothing(start: Start, port: int, hello: Hello) -> None:
    leader, _ = pair(start)
    with connect(port) as stranger:
        stranger.sendall(hello.pack())
        assert replies(stranger) == [{"t": "refused", "reason": NO_SEAT}]
    assert leader.events == []


def test_a_host_started_anew_is_refused_and_the_old_one_that_does_not_answer_lost(start: Start, cable: Any) -> None:
    hosts = [
        start(number, 3, timeouts=SHORT_ASK, **({"port": cable.port} if number == 2 else {})) for number in (1, 2, 3)
    ]
    for host in hosts:
        host.gathered()
    cable.freeze()
    anew = start(2, 3)
    assert "job has already started with an earlier start of algo-2" in str(anew.failed())
    for host in (hosts[0], hosts[2]):
        assert host.event(PeerLost).why == "it was started anew while the job ran"


def test_with_a_secret_a_host_started_anew_is_known_at_once(start: Start) -> None:
    hosts = [start(number, 3, secret=SECRET) for number in (1, 2, 3)]
    for host in hosts:
        host.gathered()
    anew = start(2, 3, secret=SECRET)
    assert "job has already started with an earlier start of algo-2" in str(anew.failed())
    for host in (hosts[0], hosts[2]):
        assert host.event(PeerLost).why == "it was started anew while the job ran"


def test_a_process_beside_a_member_ends_nobodys_session_while_the_member_answers(start: Start, port: int) -> None:
    leader, worker = pair(start, timeouts=SHORT_ASK)
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


def test_who_only_says_so_from_another_address_ends_nobodys_session(start: Start, port: int) -> None:
    leader, _ = pair(start)
    with connect(port, "127.0.0.5") as impostor:
        impostor.sendall(HELLO.pack())
        assert replies(impostor) == [{"t": "refused", "reason": NO_SEAT}]
    assert leader.events == []


def test_a_thousand_calls_leave_a_few_lines(start: Start, port: int) -> None:
    leader, _ = pair(start)
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
