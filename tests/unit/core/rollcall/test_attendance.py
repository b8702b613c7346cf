"""What the leader says of each host at each stage."""

from __future__ import annotations

from typing import Any, Iterator

import pytest

from musterpoint.base.loop import Loop
from musterpoint.core.channel.connection_log import ConnectionLog
from musterpoint.core.channel.link import Context
from musterpoint.core.channel.names import Answer, Names
from musterpoint.core.channel.timeouts import Timeouts
from musterpoint.core.rollcall.admission import Call, Seats
from musterpoint.core.rollcall.attendance import (
    UNANSWERED,
    Attendance,
    HostRow,
    ProgressPrinter,
    oddities,
    sentence,
    table,
)
from musterpoint.core.rollcall.hello import Hello, Refusal
from musterpoint.core.rollcall.roster import Offer

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
def attendance(seats: Seats) -> Iterator[Attendance]:
    loop = Loop()
    yield Attendance(HOSTS, "algo-1", Names(loop, FIXED), seats, True)
    loop.close()


def test_a_row_for_each_stage(attendance: Attendance, seats: Seats) -> None:
    assert attendance.rows([])[0] == HostRow("algo-2", "connect", "has not called yet", "10.0.0.2")
    assert attendance.rows(["10.0.0.2"])[0] == HostRow(
        "algo-2", "hello", "connected, but has not said who it is", "10.0.0.2"
    )
    odd = "algo-2 calls from 10.9.9.9, but its name resolves to 10.0.0.2 on this host"
    seats.claim(call(HELLO, "10.9.9.9"))
    assert attendance.rows([])[0] == HostRow("algo-2", "hello", odd, "10.9.9.9")
    attendance.refused["algo-2"] = (Refusal("it is of job 'x'", "belongs to another job"), "10.0.0.2")
    assert attendance.rows([])[0] == HostRow("algo-2", "hello", "refused: it is of job 'x'", "10.0.0.2")
    seats.claim(call(HELLO, "10.0.0.2"))
    assert [row.host for row in attendance.rows([])] == ["algo-3"]
    assert attendance.sentence([]) == "2 of 3 hosts here; waiting for algo-3 (has not called yet)"


def call(hello: Hello, address: str) -> Call:
    unused: Any = None
    return Call(hello, unused, address, 0.0)


def test_the_leaders_address_is_what_most_of_those_with_a_seat_dialled() -> None:
    hosts = tuple(f"algo-{number}" for number in range(1, 5))
    seats = Seats(hosts[1:], "warn", 10.0, 5.0)
    loop = Loop()
    attendance = Attendance(hosts, "algo-1", Names(loop, {}), seats, True)
    assert attendance.address() == "127.0.0.1"
    attendance.own_resolved(Answer(("127.0.1.1",)))
    for host, dialled in zip(hosts[1:], ("10.0.0.1", "10.5.0.1", "10.0.0.1")):
        for number in range(4):
            other = HELLO._replace(host=host, dialled="6.6.6.6", incarnation="x")
            seats.claim(call(other, f"10.6.6.{number}"))
        assert attendance.address() == ("127.0.1.1" if host == "algo-2" else "10.0.0.1")
        seats.resolved(host, ("10.0.0.7",))
        seats.claim(call(HELLO._replace(host=host, dialled=dialled), "10.0.0.7"))
    assert attendance.address() == "10.0.0.1"
    loop.close()


def test_what_somebody_says_who_may_be_another_is_not_repeated(attendance: Attendance) -> None:
    attendance.refused["algo-2"] = (Refusal("algo-2 belongs to job 'evil'", "belongs to another job"), "10.9.9.9")
    detail = "refused: somebody there calls itself algo-2 and belongs to another job"
    assert attendance.rows([])[0] == HostRow("algo-2", "hello", detail, "10.9.9.9")


