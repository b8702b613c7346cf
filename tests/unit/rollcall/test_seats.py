"""Calls for seats, names' addresses and time against who sits."""

from __future__ import annotations

import pytest

from musterpoint.rollcall.seats import Call, Change, Seated, Seats, Turned

HERE, ELSEWHERE = "10.0.0.2", "10.9.9.9"


def call(address: str, since: float = 0.0, name: str = "algo-2", incarnation: str = "one") -> Call:
    return Call(name, object(), incarnation, address, since)


def seats(check: str = "warn") -> Seats:
    table = Seats(["algo-2", "algo-3"], check, 10.0)
    table.resolved("algo-2", (HERE, "fd00::2"))
    return table


def seated(changes: list[Change]) -> list[Call]:
    return [change.call for change in changes if isinstance(change, Seated)]


def turned(changes: list[Change]) -> list[Call]:
    return [change.call for change in changes if isinstance(change, Turned)]


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
    assert turned(table.claim(stranger)) == [stranger]


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


@pytest.mark.parametrize("address", [HERE, ELSEWHERE])
def test_a_later_start_replaces_the_earlier(address: str) -> None:
    early, late = call(address, 0.0), call(address, 20.0, incarnation="two")
    table = seats()
    table.claim(early)
    table.tick(10.0)
    changes = table.claim(late)
    assert (seated(changes), turned(changes)) == ([late], [early])


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
