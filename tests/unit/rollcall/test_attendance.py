"""What the leader says of each host at each stage."""

from __future__ import annotations

from typing import Iterator, NamedTuple

import pytest

from musterpoint.channel.names import Answer, Names
from musterpoint.loop import Loop
from musterpoint.rollcall.attendance import Attendance
from musterpoint.rollcall.hello import Hello, Refusal
from musterpoint.rollcall.progress import Row
from musterpoint.rollcall.roster import Offer
from musterpoint.rollcall.seats import Call, Seats

HOSTS = ("algo-1", "algo-2", "algo-3")
FIXED = {"algo-2": ("10.0.0.2",), "algo-3": ("10.0.0.3",)}
HELLO = Hello("algo-2", Offer("job", "torchrun", 1, ""), "one")


@pytest.fixture
def seats() -> Seats:
    seats = Seats(HOSTS[1:], "warn", 10.0, 5.0)
    for name, addresses in FIXED.items():
        seats.resolved(name, addresses)
    return seats


@pytest.fixture
def view(seats: Seats) -> Iterator[Attendance]:
    loop = Loop()
    yield Attendance(HOSTS, "algo-1", Names(loop, FIXED), seats, True)
    loop.close()


def test_a_row_for_each_stage(view: Attendance, seats: Seats) -> None:
    assert view.rows([])[0] == Row("algo-2", "connect", "has not called yet", "10.0.0.2")
    assert view.rows(["10.0.0.2"])[0] == Row("algo-2", "hello", "connected, but has not said who it is", "10.0.0.2")
    odd = "algo-2 calls from 10.9.9.9, but its name resolves to 10.0.0.2 on this host"
    seats.claim(Call("algo-2", None, "one", "10.9.9.9", 0.0))
    assert view.rows([])[0] == Row("algo-2", "hello", odd, "10.9.9.9")
    view.refused["algo-2"] = (Refusal("it is of job 'x'", "belongs to another job"), "10.0.0.2")
    assert view.rows([])[0] == Row("algo-2", "hello", "refused: it is of job 'x'", "10.0.0.2")
    seats.claim(Call("algo-2", None, "one", "10.0.0.2", 0.0))
    assert [row.host for row in view.rows([])] == ["algo-3"]
    assert view.sentence([]) == "2 of 3 hosts here; waiting for algo-3 (has not called yet)"


class Caller(NamedTuple):
    hello: Hello


def test_the_leaders_address_is_what_most_of_those_with_a_seat_dialled() -> None:
    hosts = tuple(f"algo-{number}" for number in range(1, 5))
    seats = Seats(hosts[1:], "warn", 10.0, 5.0)
    loop = Loop()
    view = Attendance(hosts, "algo-1", Names(loop, {}), seats, True)
    assert view.address() == "127.0.0.1"
    view.own = Answer(("127.0.1.1",))
    for host, dialled in zip(hosts[1:], ("10.0.0.1", "10.5.0.1", "10.0.0.1")):
        for number in range(4):
            seats.claim(Call(host, Caller(HELLO._replace(host=host, dialled="6.6.6.6")), "x", f"10.6.6.{number}", 0.0))
        assert view.address() == ("127.0.1.1" if host == "algo-2" else "10.0.0.1")
        seats.resolved(host, ("10.0.0.7",))
        seats.claim(Call(host, Caller(HELLO._replace(host=host, dialled=dialled)), "one", "10.0.0.7", 0.0))
    assert view.address() == "10.0.0.1"
    loop.close()


def test_what_somebody_says_who_may_be_another_is_not_repeated(view: Attendance) -> None:
    view.refused["algo-2"] = (Refusal("algo-2 belongs to job 'evil'", "belongs to another job"), "10.9.9.9")
    detail = "refused: somebody there calls itself algo-2 and belongs to another job"
    assert view.rows([])[0] == Row("algo-2", "hello", detail, "10.9.9.9")


def test_strangers_have_one_line(view: Attendance) -> None:
    view.own = Answer(("127.0.0.1",))
    for number in range(1000):
        view.stranger("is no host of this job", f"10.6.{number % 7}.1")
    assert view.remarks() == ["1000 calls refused, the last from 10.6.5.1: the caller is no host of this job"]


@pytest.mark.parametrize(
    ("own", "sees", "odd"),
    [
        (("10.0.0.1",), ("10.0.0.1", "10.0.0.9"), False),
        (("10.0.0.1",), ("10.0.0.9",), True),
        (("127.0.1.1",), ("10.0.0.1",), False),
        (("10.0.0.1",), (), False),
    ],
    ids=["one in common", "none in common", "its own name is loopback", "not known there"],
)
def test_different_views_of_the_leader(
    view: Attendance, own: tuple[str, ...], sees: tuple[str, ...], odd: bool
) -> None:
    view.own = Answer(own)
    view.hear(HELLO._replace(sees=sees))
    assert any("on algo-2" in remark for remark in view.remarks()) == odd


def test_there_is_room_for_a_few_notes(view: Attendance) -> None:
    view.own = Answer(("127.0.0.1",))
    for number in range(100):
        view.note(f"refused {number}")
    assert len(view.remarks()) == 8
