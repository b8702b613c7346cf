"""Reaching a host: refused, at the second address, through a stranger, from a bound address."""

from __future__ import annotations

import itertools
import socket
from typing import Any, Callable, Iterator

import pytest

from musterpoint.base.loop import Loop
from musterpoint.core.channel.connection_log import ConnectionLog
from musterpoint.core.channel.dial import (
    NOTHING,
    REFUSED,
    VANISHED,
    Dialer,
    Target,
    is_local,
    is_loopback,
    longest_try,
    pause_before,
)
from musterpoint.core.channel.link import Context
from musterpoint.core.channel.names import Answer, Names
from musterpoint.core.channel.timeouts import Timeouts

TIMEOUTS = Timeouts(connect=0.5, retry=0.01, retry_most=0.05)


class Caller:
    """A dialer whose outcomes are kept."""

    def __init__(self, port: int, found: Answer, sources: tuple[str, ...] = ()) -> None:
        self.loop = Loop()
        self.connected: list[tuple[socket.socket, str]] = []
        self.missed: list[tuple[str, str]] = []
        context = Context(self.loop, TIMEOUTS, ConnectionLog(print, lambda *a, **k: None))
        names = Names(self.loop, {}, lambda _name, _family: found)
        self.dialer = Dialer(
            context, names, Target("algo-1", port, lambda: sources),
            lambda sock, address: self.connected.append((sock, address)),
            lambda kind, detail: self.missed.append((kind, detail)),
        )  # fmt: skip

    def turn_until(self, outcomes: list[Any], count: int = 1) -> None:
        for _ in range(200):
            if len(outcomes) >= count:
                return
            self.loop.turn(0.1)
        raise AssertionError("no outcome")


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        sock.listen()
        yield sock


Call = Callable[..., Caller]


@pytest.fixture
def call() -> Iterator[Call]:
    """Starts a call to a port of an answer's addresses."""
    made: list[Caller] = []

    def started(*given: Any) -> Caller:
        made.append(Caller(*given))
        made[-1].dialer.start()
        return made[-1]

    yield started
    for caller in made:
        caller.dialer.stop()
        for sock, _ in caller.connected:
            sock.close()
        caller.loop.close()


def test_a_refusal_names_the_address(call: Call, port: int) -> None:
    caller = call(port, Answer(("127.0.0.1",)))
    caller.turn_until(caller.missed)
    assert caller.missed == [(REFUSED, f"127.0.0.1 port {port}: connection refused")]
    caller.dialer.again()
    caller.turn_until(caller.missed, 2)


@pytest.mark.parametrize(
    ("found", "kind"),
    [(Answer((), "no such name", True), VANISHED), (Answer((), "try again"), NOTHING)],
    ids=["no such name", "no answer"],
)
def test_a_name_without_an_address(call: Call, port: int, found: Answer, kind: str) -> None:
    caller = call(port, found)
    caller.turn_until(caller.missed)
    assert caller.missed == [(kind, found.trouble)]


def test_every_address_is_tried(call: Call, listener: socket.socket) -> None:
    caller = call(listener.getsockname()[1], Answer(("127.0.0.7", "::1", "127.0.0.1")))
    caller.turn_until(caller.connected)
    assert caller.connected[0][1] == "127.0.0.1"
    assert caller.missed == []


def test_a_stranger_is_left_for_the_next_address(call: Call, listener: socket.socket) -> None:
    port = listener.getsockname()[1]
    with socket.socket() as stranger:
        stranger.bind(("127.0.0.7", port))
        stranger.listen()
        caller = call(port, Answer(("127.0.0.7", "127.0.0.1")))
        caller.turn_until(caller.connected)
        caller.dialer.again()
        caller.turn_until(caller.connected, 2)
        caller.dialer.again()
        caller.turn_until(caller.connected, 3)
    assert [address for _, address in caller.connected] == ["127.0.0.7", "127.0.0.1", "127.0.0.7"]


@pytest.mark.parametrize(
    ("sources", "expected"),
    [
        (("127.0.0.5",), "127.0.0.5"),
        (("203.0.113.5",), "127.0.0.1"),
        (("::1",), "127.0.0.1"),
        (("127.0.0.5", "127.0.0.1"), "127.0.0.1"),
    ],
    ids=["ours", "not ours", "another family", "the one that leads there"],
)
def test_the_call_comes_from_our_own_address(
    call: Call, listener: socket.socket, sources: tuple[str, ...], expected: str
) -> None:
    caller = call(listener.getsockname()[1], Answer(("127.0.0.1",)), sources)
    caller.turn_until(caller.connected)
    assert caller.connected[0][0].getsockname()[0] == expected


def test_an_address_of_ours_that_leads_nowhere_is_given_up(call: Call) -> None:
    with socket.socket() as crowded:
        crowded.bind(("127.0.0.1", 0))
        crowded.listen(0)
        inside = [socket.create_connection(crowded.getsockname())]  # from now on a call isn't answered
        caller = call(crowded.getsockname()[1], Answer(("127.0.0.1",)), ("127.0.0.5",))
        caller.loop.call_later(TIMEOUTS.connect / 2, lambda: inside.append(crowded.accept()[0]))
        caller.turn_until(caller.connected)
        for sock in inside:
            sock.close()
    assert caller.connected[0][0].getsockname()[0] == "127.0.0.1"
    assert caller.missed == []


def test_after_a_stop_nothing_comes(call: Call, port: int) -> None:
    caller = call(port, Answer(("127.0.0.1",)))
    caller.dialer.stop()
    caller.dialer.again()
    for _ in range(5):
        caller.loop.turn(0.02)
    assert caller.missed == caller.connected == []


def test_which_addresses_are_ours() -> None:
    assert is_local("127.0.0.1")
    assert not is_local("203.0.113.5")
    assert not is_local("not an address")
    assert is_loopback("127.0.1.1")
    assert not is_loopback("10.0.0.1")


def test_hosts_that_start_together_do_not_try_together(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = itertools.cycle(range(256))
    monkeypatch.setattr("os.urandom", lambda size: bytes([next(drawn)] * size))
    timeouts = Timeouts()
    tries = sorted(longest_try(timeouts) for _ in range(256))
    assert tries[-1] == timeouts.connect
    assert tries[-1] - tries[0] >= 1.0, "a kernel calls a port that is full again after a second"
    assert all(later - earlier < 0.01 for later, earlier in zip(tries[1:], tries))
    pauses = sorted(pause_before(20, timeouts) for _ in range(256))
    assert (pauses[0], pauses[-1]) == (timeouts.retry_most / 2, timeouts.retry_most)
    assert timeouts.retry / 2 <= pause_before(0, timeouts) <= timeouts.retry
