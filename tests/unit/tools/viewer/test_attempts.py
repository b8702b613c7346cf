"""What a job that was started again left: every sentence, lane and table knows attempts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from musterpoint.tools.viewer.history import History
from musterpoint.tools.viewer.lanes import Lane
from musterpoint.tools.viewer.page import MOST_UNFOLDED, to_html
from musterpoint.tools.viewer.perfetto import to_perfetto
from musterpoint.tools.viewer.text import answers, to_text

from .test_viewer import read_left, row


def attempt(name: str, rank: int, number: int, begin: float, statuses: tuple[int, int]) -> list[dict[str, Any]]:
    """What a host of one rank does in attempt ``number`` (from 0), which takes 2 s; ``statuses``: of both ranks."""
    status = statuses[rank]
    culprit = culprit_of(statuses)
    rows = [
        row(name, begin + 0.2, "rank-started", name=f"rank {rank}", pid=7, rank=rank),
        row(name, begin + 1.5, "rank-ended", rank=rank, status=status, signalled=status == -15, oom=False,
            first_output=1000.0 + begin + 0.5),
    ]  # fmt: skip
    if culprit is not None:
        code = abs(statuses[culprit])
        blamed = {"of": f"a-{culprit + 1}", "rank": culprit, "code": code}
        rows += [
            row(name, begin + 1.6, "job-failed", **blamed),
            row(name, begin + 1.8, "job-ended", code=code),
            row(name, begin + 1.9, "attempt-over", attempt=number, seconds=1.9, reason=REASON, **blamed),
        ]
    else:
        rows.append(row(name, begin + 1.8, "job-ended", code=0))
    return rows


def culprit_of(statuses: tuple[int, int]) -> int | None:
    """The rank that failed by itself."""
    return next((rank for rank, status in enumerate(statuses) if status not in (0, -15)), None)


REASON = "rank 0 (local rank 0) on a-1, killed by SIGKILL (exit code 137)"
ATTEMPTS = [(-9, -15), (-15, 7), (0, 0)]


def history_of(folder: Path, attempts: list[tuple[int, int]], late: bool = False) -> History:
    """A job of two hosts, one rank each, with these statuses of its ranks in each attempt. ``late``: the second host
    took the place of a lost one after the first attempt.
    """
    rows = [row("control plane", 0, "phase", status="Starting")]
    for rank, name in enumerate(("a-1", "a-2")):
        begins = 3.0 if late and rank else 1.0
        rows += [
            row(name, begins, "entry-point-started", version="1"),
            row(name, begins + 0.5, "rollcall-started", hosts=2, leader="a-1"),
            row(name, begins + 1.0 + (late and rank), "rollcall-done", hosts=2, seconds=0.5),
        ]
        for number, statuses in enumerate(attempts):
            if late and rank and not number:
                continue
            begin = 2.0 + 3 * number
            if number and not (late and rank and number == 1):
                rows.append(row(name, begin, "restart", attempt=number, master_port=7))
            rows += attempt(name, rank, number, begin, statuses)
    culprit = culprit_of(attempts[-1])
    code = 0 if culprit is None else attempts[-1][culprit]
    folder.mkdir(exist_ok=True)
    outcome: dict[str, Any] = {"code": code, "class": "done", "host": "", "rank": None, "reason": ""}
    if code:
        outcome = {"code": code, "class": "user", "host": "a-2", "rank": 1, "reason": "ValueError: no"}
    return read_left(folder, rows, outcome)


@pytest.fixture
def history(tmp_path: Path) -> History:
    return history_of(tmp_path / "job", ATTEMPTS)


@pytest.fixture
def lanes(history: History) -> tuple[Lane, ...]:
    return history.lanes


def test_a_job_that_went_well_in_its_third_attempt_says_what_ended_the_others(
    history: History, lanes: tuple[Lane, ...]
) -> None:
    assert answers(history) == (
        "The job went well in attempt 3 of 3: every rank ended with 0, after 9.8 s.",
        "What ended attempt 1 of 3: rank 0 on a-1, 3.5 s after the job's start, a-2 heard of it 0.1 s later: killed by "
        "SIGKILL (exit code 137). All ranks ran again 1.7 s after that.",
        "What ended attempt 2 of 3: rank 1 on a-2, 1.5 s after it began, a-1 heard of it 0.1 s later: killed by "
        "SIGKILL (exit code 137). All ranks ran again 1.7 s after that.",
        "Start-up: 2.2 s from the job's start to the last rank's start in attempt 1 of 3: 1 s until the entry "
        "point of a-1 ran, while hosts were made and Python was started, making a-1 ready 0.5 s, the roll call 0.5 s, "
        "planning and starting 0.2 s.",
        "The first output of rank 1 on a-2 in attempt 3 of 3 came last, 0.3 s after its start.",
    )


def test_a_job_that_failed_in_its_last_attempt(tmp_path: Path) -> None:
    found = history_of(tmp_path / "job", [(-9, -15), (-15, 7)])
    first = answers(found)[0]
    assert first == (
        "Failed first in attempt 2 of 2: rank 1 on a-2, 6.5 s after the start, a-1 heard of it 0.1 s later: "
        "ValueError: no. The job ended with code 7 after 6.9 s."
    )


def test_each_attempt_has_its_phases(lanes: tuple[Lane, ...]) -> None:
    spans = [(span.attempt, span.phase, round(span.begin, 2), round(span.end, 2)) for span in lanes[0].spans]
    assert spans == [
        (1, "before", 0, 1), (1, "prepare", 1, 1.5), (1, "rollcall", 1.5, 2),
        (1, "start", 2, 2.2), (1, "run", 2.2, 3.6), (1, "end", 3.6, 5),
        (2, "start", 5, 5.2), (2, "run", 5.2, 6.6), (2, "end", 6.6, 8),
        (3, "start", 8, 8.2), (3, "run", 8.2, 9.5), (3, "end", 9.5, 9.8),
    ]  # fmt: skip


def test_a_rank_has_a_run_for_each_attempt(lanes: tuple[Lane, ...]) -> None:
    runs = [[(run.name, run.attempt, run.ended, run.failed, run.first) for run in lane.runs] for lane in lanes]
    assert runs == [
        [("rank 0", 1, "SIGKILL", True, True), ("rank 0", 2, "SIGTERM", False, False),
         ("rank 0", 3, "exit code 0", False, False)],
        [("rank 1", 1, "SIGTERM", False, False), ("rank 1", 2, "exit code 7", True, True),
         ("rank 1", 3, "exit code 0", False, False)],
    ]  # fmt: skip
    assert [(lane.faults, lane.code, dict(lane.codes)) for lane in lanes] == [
        ((1,), 0, {1: 9, 2: 7, 3: 0}),
        ((2,), 0, {1: 9, 2: 7, 3: 0}),
    ]


def test_the_table_has_a_line_for_each_attempt_of_a_host(history: History, lanes: tuple[Lane, ...]) -> None:
    lines = [line.split() for line in to_text(history).split("\n\n")[1].splitlines()]
    assert [line[:4] for line in lines[1:]] == [[f"a-{host}", str(n), "of", "3"] for host in (1, 2) for n in (1, 2, 3)]
    failed = [" ".join(line[-4:]) for line in lines if line[-1] == "first"]
    assert failed == ["rank 0 failed first", "rank 1 failed first"]


def test_events_are_told_with_their_attempt(history: History, lanes: tuple[Lane, ...]) -> None:
    text = to_text(history, everything=True)
    for said in ("heard that attempt 1 of 3 failed on a-1", "attempt 3 of 3 began", "the job ended here with code 0"):
        assert said in text
    assert "attempt 0" not in text
    assert text.count("(failed first)") == 2


def test_the_page_and_the_trace_have_the_attempts(history: History, lanes: tuple[Lane, ...]) -> None:
    page = to_html(history)
    data = json.loads(page.partition('type="application/json">')[2].partition("</script>")[0])
    assert data["attempts"] == [[0.0, "attempt 1 of 3"], [5.0, "attempt 2 of 3"], [8.0, "attempt 3 of 3"]]
    assert [lane[-1] for lane in data["lanes"]] == [[1], [2]]
    trace = json.loads(to_perfetto(history))["traceEvents"]
    names = [each["args"]["name"] for each in trace if each["name"] == "thread_name"]
    assert "rank 0 (attempt 1 of 3: SIGKILL; attempt 2 of 3: SIGTERM; attempt 3 of 3: exit code 0)" in names


def test_a_host_that_came_later_is_in_the_attempt_of_the_others(tmp_path: Path) -> None:
    found = history_of(tmp_path / "job", ATTEMPTS, late=True)
    assert found.attempts == 3
    [_, second] = found.lanes
    assert [run.attempt for run in second.runs] == [2, 3]
    assert answers(found)[0].startswith("The job went well in attempt 3 of 3")


def test_attempts_with_nonsense_for_a_number(tmp_path: Path) -> None:
    rows = [row("a", at, "restart", attempt=told) for at, told in enumerate((1, -5, "x", None, 10**40, 1e300, 3))]
    found = read_left(tmp_path, rows)
    assert [moment.attempt for moment in found.moments] == [2, 3, 4, 5, 6, 7, 8]
    assert to_text(found, everything=True)


@pytest.mark.parametrize("hosts", [2, MOST_UNFOLDED + 2])
def test_the_culprit_is_on_top_among_many(tmp_path: Path, hosts: int) -> None:
    rows = []
    for rank in range(hosts):
        name, status = f"a-{rank + 1}", 1 if rank == hosts - 1 else -15
        rows += [
            row(name, 0, "entry-point-started", version="1"),
            row(name, 1, "rank-started", name=f"rank {rank}", pid=1, rank=rank),
            row(name, 2, "rank-ended", rank=rank, status=status, signalled=status == -15, oom=False),
            row(name, 3, "job-ended", code=1),
        ]
    outcome = {"code": 1, "class": "user", "host": f"a-{hosts}", "rank": hosts - 1, "reason": "ValueError"}
    found = read_left(tmp_path, rows, outcome)
    page = to_html(found)
    data = json.loads(page.partition('type="application/json">')[2].partition("</script>")[0])
    marked = [lane[0] for lane in data["lanes"] if lane[-1]]
    assert marked == [f"a-{hosts}"], "only the culprit is marked"
    many = hosts > MOST_UNFOLDED
    assert [lane[0] for lane in data["lanes"]].index(marked[0]) == (0 if many else 1)
    assert data["large"] is many
