"""The small roll call: names only."""

from __future__ import annotations

from typing import Callable

from musterpoint.base.errors import RollCallError, StoppedEarly
from musterpoint.base.loop import Loop
from musterpoint.base.settings import Settings
from musterpoint.core.channel.connection_log import ConnectionLog
from musterpoint.core.channel.link import Context
from musterpoint.core.channel.names import FAMILIES, Answer, Names
from musterpoint.core.channel.timeouts import Timeouts
from musterpoint.core.rollcall.names_call import NamesCall
from musterpoint.core.rollcall.roster import Offer, Participant

QUICK = Timeouts(retry=0.01, retry_most=0.02, progress=0.05)
HOSTS = ("algo-1", "algo-2", "algo-3")
Lookup = Callable[[str, int], Answer]


def call(loop: Loop, lookup: Lookup, timeout: float = 10.0) -> tuple[NamesCall, list[str]]:
    said: list[str] = []
    fixed = {"algo-1": ("10.0.0.1",)}
    context = Context(loop, QUICK, ConnectionLog(said.append, lambda *a, **k: None))
    settings = Settings(rollcall_timeout=timeout)
    participant = Participant(HOSTS, HOSTS, "algo-1", Offer("job", "torchrun", 1, "0.1"), settings)
    made = NamesCall(context, Names(loop, fixed, lookup), participant)
    made.start()
    return made, said


def run(loop: Loop, made: NamesCall) -> None:
    while made.result is None and made.error is None:
        loop.turn(1.0)


def test_it_ends_when_every_name_has_an_address(loop: Loop) -> None:
    tries = dict.fromkeys(HOSTS, 0)

    def late(name: str, family: int) -> Answer:
        tries[name] += 1
        found = family == FAMILIES[0] and tries[name] > 3
        return Answer((f"10.0.0.{name[-1]}", "10.9.9.9")) if found else Answer((), "no such name yet", True)

    made, _ = call(loop, late)
    run(loop, made)
    assert made.error is None
    assert made.result == {"algo-1": "10.0.0.1", "algo-2": "10.0.0.2", "algo-3": "10.0.0.3"}
    assert tries["algo-1"] == 0, "a name that is known isn't looked up"


def test_the_deadline_names_who_is_missing_and_why(loop: Loop) -> None:
    def half(name: str, family: int) -> Answer:
        return Answer(("10.0.0.2",)) if name == "algo-2" else Answer((), "the name does not resolve (no such name)")

    made, said = call(loop, half, 2.0)
    run(loop, made)
    assert isinstance(made.error, RollCallError)
    text = str(made.error)
    assert text.startswith("the roll call's 2 s are over, and 1 names do not resolve on algo-1")
    assert "algo-3  name" in text
    assert "no such name" in text
    assert "2 of 3 hosts are here" in text
    assert any("waiting for algo-3" in line for line in said)
    told = len(said)
    loop.turn(0.2)
    assert len(said) == told, "nothing is said after the end"


def test_a_stop_ends_it(loop: Loop) -> None:
    made, _ = call(loop, lambda name, family: Answer((), "not yet"))
    loop.call_later(0.05, lambda: made.stop(StoppedEarly("algo-1", 15)))
    run(loop, made)
    assert isinstance(made.error, StoppedEarly)
    assert (made.error.host, made.error.signal) == ("algo-1", 15)
    made.stop(StoppedEarly("algo-1", 2))
    assert made.error.signal == 15, "the first word stands"
