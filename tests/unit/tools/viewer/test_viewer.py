"""What a job left, read and shown: on one clock, in lanes, in sentences, and as pages that hold whatever it says."""

from __future__ import annotations

import fcntl
import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from musterpoint.base.errors import UsageError
from musterpoint.cli.main import main
from musterpoint.core.job import directories
from musterpoint.tools.viewer import page
from musterpoint.tools.viewer.events import EVENTS, sentence
from musterpoint.tools.viewer.history import FILE, MOST_CURVES, History, read_curves, read_history, thinned
from musterpoint.tools.viewer.page import to_html
from musterpoint.tools.viewer.perfetto import to_perfetto
from musterpoint.tools.viewer.text import answers, to_text, took


def read_left(folder: Path, rows: list[Any], outcome: dict[str, Any] | None = None) -> History:
    """What a job left with this timeline, and this outcome where it has one."""
    (folder / "timeline.json").write_text(json.dumps(rows))
    if outcome:
        (folder / "outcome.json").write_text(json.dumps(outcome))
    return read_history([str(folder)])


def row(host: str, at: float, event: str, **facts: Any) -> dict[str, Any]:
    return {"host": host, "at": 1000.0 + at, "time": "", "event": event, **facts}


def host_of(name: str, rank: int, failed: int = 0, later: float = 0.0, ahead: float = 0.0) -> list[dict[str, Any]]:
    """A host's timeline; its clock is ``ahead`` seconds of the others'."""
    t = later + ahead
    end = 9.0 + ahead
    return [
        row(name, t, "entry-point-started", version="1"),
        row(name, t + 3, "installed", what="requirements.txt", installer="pip", seconds=2.5),
        row(name, t + 3, "rollcall-started", hosts=2, leader="a-1"),
        *([row(name, 4.0 + ahead, "seated", leader="a-1", address="10.0.0.1")] if rank else []),
        row(name, 4.5 + ahead, "rollcall-done", hosts=2, seconds=1.0),
        row(name, 5.0 + ahead, "rank-started", name=f"rank {rank}", pid=7, rank=rank),
        row(name, end, "rank-ended", rank=rank, status=failed or -15, signalled=not failed, oom=False,
            first_output=1006.0 + ahead + rank),
        row(name, end + 0.01 * (not failed), "job-failed", of="a-2", rank=1, code=3),
        row(name, end + 0.1, "job-ended", code=3),
    ]  # fmt: skip


@pytest.fixture
def left(tmp_path: Path) -> Path:
    """What a local job of two hosts left, whose rank 1 failed; the second clock is an hour ahead."""
    here = row("a-1", 4.001, "host-here", of="a-2", address="10.0.0.2")
    for number in (1, 2):
        output = tmp_path / "hosts" / f"a-{number}" / "opt" / "ml" / "output"
        output.mkdir(parents=True)
        outcome = {"code": 3, "class": "user", "host": "a-2", "rank": 1, "reason": "ValueError: </script><b>&\nrank 1"}
        (output / "outcome.json").write_text(json.dumps(outcome))
    rows = [*host_of("a-1", 0), here, *host_of("a-2", 1, 3, 0.5, 3600.0)]
    rows.append(row("control plane", 9.5, "host-ended", of="a-1", code=3))
    (tmp_path / "timeline.json").write_text(json.dumps(rows))
    (tmp_path / "job.json").write_text(json.dumps({"TrainingJobName": "digits", "ExitCode": 3}))
    return tmp_path


@pytest.fixture
def history(left: Path) -> History:
    return read_history([str(left)])


def test_one_clock(history: History) -> None:
    assert (history.name, history.hosts, history.shifts) == ("digits", ("a-1", "a-2"), {"a-2": -3599.999})
    assert [moment.at for moment in history.moments] == sorted(moment.at for moment in history.moments)
    assert history.seconds == pytest.approx(9.5)


