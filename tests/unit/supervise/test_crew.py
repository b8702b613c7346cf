"""The crew's side of the stubs' protocol, spoken to it over a real socket."""

from __future__ import annotations

import os
import socket
from typing import Callable, Iterator

import pytest

from musterpoint.launch.plan import Argument, LaunchPlan, ProcessPlan
from musterpoint.loop import Loop
from musterpoint.report.explain import Explain
from musterpoint.supervise.crew import Crew
from musterpoint.supervise.desk import address_of
from musterpoint.supervise.events import Broken, LocalEvent, RankEnded, SessionOpened
from musterpoint.supervise.pump import Pump

PLAN = LaunchPlan(
    "torchrun", "algo-1", (ProcessPlan("launcher", "torchrun", (Argument("sleep"), Argument("30"))),), (), 2, 2, 0, "/"
)


class Deck:
    """A crew whose launcher sleeps; the tests are its stubs."""

    def __init__(self) -> None:
        self.loop = Loop()
        self.read, self.write = os.pipe()
        self.pump = Pump(out_fd=self.write, err_fd=self.write)
        self.events: list[LocalEvent] = []
        self.crew = Crew(
            self.loop, self.pump, self.events.append, lambda: Explain("algo-1"), lambda event, /, **facts: None,
            lambda: 0, lambda visitor, line: False,
        )  # fmt: skip
        self.crew.start(PLAN, {"PATH": os.environ.get("PATH", "/bin:/usr/bin")})
        self.stubs: list[socket.socket] = []

    def stub(self, line: str) -> socket.socket:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        sock.settimeout(10)
        self.stubs.append(sock)
        sock.connect(address_of(self.crew.desk.address))
        self.say(sock, line)
        return sock

    def say(self, sock: socket.socket, line: str) -> None:
        sock.sendall(line.encode() + b"\n")
        self.turn()

    def turn(self) -> None:
        for _ in range(3):
            self.loop.turn(0.02)

    def go(self, sock: socket.socket) -> None:
        data, descriptors, _flags, _address = socket.recv_fds(sock, 16, 4)
        assert data == b"go\n"
        for fd in descriptors:
            os.close(fd)

    @property
    def ends(self) -> list[tuple[tuple[int, int], int]]:
        """Keys and codes of the ranks that have ended."""
        ended = [event for event in self.events if isinstance(event, RankEnded)]
        return [(event.key, event.failure.code if event.failure else 0) for event in ended]

    def close(self) -> None:
        for sock in self.stubs:
            sock.close()
        self.crew.kill()
        self.pump.drain(5)
        os.waitpid(-1, 0)
        self.crew.close()
        self.loop.close()
        os.close(self.read)
        os.close(self.write)


@pytest.fixture
def deck() -> Iterator[Deck]:
    deck = Deck()
    yield deck
    deck.close()


def test_a_session_says_what_it_will_bring(deck: Deck) -> None:
    assert deck.events == [SessionOpened(0, ((0, 0), (0, 1)), foreign=True)]


def test_stubs_report_their_ranks_ends(deck: Deck) -> None:
    first, second = (deck.stub(f"rank {rank} {rank} 2 {os.getpid()} 0") for rank in (0, 1))
    for sock, status in ((second, 7 << 8), (first, 9)):
        deck.go(sock)
        deck.say(sock, f"started {os.getpid()}")
        deck.say(sock, f"ended {status}")
    assert deck.ends == [((0, 1), 7), ((0, 0), 137)]
    deck.crew.release(0, 7)
    assert first.recv(64) == b"release\n"


def test_another_world_than_planned(deck: Deck) -> None:
    deck.stub("rank 0 0 1 77 0")
    broken = [event for event in deck.events if isinstance(event, Broken)]
    assert [event.failure.code for event in broken] == [72]
    assert "world of 1 rank(s), but 2 were planned" in broken[0].failure.reason


REFUSED = {
    "another session": "rank 0 0 2 77 5",
    "a rank that isn't planned": "rank 9 9 2 77 0",
    "too few words": "rank 0 0",
    "no numbers": "rank a b c d e",
    "something else": "GET / HTTP/1.1",
}


@pytest.mark.parametrize("what", REFUSED)
def test_who_is_sent_away(deck: Deck, what: str) -> None:
    assert deck.stub(REFUSED[what]).recv(16) == b""
    assert deck.ends == []


def again(deck: Deck) -> None:
    deck.go(deck.stub("rank 0 0 2 77 0"))


def refusing(deck: Deck) -> None:
    deck.crew.refusing = True


@pytest.mark.parametrize("before", [again, refusing])
def test_a_rank_that_comes_twice_or_too_late(deck: Deck, before: Callable[[Deck], None]) -> None:
    before(deck)
    assert deck.stub("rank 0 0 2 78 0").recv(16) == b""


def test_a_stub_that_leaves_before_its_program_ran(deck: Deck) -> None:
    sock = deck.stub("rank 0 0 2 77 0")
    deck.go(sock)
    sock.close()
    deck.turn()
    assert deck.ends == [((0, 0), 1)]


def test_ranks_that_never_came_are_given_up(deck: Deck) -> None:
    deck.crew.signal_ranks(15)
    assert deck.ends == [((0, 0), 0), ((0, 1), 0)]
