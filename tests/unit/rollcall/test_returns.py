"""Who comes to the leader's door once the roster is out."""

from __future__ import annotations

import socket
from typing import Any, Callable

import pytest

from musterpoint.peers import PeerLost
from musterpoint.rollcall.hello import Hello, Resume
from musterpoint.rollcall.limits import Limits
from musterpoint.rollcall.roster import Offer

from .conftest import connect, replies

Start = Callable[..., Any]
HELLO = Hello("algo-2", Offer("job", "torchrun", 2, "0.1"), "another incarnation", (), "127.0.0.1")


def pair(start: Start, **options: Any) -> tuple[Any, Any]:
    hosts = start(1, 2, **options), start(2, 2, **options)
    for host in hosts:
        host.mustered()
    return hosts


def test_a_session_nobody_knows_is_over(start: Start, port: int) -> None:
    leader, _ = pair(start)
    session = leader.roster.session
    token = leader.ask(lambda peers: peers._members["algo-2"].token)
    for resume in (
        Resume("algo-2", "session", token, 0),
        Resume("algo-2", "session", "token", 0),
        Resume("algo-2", session, "guessed", 0),
        Resume("algo-9", session, "", 0),
    ):
        with connect(port) as ghost:
            ghost.sendall(resume.pack())
            (reply,) = replies(ghost)
        assert (reply["t"], reply["over"], reply["reason"]) == ("refused", True, "algo-1 knows no such session")
    assert leader.events == []


def test_a_lost_welcome_is_given_again_with_the_roster(start: Start, port: int) -> None:
    leader = start(1, 2, limits=Limits())
    with connect(port) as first:
        first.sendall(HELLO.pack())
        leader.mustered()
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
def test_other_hosts_and_jobs_are_refused(start: Start, port: int, hello: Hello) -> None:
    leader, _ = pair(start)
    with connect(port) as stranger:
        stranger.sendall(hello.pack())
        (reply,) = replies(stranger)
    assert reply["reason"] == f"{hello.host} is not one of the hosts of job"
    assert leader.events == []


def test_a_host_started_anew_is_refused_and_the_old_one_lost(start: Start) -> None:
    hosts = [start(number, 3) for number in (1, 2, 3)]
    for host in hosts:
        host.mustered()
    anew = start(2, 3)
    assert "job has already started with an earlier start of algo-2" in str(anew.failed())
    for host in (hosts[0], hosts[2]):
        assert host.event(PeerLost).why == "it was started anew while the job ran"


def test_who_only_says_so_from_another_address_ends_nobodys_session(start: Start, port: int) -> None:
    leader, _ = pair(start)
    with connect(port, "127.0.0.5") as impostor:
        impostor.sendall(HELLO.pack())
        (reply,) = replies(impostor)
    assert "has already started with an earlier start of algo-2" in reply["reason"]
    assert leader.events == []


def test_who_has_no_secret_ends_nobodys_session(start: Start, port: int) -> None:
    leader, _ = pair(start, secret="hush")
    with connect(port) as impostor:
        impostor.sendall(HELLO.pack())
        (reply,) = replies(impostor)
    assert "took its seat with a secret" in reply["reason"]
    assert leader.events == []