def test_lanes(history: History) -> None:
    first, second = history.lanes
    assert [(span.phase, round(span.begin, 2), round(span.end, 2)) for span in first.spans] == [
        ("before", 0, 0), ("prepare", 0, 3), ("rollcall", 3, 4.5), ("start", 4.5, 5), ("run", 5, 9.01),
        ("end", 9.01, 9.5), ("install", 0.5, 3),
    ]  # fmt: skip
    assert [(run.name, run.ended, run.failed) for run in (*first.runs, *second.runs)] == [
        ("rank 0", "SIGTERM", False), ("rank 1", "exit code 3", True),
    ]  # fmt: skip
    assert [(span.phase, round(span.seconds, 2)) for span in second.runs[0].spans] == [("quiet", 2), ("run", 2)]
    assert (first.code, second.code) == (3, 3)
    assert (first.faults, second.faults, second.runs[0].first) == ((), (1,), True)


def test_answers(history: History) -> None:
    assert answers(history) == (
        "Failed first: rank 1 on a-2, 9 s after the start, a-1 heard of it 9 ms later: ValueError: </script><b>&. "
        "The job ended with code 3 after 9.5 s.",
        "Start-up: 5 s from the job's start to the last rank's start: a-2 started 0.501 s after the first host, making "
        "a-2 ready 3 s, of it installing 2.5 s, the roll call 1 s, planning and starting 0.5 s.",
        "The first output of rank 1 on a-2 came last, 2 s after its start.",
        "The clock of a-2 was 1 h 0 min ahead of the leader's; its times are put right here.",
    )


def test_the_start_goes_on_until_the_first_rank(left: Path) -> None:
    """A launcher such as torchrun takes seconds until it starts the ranks."""
    rows = json.loads((left / "timeline.json").read_text())
    rows.append(row("a-1", 4.6, "launcher-started", name="torchrun", pid=5))
    rows.append(row("a-1", 9.2, "launcher-ended", name="torchrun", status=-9))
    history = read_left(left, rows)
    lanes = history.lanes
    start = lanes[0].of("start")
    assert start is not None
    assert (start.begin, round(start.end, 2)) == (4.5, 5.0)
    assert start.text == "planned, and started its ranks by way of torchrun"
    assert "planning, and the start of torchrun 0.5 s" in answers(history)[1]
    assert "at 5.000" in to_text(history).split("\na-1")[1].split("\n")[0]


ENDS: dict[str, tuple[dict[str, Any], list[dict[str, Any]], str]] = {
    "well": ({"code": 0, "class": "done"}, [], "The job went well: every rank ended with 0"),
    "stopped": (
        {"code": 143, "class": "stopped"},
        [row("b", 5, "stop-asked", signal=15), row("a", 5.2, "job-stopped", of="b", signal=15)],
        "The job was stopped: b was told so 5 s after the start, a heard of it 0.2 s later; it ended with code 143",
    ),
    "nobody came": ({"code": 69, "reason": "muster: no b"}, [row("a", 5, "rollcall-failed", reason="no b")],
     "Failed first: the roll call on a, 5 s after the start: muster: no b."),
    "lost": (
        {"code": 76, "host": "b", "rank": None},
        [row("a", 4, "rank-started", name="rank 0", pid=7, rank=0), row("a", 5, "host-lost", of="b", why="refused")],
        "Failed first: b was lost, 5 s after the start.",
    ),
    "a rank hung": (
        {"code": 74, "host": "b", "rank": 1, "reason": "muster: stalled"},
        [row("a", 5, "stalled", of="b", rank=1, ends=True, reason="no output")],
        "Failed first: rank 1 on b has hung, found 5 s after the start: muster: stalled.",
    ),
    "all hung alike": (
        {"code": 74, "host": "a", "rank": None},
        [row("a", 5, "stalled", ends=True, reason="no output"), row("a", 5, "failure-seen", code=74)],
        "Hung: all ranks alike, found 5 s after the start.",
    ),
    "no outcome": ({}, [], ""),
}  # fmt: skip