def test_strangers_have_one_line(attendance: Attendance) -> None:
    attendance.own_resolved(Answer(("127.0.0.1",)))
    for number in range(1000):
        attendance.refused_stranger("is no host of this job", f"10.6.{number % 7}.1")
    assert attendance.remarks() == ["1000 calls refused, the last from 10.6.5.1: the caller is no host of this job"]


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
    attendance: Attendance, own: tuple[str, ...], sees: tuple[str, ...], odd: bool
) -> None:
    attendance.own_resolved(Answer(own))
    attendance.seated(HELLO._replace(sees=sees))
    assert any("on algo-2" in remark for remark in attendance.remarks()) == odd


def test_there_is_room_for_a_few_notes(attendance: Attendance) -> None:
    attendance.own_resolved(Answer(("127.0.0.1",)))
    for number in range(100):
        attendance.note(f"refused {number}")
    assert len(attendance.remarks()) == 8


@pytest.mark.parametrize(
    ("own", "over", "said"),
    [
        (UNANSWERED, False, []),
        (UNANSWERED, True, ["warning: on algo-1 its own name: the name was not answered yet"]),
        (Answer((), "no such name"), False, ["warning: on algo-1 its own name: no such name"]),
        (Answer(("127.0.0.1",)), True, []),
        (
            Answer(("198.51.100.7",)),
            False,
            ["warning: algo-1 resolves to 198.51.100.7 here, which is none of its addresses"],
        ),
    ],
)
def test_oddities(own: Answer, over: bool, said: list[str]) -> None:
    assert oddities("algo-1", own, over) == said


GONE = "the name does not resolve (no such name)"
QUIET = "has not called yet"


def test_hosts_with_one_trouble_share_it() -> None:
    rows = [HostRow("algo-7", "name", GONE), HostRow("algo-8", "connect", QUIET), HostRow("algo-9", "connect", QUIET)]
    assert sentence(1000, rows) == (
        "997 of 1000 hosts here; waiting for algo-7 (the name does not resolve (no such name)), "
        "algo-8, algo-9 (has not called yet)"
    )
    assert sentence(3, []) == "3 of 3 hosts here"


def test_a_line_stays_a_line() -> None:
    rows = [HostRow(f"algo-{n}", "connect", QUIET) for n in range(500)] + [
        HostRow(f"b-{n}", "hello", str(n)) for n in range(9)
    ]
    line = sentence(1000, rows)
    assert "algo-0, algo-1, algo-2 and 497 more (has not called yet)" in line
    assert line.endswith("and 7 more")
    assert len(line) < 200


def test_the_table() -> None:
    rows = [HostRow("algo-3", "name", GONE), HostRow("algo-10", "connect", QUIET, "10.0.0.10")]
    assert table("too late", 4, rows, ["warning: odd"]).splitlines() == [
        "too late",
        "host     stage    detail",
        "algo-3   name     the name does not resolve (no such name)",
        "algo-10  connect  10.0.0.10: has not called yet",
        "2 of 4 hosts are here",
        "warning: odd",
    ]


def test_a_long_table_is_cut_and_counted() -> None:
    rows = [HostRow(f"algo-{n}", "connect" if n % 2 else "name", QUIET) for n in range(100)]
    lines = table("too late", 100, rows, []).splitlines()
    assert lines[-2:] == ["… and 60 more: 30 at name, 30 at connect", "0 of 100 hosts are here"]


def test_a_line_is_said_when_it_changes_and_not_too_often() -> None:
    now = 0.0
    loop = Loop(lambda: now)
    line = "one"
    said: list[tuple[float, str]] = []
    log = ConnectionLog(lambda text: said.append((now, text)), lambda *a, **k: None)
    context = Context(loop, Timeouts(retry_most=2.0, progress=10.0), log)
    printer = ProgressPrinter(context, lambda: line)
    for step in range(400):
        now = step / 10
        line = "two" if now > 3 else "one"
        loop.turn(0)
    printer.stop()
    loop.close()
    assert said == [(2.0, "one"), (12.0, "two")]
