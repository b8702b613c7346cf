"""Look-ups with a resolver of our own: slow, forgetful, one-sided."""

from __future__ import annotations

import itertools
import socket
import threading
import time
from pathlib import Path
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
from musterpoint.core.channel.names import FAMILIES, Answer, Follower, Names, read_hosts, resolve
from musterpoint.core.channel.timeouts import Timeouts

FOUR, SIX = FAMILIES
NO = Answer((), "no such name", True)
Lookup = Callable[[str, int], Answer]


def ask(loop: Loop, lookup: Lookup, method: str, seconds: float = 30.0) -> list[Answer]:
    names = Names(loop, {}, lookup)
    answers: list[Answer] = []
    getattr(names, method)("algo-1", answers.append)
    until = time.monotonic() + seconds
    while not answers and time.monotonic() < until:
        loop.turn(0.1)
    loop.turn(0)
    return answers


@pytest.mark.parametrize("method", ["look_up", "look_up_both"])
@pytest.mark.parametrize("family", FAMILIES)
def test_one_family_is_enough(loop: Loop, method: str, family: int) -> None:
    answers = ask(loop, lambda name, asked: Answer(("10.0.0.1",)) if asked == family else NO, method)
    assert answers == [Answer(("10.0.0.1",))]


@pytest.mark.parametrize("method", ["look_up", "look_up_both"])
@pytest.mark.parametrize("family", FAMILIES)
def test_a_family_that_hangs_costs_little(loop: Loop, method: str, family: int) -> None:
    release = threading.Event()

    def lookup(_name: str, asked: int) -> Answer:
        if asked == family:
            release.wait(500)
            return NO
        return Answer(("10.0.0.1",))

    assert ask(loop, lookup, method) == [Answer(("10.0.0.1",))]
    release.set()
    time.sleep(0.05)


@pytest.mark.parametrize("method", ["look_up", "look_up_both"])
def test_no_address_says_why(loop: Loop, method: str) -> None:
    assert ask(loop, lambda _name, _family: NO, method) == [NO]


def test_a_vague_answer_is_no_proof_that_the_name_is_gone(loop: Loop) -> None:
    vague = Answer((), "try again")
    assert ask(loop, lambda _name, family: NO if family == SIX else vague, "look_up_both") == [vague]


def test_known_names_are_never_looked_up(loop: Loop) -> None:
    def lookup(name: str, family: int) -> Answer:
        raise AssertionError("looked up")

    answers: list[Answer] = []
    names = Names(loop, {"algo-1": ("10.0.0.1",)}, lookup)
    names.look_up("ALGO-1", answers.append)
    names.look_up_both("algo-1", answers.append)
    assert answers == [Answer(("10.0.0.1",))] * 2


def test_at_most_sixteen_at_a_time(loop: Loop) -> None:
    lock = threading.Lock()
    running = most = 0

    def lookup(_name: str, _family: int) -> Answer:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        time.sleep(0.005)
        with lock:
            running -= 1
        return Answer(("10.0.0.1",))

    names = Names(loop, {}, lookup)
    answers: list[Answer] = []
    for number in range(60):
        names.look_up(f"algo-{number}", answers.append)
    while len(answers) < 60:
        loop.turn(1.0)
    assert 2 <= most <= 16


def test_a_follower_asks_until_it_is_told_to_stop(loop: Loop) -> None:
    asked: list[float] = []

    def lookup(_name: str, family: int) -> Answer:
        if family == FOUR:
            asked.append(time.monotonic())
        return Answer(("10.0.0.1",)) if len(asked) > 3 else NO

    answers: list[Answer] = []

    def answered(name: str, answer: Answer) -> None:
        answers.append(answer)
        if answer.addresses:
            follower.drop(name)

    recorded: list[tuple[str, dict[str, Any]]] = []
    log = ConnectionLog(print, lambda event, **facts: recorded.append((event, facts)))
    context = Context(loop, Timeouts(retry=0.01, retry_most=0.04), log)
    follower = Follower(context, Names(loop, {}, lookup), answered)
    follower.follow("algo-1")
    until = time.monotonic() + 30
    while not (answers and answers[-1].addresses) and time.monotonic() < until:
        loop.turn(0.1)
    for _ in range(5):
        loop.turn(0.05)
    assert answers == [NO, NO, NO, Answer(("10.0.0.1",))]
    assert recorded == [("name-resolved", {"host": "algo-1", "address": "10.0.0.1", "tries": 4})]


def test_the_real_resolver() -> None:
    assert resolve("127.0.0.1", FOUR) == Answer(("127.0.0.1",))
    assert resolve("localhost", FOUR).addresses == ("127.0.0.1",)
    assert "does not resolve" in resolve("x" * 70, FOUR).trouble
    assert "does not resolve" in resolve("127.0.0.1", SIX).trouble


def test_a_hosts_file(tmp_path: Path) -> None:
    file = tmp_path / "hosts"
    file.write_text("# all\n10.0.0.1 algo-1 Algo-1.Local # first\n\n10.0.0.2\talgo-2\nfd00::1 algo-1\nbroken\n")
    assert read_hosts(str(file)) == {
        "algo-1": ("10.0.0.1", "fd00::1"), "algo-1.local": ("10.0.0.1",), "algo-2": ("10.0.0.2",)
    }  # fmt: skip
    with pytest.raises(OSError):
        read_hosts(str(tmp_path / "none"))


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