@pytest.mark.parametrize("name", ENDS)
def test_how_it_ended(tmp_path: Path, name: str) -> None:
    outcome, more, said = ENDS[name]
    rows = [row("a", 0, "entry-point-started", version="1"), *more, row("a", 6, "job-ended", code=0)]
    found = read_left(tmp_path, rows, outcome)
    assert "\n".join(answers(found)).startswith(said)


def test_a_job_of_one_host_that_hung(tmp_path: Path) -> None:
    """Ready is ready; a rank that never wrote is quiet to its end; who hung failed first, and not the launcher that it
    took along, but a rank that raised on its way out. Ranks are in the order of their numbers.
    """
    rows = [
        row("vm", 0, "entry-point-started", version="1"),
        row("vm", 1, "host-prepared", launcher="torchrun", job="digits"),
        row("vm", 2, "launcher-started", name="torchrun", pid=5),
        *(row("vm", 3, "rank-started", name=f"rank {rank}", pid=rank, rank=rank) for rank in (10, 9, 1)),
        row("vm", 6, "stalled", of="vm", rank=10, ends=True, reason="no output"),
        row("vm", 6, "failure-seen", code=74),
        row("vm", 6.5, "rank-raised", rank=9),
        *(row("vm", 7, "rank-ended", rank=rank, status=-15, signalled=True, first_output=None) for rank in (1, 9, 10)),
        row("vm", 8, "launcher-ended", name="torchrun", status=-9),
    ]
    found = read_left(tmp_path, rows, {"code": 74, "host": "vm", "rank": 10, "reason": "x"})
    (lane,) = found.lanes
    assert found.name == "digits"
    assert [(span.phase, span.begin, span.end) for span in lane.spans] == [
        ("before", 0, 0), ("prepare", 0, 1), ("start", 1, 3), ("run", 3, 6), ("end", 6, 8),
    ]  # fmt: skip
    runs = [(run.name, run.failed, run.first, run.spans[0].phase) for run in lane.runs]
    assert runs == [
        ("torchrun", False, False, "run"), ("rank 1", False, False, "quiet"), ("rank 9", True, False, "quiet"),
        ("rank 10", False, True, "quiet"),
    ]  # fmt: skip
    assert '"failed":6.0,' in to_html(found)


def test_nothing_of_the_job_becomes_markup(history: History) -> None:
    text = to_html(history)
    data = text.partition('type="application/json">')[2].partition("</script>")[0]
    assert (text.count("<script"), text.count("</script>"), text.count("<b>")) == (3, 3, 0)
    assert json.loads(data)["reason"] == "ValueError: </script><b>&\nrank 1"
    assert "http" not in text.replace("http-equiv", "").replace("http://www.w3.org/2000/svg", ""), "it needs no network"


def test_a_page_with_too_many_events_keeps_the_main_ones(history: History, monkeypatch: pytest.MonkeyPatch) -> None:
    def data() -> Any:
        return json.loads(to_html(history).partition('type="application/json">')[2].partition("</script>")[0])

    history = history._replace(moments=(*history.moments, history.moments[0]._replace(event="name-resolved", at=99.0)))
    main = [event for event in data()["events"] if event[-1]]
    monkeypatch.setattr(page, "MOST_EVENTS", len(main))
    assert (data()["events"], data()["left_out"]) == (main, 1)


def test_a_trace_has_a_process_for_each_host(history: History) -> None:
    trace = json.loads(to_perfetto(history))["traceEvents"]
    assert {each["args"]["name"] for each in trace if each["name"] == "process_name"} == {"a-1", "a-2"}
    slices = [each for each in trace if each["ph"] == "X"]
    assert all(each["dur"] >= 0 for each in slices)
    assert {each["name"] for each in slices if each["cat"] == "quiet"} == {"until its first output"}


