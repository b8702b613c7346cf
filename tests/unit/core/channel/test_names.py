"""Look-ups with a resolver of our own: slow, forgetful, one-sided."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any, Callable

import pytest

from musterpoint.base.loop import Loop
from musterpoint.core.channel.connection_log import ConnectionLog
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
