"""What people read while hosts are missing, and at the end."""

from __future__ import annotations

from musterpoint.channel.connection_log import ConnectionLog
from musterpoint.channel.context import Context
from musterpoint.channel.timeouts import Timeouts
from musterpoint.loop import Loop
from musterpoint.rollcall.progress import ProgressPrinter, Row, sentence, table

GONE = "the name does not resolve (no such name)"
QUIET = "has not called yet"


def test_everybody_is_here() -> None:
    assert sentence(3, []) == "3 of 3 hosts here"


def test_hosts_with_one_trouble_share_it() -> None:
    rows = [Row("algo-7", "name", GONE), Row("algo-8", "connect", QUIET), Row("algo-9", "connect", QUIET)]
    assert sentence(1000, rows) == (
        "997 of 1000 hosts here; waiting for algo-7 (the name does not resolve (no such name)), "
        "algo-8, algo-9 (has not called yet)"
    )


def test_a_line_stays_a_line() -> None:
    rows = [Row(f"algo-{n}", "connect", QUIET) for n in range(500)] + [Row(f"b-{n}", "hello", str(n)) for n in range(9)]
    line = sentence(1000, rows)
    assert "algo-0, algo-1, algo-2 and 497 more (has not called yet)" in line
    assert line.endswith("and 7 more")
    assert len(line) < 200


def test_the_table() -> None:
    rows = [Row("algo-3", "name", GONE), Row("algo-10", "connect", QUIET, "10.0.0.10")]
    assert table("too late", 4, rows, ["warning: odd"]).splitlines() == [
        "too late",
        "host     stage    detail",
        "algo-3   name     the name does not resolve (no such name)",
        "algo-10  connect  10.0.0.10: has not called yet",
        "2 of 4 hosts are here",
        "warning: odd",
    ]


def test_a_long_table_is_cut_and_counted() -> None:
    rows = [Row(f"algo-{n}", "connect" if n % 2 else "name", QUIET) for n in range(100)]
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
