"""What log rules find in output: as histories of lines and times, and by the program itself, which no pattern stops."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from musterpoint.core.job.log_rules import LogRule, to_json
from musterpoint.embedded.programs import log_matcher
from musterpoint.embedded.programs.log_matcher import GAP, HEADER, LONGEST_LINE, Matcher

Found = tuple[str, Any]


def play(rule: LogRule, *steps: Any) -> list[Found]:
    """Each step is a time, and what it brings: a rank and its bytes; ``missed`` bytes, ``forgiven`` seconds, or
    nothing."""
    found: list[Found] = []
    matcher = Matcher(json.loads(to_json((rule,))), 0.0, lambda each: found.append((each["kind"], each.get("rank"))))
    for now, *what in steps:
        if not what:
            matcher.check(now)
        elif what[0] == "missed":
            matcher.missed(now)
        elif what[0] == "forgiven":
            matcher.forgive(what[1])
        else:
            rank, data = what
            matcher.feed(now, rank, rank, data)
    return found


START = LogRule("start", ".*begin", start=10)
AGAIN = LogRule("again", ".*step", recurring=10)
BOUND = LogRule("bound", r"loss (\S+)", threshold=5, operator="gt", points=2)
FAULT = LogRule("fault", "Xid", fault=True)
FRESH, LATE, OVERDUE = ("fresh", None), ("late", None), ("overdue", None)


@pytest.mark.parametrize(
    ("rule", "steps", "found"),
    [
        (START, [(9.9,)], []),
        (START, [(10,), (20,)], [LATE]),
        (START, [(3, 1, b"we begin\n"), (20,)], [FRESH]),
        (START, [(3, 1, b"we beg"), (4, 1, b"in now\n"), (20,)], [FRESH]),  # a line in two pieces
        (START, [(3, 1, b"we begin"), (20,)], [LATE]),  # not a line yet
        (START, [(3, 1, b" 1%\rwe begin\r"), (20,)], [FRESH]),  # as a progress bar ends its lines
        (START, [(12, 1, b"we begin\n")], [LATE, FRESH]),
        (START, [(4, "missed"), (13.9,), (14,)], [("gap", None), LATE]),
        (START, [(9, "forgiven", 60), (69,), (70,)], [LATE]),
        (AGAIN, [(100,)], []),  # silent until the first match
        (AGAIN, [(5, 0, b"step 1\n"), (14, 0, b"step 2\n"), (23.9,)], [FRESH]),
        (AGAIN, [(5, 0, b"step 1\n"), (14, 0, b"step 2\n"), (24,), (40,)], [FRESH, OVERDUE]),
        (AGAIN, [(5, 0, b"step 1\n"), (30, 1, b"step 9\n"), (41,)], [FRESH, OVERDUE, FRESH, OVERDUE]),
        (AGAIN, [(5, 0, b"step 1\n"), (9, 1, b"step 1\n"), (15,)], [FRESH]),  # a line of any rank
        (AGAIN, [(5, 0, b"step 1\n"), (6, "forgiven", 60), (74.9,), (75,)], [FRESH, OVERDUE]),
        (AGAIN, [(5, 0, b"step 1\n"), (14, "missed"), (23.9,), (24,)], [FRESH, ("gap", None), OVERDUE]),
        (AGAIN._replace(stop="done"), [(5, 0, b"step 1\ndone\n"), (50,)], [FRESH, ("off", None)]),
        (
            AGAIN._replace(ranks="all"),
            [(5, 0, b"step 1\n"), (9, 1, b"step 1\n"), (15,), (19,)],
            [("fresh", 0), ("fresh", 1), ("overdue", 0), ("overdue", 1)],
        ),
        (AGAIN._replace(ranks=(1,)), [(5, 0, b"step 1\n"), (9, 1, b"step 1\n"), (19,)], [("fresh", 1), ("overdue", 1)]),
        (START._replace(ranks="all"), [(5, 0, b"begin\n"), (10,)], [("fresh", 0), LATE]),  # others may not have come
        (BOUND, [(1, 0, b"loss 6\nloss 1\nloss 6\n")], []),
        (BOUND, [(1, 0, b"loss 6\n"), (2, 1, b"loss 6\n")], []),  # a row is one rank's
        (BOUND, [(1, 0, b"loss 6\nloss 5.5\nloss 9\n")], [("metric", 0)]),
        (BOUND, [(1, 0, b"loss nan\nloss -NaN\n")], [("metric", 0)]),
        (BOUND, [(1, 0, b"loss inf\nloss inf\nloss 1\nloss 1e9\nloss 1e9\n")], [("metric", 0), ("metric", 0)]),
        (BOUND, [(1, 0, b"loss n/a\nloss ?\n")], []),  # no number: nothing is known
        (BOUND._replace(operator="lt"), [(1, 0, b"loss nan\nloss 4\n")], [("metric", 0)]),
        (BOUND._replace(operator="eq"), [(1, 0, b"loss 5\nloss 5.0\n")], [("metric", 0)]),
        (BOUND._replace(operator="gteq", points=1), [(1, 0, b"loss 5\n")], [("metric", 0)]),
        (BOUND._replace(operator="lteq", points=1), [(1, 0, b"loss 5.1\nloss 5\n")], [("metric", 0)]),
        (FAULT, [(1, 2, b"an Xid\n")], []),  # from a line's beginning
        (FAULT, [(1, 2, b"Xid 79\nXid 79\n"), (2, 3, b"Xid 79\n")], [("fault", 2), ("fault", 3)]),
        (FAULT, [(1, 2, b"x" * LONGEST_LINE + b"\xff" * 10**6 + b"\nXid \xff\n")], [("fault", 2)]),
    ],
)  # fmt: skip
def test_histories(rule: LogRule, steps: list[Any], found: list[Found]) -> None:
    expected = found if rule.start or rule.recurring else [each for each in found if each[0] != "fresh"]
    said = play(rule, *steps)
    assert [each for each in said if each[0] != "fresh" or rule.start or rule.recurring] == expected


@given(st.lists(st.sampled_from([b"a", b"\n", b"\r", b"\xc3\xa9", b"Xid", b" "]), max_size=40), st.data())
def test_lines_are_the_same_in_whatever_pieces_they_come(parts: list[bytes], data: st.DataObject) -> None:
    whole = b"".join(parts)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=5)))
    once, pieces = Matcher([], 0.0, print), Matcher([], 0.0, print)
    found = [
        line
        for begin, end in zip([0, *cuts], [*cuts, len(whole)], strict=True)
        for line in pieces._lines(1, whole[begin:end])
    ]
    assert found == once._lines(1, whole)


def run(tmp_path: Path, rules: tuple[LogRule, ...], *frames: bytes) -> list[dict[str, Any]]:
    """What the program finds in such frames."""
    (tmp_path / "rules").write_text(to_json(rules))
    words = [sys.executable, "-I", "-S", log_matcher.__file__, str(tmp_path / "rules")]
    done = subprocess.run(words, input=b"".join(frames), capture_output=True, timeout=500, check=True)
    assert not done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_a_pattern_that_takes_for_ever_is_turned_off_and_the_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = Path(log_matcher.__file__).read_text()
    assert text.count("SLOWEST = 5.0") == 1
    quick = tmp_path / "log_matcher.py"
    quick.write_text(text.replace("SLOWEST = 5.0", "SLOWEST = 0.1"))
    monkeypatch.setattr(log_matcher, "__file__", str(quick))
    rules = LogRule("endless", r"(a+)+$"), FAULT
    data = b"a" * 60 + b"!\nXid 79\n"
    gap = HEADER.pack(0.0, 7, 4, GAP)
    found = run(tmp_path, rules, HEADER.pack(0.0, 7, 4, len(data)) + data, gap, HEADER.pack(0.0, 7, 4, 5) + b"aaaa\n")
    assert [(each["kind"], each.get("rule"), each.get("line")) for each in found] == [
        ("slow", 0, ""), ("fresh", 1, ""), ("fault", 1, "Xid 79"), ("gap", None, None),
    ]  # fmt: skip
