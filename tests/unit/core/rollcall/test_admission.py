"""Calls for seats, names' addresses and time against who sits."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from musterpoint.core.channel import wire
from musterpoint.core.channel.session import Ticket
from musterpoint.core.rollcall.admission import (
    Call,
    Change,
    Check,
    Claim,
    Contested,
    Holder,
    Seated,
    Seats,
    TurnedAway,
    ruling,
)
from musterpoint.core.rollcall.hello import Hello
from musterpoint.core.rollcall.roster import Offer

OFFER = Offer("job", "torchrun", 2, "0.1")
HERE, ELSEWHERE = "10.0.0.2", "10.9.9.9"


def call(address: str, since: float = 0.0, name: str = "algo-2", incarnation: str = "one") -> Call:
    state: Any = object()
    return Call(Hello(name, OFFER, incarnation), state, address, since)


def seats(check: Check = "warn") -> Seats:
    table = Seats(["algo-2", "algo-3"], check, 10.0, 5.0)
    table.resolved("algo-2", (HERE, "fd00::2"))
    return table


def seated(changes: list[Change]) -> list[Call]:
    return [change.call for change in changes if isinstance(change, Seated)]


def turned(changes: list[Change]) -> list[Call]:
    return [change.call for change in changes if isinstance(change, TurnedAway)]


CALLS = {
    "host": call(HERE), "host by IPv6": call("fd00::2"), "host, 9 s": call(HERE, 9.0), "host, 30 s": call(HERE, 30.0),
    "stranger": call(ELSEWHERE), "stranger, 5 s": call(ELSEWHERE, 5.0),
    "another stranger": call(ELSEWHERE, incarnation="two"),
    "algo-3": call("10.0.0.3", name="algo-3"),
    "host again, 20 s": call(HERE, 20.0), "new host, 20 s": call(HERE, 20.0, incarnation="two"),
    "new host, 24 s": call(HERE, 24.0, incarnation="two"), "third host, 21 s": call(HERE, 21.0, incarnation="three"),
    "new stranger, 20 s": call(ELSEWHERE, 20.0, incarnation="two"),
    "new stranger, 5 s": call(ELSEWHERE, 5.0, incarnation="two"),
}  # fmt: skip
Steps = tuple[tuple[Any, ...], ...]
TAKEN: Steps = (("claim", "host"), ("tick", 10.0), ("claim", "new host, 20 s"))
"""A host that holds its seat, and a later caller that says it is that host."""
BY_WAITING: Steps = (("claim", "stranger"), ("tick", 10.0), ("claim", "new stranger, 20 s"))
ASKED, STRANGER_ASKED = "new host, 20 s asks host", "new stranger, 20 s asks stranger"

HISTORIES: dict[str, tuple[Check, Steps, list[str]]] = {
    "an address of the name": ("warn", (("claim", "host"),), ["host sits"]),
    "the other address of the name": ("warn", (("claim", "host by IPv6"),), ["host by IPv6 sits"]),
    "a mismatch, for a while": ("warn", (("claim", "stranger, 5 s"), ("tick", 14.9)), []),
    "a mismatch, later": ("warn", (("claim", "stranger, 5 s"), ("tick", 15.0)), ["stranger, 5 s sits"]),
    "a match in time beats a mismatch": (
        "warn", (("claim", "stranger"), ("claim", "host, 9 s"), ("tick", 99.0)), ["host, 9 s sits", "stranger goes"]),
    "a match even takes the seat from a mismatch": (
        "warn", (("claim", "stranger"), ("tick", 10.0), ("claim", "host, 30 s")),
        ["stranger sits", "host, 30 s sits", "stranger goes"]),
    "a mismatch takes nobody's seat": (
        "warn", (("claim", "host"), ("claim", "another stranger")), ["host sits", "another stranger goes"]),
    "the name resolves late": (
        "warn", (("claim", "algo-3"), ("resolved", "algo-3", ("10.0.0.4",)),
                 ("resolved", "algo-3", ("10.0.0.4", "10.0.0.3"))), ["algo-3 sits"]),
    "strict": ("strict", (("claim", "stranger"), ("tick", 1e6)), []),
    "strict, with a proof": ("strict", (("claim", "stranger", True),), ["stranger sits"]),
    "off": ("off", (("claim", "stranger"),), ["stranger sits"]),
    # a later start against an earlier one
    "the holder does not answer": (
        "warn", (*TAKEN, ("tick", 24.9), ("tick", 25.0), ("tick", 99.0)),
        ["host sits", ASKED, "new host, 20 s sits", "host goes"]),
    "the holder does not answer, not in time": ("warn", (*TAKEN, ("tick", 24.9)), ["host sits", ASKED]),
    "the holder answers": (
        "warn", (*TAKEN, ("answered", "host"), ("answered", "host"), ("tick", 99.0)),
        ["host sits", ASKED, "new host, 20 s goes"]),
    "the holder goes": ("warn", (*TAKEN, ("left", "host")), ["host sits", ASKED, "new host, 20 s sits"]),
    "a holder by waiting does not answer": (
        "warn", (*BY_WAITING, ("tick", 25.0)),
        ["stranger sits", STRANGER_ASKED, "new stranger, 20 s sits", "stranger goes"]),
    "a holder by waiting answers": (
        "warn", (*BY_WAITING, ("answered", "stranger"), ("tick", 99.0)),
        ["stranger sits", STRANGER_ASKED, "new stranger, 20 s goes"]),
    "a holder by waiting goes": (
        "warn", (*BY_WAITING, ("left", "stranger")), ["stranger sits", STRANGER_ASKED, "new stranger, 20 s sits"]),
    "who wanted the seat goes": ("warn", (*TAKEN, ("left", "new host, 20 s"), ("tick", 99.0)), ["host sits", ASKED]),
    "one asks at a time, and calling again gains no time": (
        "warn", (*TAKEN, ("claim", "third host, 21 s"), ("claim", "new host, 24 s"), ("tick", 25.0)),
        ["host sits", ASKED, "third host, 21 s goes", "new host, 20 s goes", "new host, 24 s asks host",
         "new host, 24 s sits", "host goes"]),
    "a proof is asked for no more than an address: the holder answers": (
        "off", (("claim", "host", True), ("claim", "new stranger, 20 s", True), ("answered", "host"), ("tick", 99.0)),
        ["host sits", "new stranger, 20 s asks host", "new stranger, 20 s goes"]),
    "a proof is asked for no more than an address: the holder does not answer": (
        "off", (("claim", "host", True), ("claim", "new stranger, 20 s", True), ("tick", 24.9), ("tick", 25.0)),
        ["host sits", "new stranger, 20 s asks host", "new stranger, 20 s sits", "host goes"]),
    "certainly the same": (
        "warn", (("claim", "host"), ("claim", "host again, 20 s")),
        ["host sits", "host again, 20 s sits", "host goes"]),
    "a later start replaces one that waits": (
        "warn", (("claim", "stranger"), ("claim", "new stranger, 5 s"), ("tick", 15.0)),
        ["stranger goes", "new stranger, 5 s sits"]),
}  # fmt: skip


@pytest.mark.parametrize("name", HISTORIES)
def test_history(name: str) -> None:
    check, steps, expected = HISTORIES[name]
    table, names = seats(check), {id(each): name for name, each in CALLS.items()}
    told: list[str] = []
    for step, *words in steps:
        if step != "resolved":
            words = [CALLS.get(each, each) for each in words]
        changes: list[Change] = getattr(table, step)(*words)
        told += [f"{names[id(change.call)]} sits" for change in changes if isinstance(change, Seated)]
        told += [f"{names[id(change.call)]} goes" for change in changes if isinstance(change, TurnedAway)]
        told += [
            f"{names[id(change.call)]} asks {names[id(change.holder)]}"
            for change in changes
            if isinstance(change, Contested)
        ]
    assert told == expected


def test_who_sits_by_a_mismatch_is_warned_about() -> None:
    table = seats()
    table.claim(CALLS["stranger"])
    (change,) = table.tick(10.0)
    assert isinstance(change, Seated)
    assert all(fact in change.warning for fact in ("algo-2", ELSEWHERE, HERE, "fd00::2"))


def test_who_sits_and_who_is_missing() -> None:
    table, host = seats(), CALLS["host"]
    table.claim(host)
    assert (table.taken, table.missing(), table.filled) == ({"algo-2": host}, {"algo-3"}, False)


def test_while_a_seat_is_contested_the_table_is_not_full() -> None:
    table, early = seats(), CALLS["host"]
    table.claim(early)
    table.claim(CALLS["new host, 20 s"])
    table.resolved("algo-3", ("10.0.0.3",))
    table.claim(CALLS["algo-3"])
    assert not table.filled
    table.answered(early)
    assert table.filled


def test_who_leaves_frees_the_seat() -> None:
    host, waiting = call(HERE), call("10.0.0.3", name="algo-3")
    table = seats()
    table.claim(host)
    table.claim(waiting)
    table.left(host)
    table.left(waiting)
    assert table.missing() == {"algo-2", "algo-3"}
    assert table.tick(99.0) == []


def test_a_crowd_of_strangers_is_bounded() -> None:
    table = seats()
    results = [table.claim(call(f"10.9.9.{number}")) for number in range(9)]
    assert sum(bool(turned(changes)) for changes in results) == 5


def test_a_welcome_holds_what_a_host_needs_to_resume() -> None:
    state: Any = SimpleNamespace(ticket=Ticket("t", "a"))
    message = wire.unpack(Call(Hello("algo-2", OFFER, "one"), state, HERE, 0.0).welcome("algo-1")[wire.HEAD :])
    assert message == {"t": "welcome", "host": "algo-1", "job": "job", "token": "t", "answer": "a"}


CLAIMS = st.builds(Claim, *[st.booleans()] * 4)
CHECKS = st.sampled_from(["warn", "strict", "off"])


@given(CLAIMS, st.none() | st.builds(Holder, *[st.booleans()] * 4), CHECKS)
def test_one_rule_for_every_claim(claim: Claim, holder: Holder | None, check: Check) -> None:
    ruled = ruling(claim, holder, check)
    known = claim.proved or claim.itself or claim.at_name or claim.at_holder
    if claim.itself:
        assert ruled == "seat"
    elif holder is not None and holder.lives:
        assert known or ruled in ("wait", "refuse"), "a session that isn't over ends for a proof or an address only"
        gone = claim.proved and holder.cut
        better = claim.at_name and not (holder.at_name or holder.running)
        assert (ruled == "seat") == (gone or better), "who has a connection is asked before, whatever is proved"
    elif claim.proved:
        assert ruled == "seat"
    elif check != "off" and not claim.at_name:
        assert ruled == "wait" or (holder is not None and claim.at_holder), "nobody else has a seat at once"


@given(CHECKS, st.lists(st.sampled_from([HERE, ELSEWHERE, "10.4.4.4"]), max_size=8), st.sampled_from([HERE, ELSEWHERE]))
def test_while_the_job_runs_no_seat_goes_by_waiting(check: Check, callers: list[str], earlier: str) -> None:
    """However long it waits: a caller has the name's address, or the one that the host was admitted with."""
    table = Seats(["algo-2"], check, 10.0, 5.0, lambda name: earlier)
    table.resolved("algo-2", (HERE,))
    changes: list[Change] = []
    for at, address in enumerate(callers):
        changes += table.claim(call(address, 100.0 * at, incarnation=str(at)))
        changes += table.tick(100.0 * at + 99)
    allowed = {HERE, earlier} if check != "off" else {HERE, ELSEWHERE, "10.4.4.4"}
    assert {each.address for each in seated(changes)} <= allowed
    assert bool(seated(changes)) == any(address in allowed for address in callers)