NAMED = (
    "rank", "status", "seconds", "since", "first_output", "code", "of", "name", "signal", "oom", "attempt", "reason",
)  # fmt: skip
FACTS = st.dictionaries(
    st.sampled_from(NAMED),
    st.none() | st.booleans() | st.integers(-300, 300) | st.floats(-1e6, 1e6) | st.text(max_size=5),
)
ROWS = st.lists(
    st.builds(
        lambda host, at, event, facts: {**facts, "host": host, "at": at, "event": event},
        st.sampled_from(["a-1", "a-2", "control plane"]), st.floats(-1e9, 1e9), st.sampled_from([*EVENTS, "?"]), FACTS,
    ),
    min_size=1, max_size=12,
)  # fmt: skip


@given(ROWS)
def test_whatever_a_timeline_says_it_can_be_shown(tmp_path_factory: pytest.TempPathFactory, rows: list[Any]) -> None:
    found = read_left(tmp_path_factory.mktemp("left"), rows)
    assert to_text(found, everything=True).count("\n") > len(rows)
    json.loads(to_perfetto(found))
    assert to_html(found)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "no timeline.json there; expected a directory that `muster local` made"),
        ("{", "it is no JSON"),
        ("{}", "a JSON dict, expected a list of events"),
        ("[]", "the timeline has no events"),
        ('[{"host": "a"}]', 'event 1 is not an object with "host", "at" and "event"'),
        ('[{"host": "a", "at": NaN, "event": "b"}]', "a number that is none"),
    ],
)
def test_what_is_no_timeline(tmp_path: Path, text: str | None, said: str) -> None:
    if text is not None:
        (tmp_path / "timeline.json").write_text(text)
    with pytest.raises(UsageError, match=re.escape(said)) as caught:
        read_history([str(tmp_path)])
    assert str(tmp_path) in str(caught.value)


def test_a_job_that_runs_has_no_timeline_yet(tmp_path: Path) -> None:
    log = tmp_path / "hosts" / "algo-1" / "log"
    log.parent.mkdir(parents=True)
    log.touch()
    with pytest.raises(UsageError, match="this job has no timeline: it was ended before"):
        read_history([str(tmp_path)])
    (lock,) = directories.lock({str(tmp_path): fcntl.LOCK_SH})  # as each host of several has it
    with pytest.raises(UsageError, match=r"still runs: .*; its hosts' logs are .*/hosts/\*/log"):
        read_history([str(tmp_path)])
    os.close(lock)


