"""Curves from a file of values that anyone may have written."""

from __future__ import annotations

import json
from pathlib import Path

from musterpoint.tools.viewer.curves import FILE, MOST_CURVES, read_curves, thinned


def row(value: object, name: object = "loss", host: object = "algo-1", at: object = 10.0) -> str:
    return json.dumps({"MetricName": name, "Host": host, "Timestamp": at, "Value": value})


def test_a_line_for_each_host(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text("\n".join([row(1), row(2, host="algo-2", at=11), row(0.5, at=12), row(9, "acc")]))
    loss, acc = read_curves(str(tmp_path), 10.0)
    assert (loss.name, loss.last, acc.last) == ("loss", 0.5, 9.0)
    assert [(line.host, line.points) for line in loss.lines] == [
        ("algo-1", ((0.0, 1.0), (2.0, 0.5))), ("algo-2", ((1.0, 2.0),)),
    ]  # fmt: skip


def test_what_is_no_value_is_passed_over(tmp_path: Path) -> None:
    wrong = ["", "[]", "{", "[" * 3000, row("1"), row(True), row(1, name=None), row(1, at=None), '{"Value": 1}']
    wrong += [row(1).replace(": 1", ": NaN"), row(1).replace(": 1", ": 1" + "0" * 400), "x" * 10_000, "\x00"]
    (tmp_path / FILE).write_text("\n".join([*wrong, row(4)]))
    assert [curve.last for curve in read_curves(str(tmp_path), 0.0)] == [4.0]
    assert read_curves(str(tmp_path / "none"), 0.0) == ()


def test_names_are_bounded_and_printable(tmp_path: Path) -> None:
    names = ["\x1b[31m" + "n" * 1000, *(f"m{number}" for number in range(200))]
    (tmp_path / FILE).write_text("\n".join(row(1, name) for name in names))
    curves = read_curves(str(tmp_path), 0.0)
    assert len(curves) == MOST_CURVES
    assert curves[0].name.startswith("\\x1b[31mnn")
    assert len(curves[0].name) <= 255


def test_a_long_line_keeps_its_ends_and_extremes() -> None:
    points = [(float(at), 1.0) for at in range(10_000)]
    points[5_001] = (5_001.0, 99.0)
    points[7_003] = (7_003.0, -99.0)
    kept = thinned(points)
    assert len(kept) <= 400
    assert {points[0], points[-1], points[5_001], points[7_003]} <= {*kept}
    assert [*kept] == sorted(kept)
