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


@pytest.mark.parametrize("address", [HERE, "fd00::2"])
def test_any_address_of_the_name_takes_the_seat(address: str) -> None:
    one = call(address)
    table = seats()
    assert table.claim(one) == [Seated(one)]
    assert table.taken == {"algo-2": one}
    assert table.missing() == {"algo-3"}
    assert not table.filled


def test_a_mismatch_waits_then_sits_with_a_warning() -> None:
    one = call(ELSEWHERE, 5.0)
    table = seats()
    assert table.claim(one) == []
    assert table.tick(14.9) == []
    (change,) = table.tick(15.0)
    assert change == Seated(one, "algo-2 calls from 10.9.9.9, but its name resolves to 10.0.0.2, fd00::2 on this host")


def test_a_match_in_time_beats_a_mismatch() -> None:
    stranger, host = call(ELSEWHERE), call(HERE, 9.0)
    table = seats()
    table.claim(stranger)
    changes = table.claim(host)
    assert seated(changes) == [host]
    assert turned(changes) == [stranger]
    assert table.tick(99.0) == []


def test_a_match_even_takes_the_seat_from_a_mismatch() -> None:
    stranger, host = call(ELSEWHERE), call(HERE, 30.0)
    table = seats()
    table.claim(stranger)
    table.tick(10.0)
    changes = table.claim(host)
    assert (seated(changes), turned(changes)) == ([host], [stranger])


def test_a_mismatch_takes_nobodys_seat() -> None:
    host, stranger = call(HERE), call(ELSEWHERE)
    table = seats()
    table.claim(host)
    again = stranger._replace(hello=stranger.hello._replace(incarnation="two"))
    assert turned(table.claim(again)) == [again]


def test_the_name_resolves_late() -> None:
    one = call("10.0.0.3", name="algo-3")
    table = seats()
    assert table.claim(one) == []
    assert table.resolved("algo-3", ("10.0.0.4",)) == []
    assert seated(table.resolved("algo-3", ("10.0.0.4", "10.0.0.3"))) == [one]


def test_strict_never_seats_a_mismatch_and_off_always() -> None:
    strict = seats("strict")
    strict.claim(call(ELSEWHERE))
    assert strict.tick(1e6) == []
    assert seated(seats("off").claim(call(ELSEWHERE)))


def test_a_proof_needs_no_address() -> None:
    assert seated(seats("strict").claim(call(ELSEWHERE), proved=True))


def taken_from(address: str) -> tuple[Seats, Call, Call]:
    """A host that holds its seat, and a later caller that says it is that host."""
    early, late = call(address, 0.0), call(address, 20.0, incarnation="two")
    table = seats()
    table.claim(early)
    table.tick(10.0)
    assert table.claim(late) == [Contested(late, early)]
    assert table.taken == {"algo-2": early}
    return table, early, late


@pytest.mark.parametrize("address", [HERE, ELSEWHERE])
def test_a_later_start_replaces_an_earlier_that_does_not_answer(address: str) -> None:
    table, early, late = taken_from(address)
    assert table.tick(24.9) == []
    changes = table.tick(25.0)
    assert (seated(changes), turned(changes)) == ([late], [early])
    assert table.tick(99.0) == []


@pytest.mark.parametrize("address", [HERE, ELSEWHERE])
def test_a_holder_that_answers_keeps_its_seat(address: str) -> None:
    table, early, late = taken_from(address)
    assert turned(table.answered(early)) == [late]
    assert table.answered(early) == []
    assert table.tick(99.0) == []
    assert table.taken == {"algo-2": early}


@pytest.mark.parametrize("address", [HERE, ELSEWHERE])
def test_a_holder_that_goes_leaves_its_seat_to_the_later(address: str) -> None:
    table, early, late = taken_from(address)
    assert seated(table.left(early)) == [late]
    assert table.taken == {"algo-2": late}


def test_who_wanted_the_seat_and_goes_changes_nothing() -> None:
    table, early, late = taken_from(HERE)
    assert table.left(late) == []
    assert table.tick(99.0) == []
    assert table.taken == {"algo-2": early}


def test_one_asks_at_a_time_and_calling_again_gains_no_time() -> None:
    table, early, late = taken_from(HERE)
    other, again = call(HERE, 21.0, incarnation="three"), call(HERE, 24.0, incarnation="two")
    assert turned(table.claim(other)) == [other]
    assert turned(table.claim(again)) == [late]
    assert seated(table.tick(25.0)) == [again]
    assert not table.filled
    assert early not in table.taken.values()


@pytest.mark.parametrize("proved", [True, False])
def test_who_is_certainly_the_same_or_a_later_start_takes_its_seat_at_once(proved: bool) -> None:
    early, late = call(HERE), call(HERE, 20.0, incarnation="two" if proved else "one")
    table = seats()
    table.claim(early)
    changes = table.claim(late, proved)
    assert (seated(changes), turned(changes)) == ([late], [early])


def test_while_a_seat_is_contested_the_table_is_not_full() -> None:
    table, early, _late = taken_from(HERE)
    table.resolved("algo-3", ("10.0.0.3",))
    table.claim(call("10.0.0.3", name="algo-3"))
    assert not table.filled
    table.answered(early)
    assert table.filled


def test_a_later_start_replaces_one_that_waits() -> None:
    early, late = call(ELSEWHERE, 0.0), call(ELSEWHERE, 5.0, incarnation="two")
    table = seats()
    table.claim(early)
    assert turned(table.claim(late)) == [early]
    assert seated(table.tick(15.0)) == [late]


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


CLAIMS = st.builds(Claim, *[st.booleans()] * 5)
CHECKS = st.sampled_from(["warn", "strict", "off"])


@given(CLAIMS, st.none() | st.builds(Holder, st.booleans(), st.booleans(), st.booleans()), CHECKS)
def test_one_rule_for_every_claim(claim: Claim, holder: Holder | None, check: Check) -> None:
    ruled = ruling(claim, holder, check)
    sure = claim.proved or claim.itself
    known = sure or claim.member or claim.at_name or claim.at_holder
    if holder is not None and holder.lives:
        assert known or ruled in ("wait", "refuse"), "a session that isn't over ends for a proof or an address only"
        assert sure or ruled != "seat" or (claim.at_name and not holder.at_name), "a holder is asked before"
    elif check != "off" and not (sure or claim.at_name):
        assert ruled == "wait" or (holder is not None and claim.at_holder), "nobody else has a seat at once"
    if sure:
        assert ruled == "seat"


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