@pytest.mark.parametrize(
    ("asked", "meant"),
    [
        ("crash", "muster-jobs/crash-2026-2"),
        ("muster-jobs/crash", "muster-jobs/crash-2026-2"),
        ("train-2025", "muster-jobs/train-2026"),
        ("what", ""),
    ],
)
def test_a_directory_that_is_not_there(asked: str, meant: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for at, name in enumerate(("crash-2026-1", "crash-2026-2", "train-2026")):
        (tmp_path / "muster-jobs" / name).mkdir(parents=True)
        os.utime(tmp_path / "muster-jobs" / name, (at, at))
    said = f"no such directory (did you mean {meant}?)" if meant else "there is no such directory"
    with pytest.raises(UsageError, match=f"^{asked}: .*{re.escape(said)}$"):
        read_history([asked])


def test_two_jobs_are_not_one(left: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    other = tmp_path_factory.mktemp("other")
    (other / "timeline.json").write_text((left / "timeline.json").read_text())
    with pytest.raises(UsageError, match=re.escape(f"a-1 is in {left} and in {other}: these are two jobs, or one")):
        read_history([str(left), str(other)])
    assert read_history([str(left), str(left)]).hosts == ("a-1", "a-2")


def test_the_newest_job_is_named(
    left: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch, capfd: Any
) -> None:
    here = tmp_path_factory.mktemp("here")
    monkeypatch.chdir(here)
    assert main(["report"]) == 64
    assert "no DIR given, the directory that a job left; there is no muster-jobs here" in capfd.readouterr().err
    for age, name in enumerate(("job-b", "job-a")):
        (here / "muster-jobs" / name).mkdir(parents=True)
        file = here / "muster-jobs" / name / "timeline.json"
        file.write_text((left / "timeline.json").read_text())
        os.utime(file, (1000 + age, 1000 + age))
    assert main(["report"]) == 64
    assert "the newest here is muster-jobs/job-a" in capfd.readouterr().err
    assert main(["report", "muster-jobs"]) == 64
    assert "the newest job in it is muster-jobs/job-a" in capfd.readouterr().err


def test_an_event_of_the_future_is_told_by_its_name() -> None:
    assert sentence("rank-ended", {"rank": 3, "status": -9}) == "rank 3 ended with SIGKILL"
    assert sentence("of-the-future", {"x": 1}) == "of-the-future, x 1"


def test_lengths_of_time() -> None:
    lengths = {0.0004: "0 ms", 0.05: "50 ms", 0.0994: "99 ms", 1.2345: "1.23 s", 99.9: "99.9 s", 320: "5 min 20 s"}
    assert {seconds: took(seconds) for seconds in lengths} == lengths
    assert took(10920) == "3 h 2 min"


def test_the_command(left: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(left)]) == 0
    text = capfd.readouterr().out
    assert text.startswith("digits\nFailed first: rank 1 on a-2")
    assert "    9.001  a-2            rank 1 ended with exit code 3 (failed first)\n" in text
    page, trace = tmp_path / "page.html", tmp_path / "trace.json"
    assert main(["report", "--html", str(page), "--perfetto", str(trace), str(left)]) == 0
    assert capfd.readouterr() == ("", f"wrote {page}\nwrote {trace}\n")
    assert page.read_text().startswith("<!doctype html>")
    assert json.loads(trace.read_text())["otherData"] == {"job": "digits"}
    assert main(["report", "--html", str(tmp_path / "no" / "page.html"), str(left)]) == 64
    assert "can't be written: No such file or directory" in capfd.readouterr().err


def point(value: object, name: object = "loss", host: object = "algo-1", at: object = 10.0) -> str:
    return json.dumps({"MetricName": name, "Host": host, "Timestamp": at, "Value": value})


def test_a_line_for_each_host(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text(
        "\n".join([point(1), point(2, host="algo-2", at=11), point(0.5, at=12), point(9, "acc")])
    )
    loss, acc = read_curves(str(tmp_path), 10.0)
    assert (loss.name, loss.last, acc.last) == ("loss", 0.5, 9.0)
    assert [(line.host, line.points) for line in loss.lines] == [
        ("algo-1", ((0.0, 1.0), (2.0, 0.5))), ("algo-2", ((1.0, 2.0),)),
    ]  # fmt: skip


def test_what_is_no_value_is_passed_over(tmp_path: Path) -> None:
    wrong = ["", "[]", "{", "[" * 3000, point("1"), point(True), point(1, name=None), point(1, at=None), '{"Value": 1}']
    wrong += [point(1).replace(": 1", ": NaN"), point(1).replace(": 1", ": 1" + "0" * 400), "x" * 10_000, "\x00"]
    (tmp_path / FILE).write_text("\n".join([*wrong, point(4)]))
    assert [curve.last for curve in read_curves(str(tmp_path), 0.0)] == [4.0]
    assert read_curves(str(tmp_path / "none"), 0.0) == ()


def test_names_are_bounded_and_printable(tmp_path: Path) -> None:
    names = ["\x1b[31m" + "n" * 1000, *(f"m{number}" for number in range(200))]
    (tmp_path / FILE).write_text("\n".join(point(1, name) for name in names))
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


def test_of_several_starts_the_newest_is_shown(tmp_path: Path) -> None:
    """The directory of a job on machines of one's own, where hosts of an earlier start left theirs; one file names its
    hosts."""
    for host, start, at, code in (("a", "first", 100.0, 0), ("b", "first", 100.1, 0), ("a2", "second", 200.0, 7)):
        rows = [
            {"host": host, "at": at, "event": "entry-point-started", "version": "1"},
            {"host": host, "at": at + 1, "event": "hosts-met", "start": start},
            {"host": host, "at": at + 2, "event": "job-ended", "code": code},
        ]
        (tmp_path / "hosts" / host).mkdir(parents=True)
        (tmp_path / "hosts" / host / "timeline.json").write_text(json.dumps(rows))
        (tmp_path / "hosts" / host / "outcome.json").write_text(json.dumps({"code": code, "start": start}))
    (tmp_path / "hosts" / "hosts-file").write_text("127.0.0.1 a\n")
    each = [str(tmp_path / "hosts" / name) for name in ("a", "a2", "b")]
    for found in (read_history([str(tmp_path)]), read_history(each)):
        assert (found.hosts, found.outcome["code"]) == (("a2",), 7)
        assert found.left_out == (each[0], each[2])
        said = to_text(found)
        assert f"Left out, of another start of the job: {each[0]}, {each[2]}." in said
        assert "went well" not in said


def test_a_host_that_met_nobody_is_of_the_start_that_it_ran_beside(tmp_path: Path) -> None:
    for host, at, met in (("a", 100.0, True), ("late", 100.5, False), ("long-ago", 10.0, False)):
        rows = [
            {"host": host, "at": at, "event": "entry-point-started"},
            {"host": host, "at": at + 3, "event": "job-ended"},
        ]
        rows += [{"host": host, "at": at + 1, "event": "hosts-met", "start": "x"}] if met else []
        (tmp_path / host).mkdir()
        (tmp_path / host / "timeline.json").write_text(json.dumps(rows))
    found = read_history([str(tmp_path / host) for host in ("a", "late", "long-ago")])
    assert (found.hosts, found.left_out) == (("a", "late"), (str(tmp_path / "long-ago"),))


@given(st.lists(st.lists(st.floats(0, 50), min_size=5, max_size=5), min_size=1, max_size=4))
def test_the_parts_of_a_start_are_no_more_than_the_whole(tmp_path_factory: pytest.TempPathFactory, hosts: Any) -> None:
    """Hosts that begin at random, fetch and prepare as long as they like, meet, and start a rank each."""
    folder = tmp_path_factory.mktemp("job")
    ready = [begin + prepared for begin, prepared, *_ in hosts]
    met = max(ready)
    for place, (begin, prepared, fetched, starting, _) in enumerate(hosts):
        times = [
            ("entry-point-started", begin, {}), ("host-prepared", begin + prepared, {}),
            ("code-fetched", begin + prepared, {"seconds": min(fetched, prepared)}),
            ("rollcall-started", begin + prepared, {}), ("rollcall-done", met, {}), ("hosts-met", met, {"start": "x"}),
            ("rank-started", met + starting, {"rank": place}),
        ]  # fmt: skip
        rows = [{"host": f"h{place}", "at": 1000 + at, "event": event, **more} for event, at, more in times]
        (folder / f"h{place}.json").write_text(json.dumps(rows))
    history = read_history([str(path) for path in sorted(folder.iterdir())])
    said = next(text for text in answers(history) if text.startswith("Start-up"))
    whole, _, split = said.partition(" from the job's start")
    parts = re.sub(r", of it [^,]*", "", split)
    assert _total(parts) <= _total(whole) * 1.01 + 0.01 * parts.count(","), said


def _total(text: str) -> float:
    return sum(
        float(number) * {"ms": 0.001, "s": 1, "min": 60}[unit]
        for number, unit in re.findall(r"([\d.]+) (ms|s|min)\b", text)
    )
