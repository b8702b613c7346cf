"""Every byte to the log, whole lines to people."""

from __future__ import annotations

import json
import os
import threading
import time
from pathlib import Path

import pytest

from musterpoint.base.errors import UsageError
from musterpoint.local.metric_points import FILE, MetricLog, read_metrics
from musterpoint.local.output import LONGEST_LINE, Lines, Pump, prefixes


@pytest.mark.parametrize(
    ("chunks", "expected"),
    [
        ([b"one\ntwo\n"], b"> one\n> two\n"),
        ([b"o", b"ne\ntw", b"o\n"], b"> one\n> two\n"),
        ([b"no end"], b"> no end\n"),
        ([b"\n\n"], b"> \n> \n"),
        ([b"\xff\x00\r50%\r100%\n"], b"> 100%\n"),
        ([b"\r50%", b"\r10", b"0%\r\nwith Windows' end\r\n"], b"> 100%\n> with Windows' end\r\n"),
        ([], b""),
    ],
)
def test_whole_lines_with_a_prefix(chunks: list[bytes], expected: bytes) -> None:
    lines = Lines(b"> ")
    assert b"".join(map(lines.feed, chunks)) + lines.end() == expected


def test_a_progress_bar_is_shown_as_it_stands_and_stays_short() -> None:
    lines = Lines(b"> ")
    for percent in range(99):
        assert lines.feed(b"\r%d%% " % percent + b"#" * percent, float(percent)) == b""
    assert lines.changed == 0.0, "it has waited since its first part"
    assert lines.unfinished() == b"> 98% " + b"#" * 98 + b"\n"
    assert lines.changed is None, "nothing new is to be shown"
    assert lines.feed(b"\r98% " + b"#" * 98, 100.0) == b""
    assert (lines.changed, lines.unfinished()) == (100.0, b""), "it is as it was"
    assert lines.feed(b"\r100%", 101.0) == b""
    assert lines.unfinished() == b"> 100%\n"
    assert lines.feed(b"\nbye\n", 102.0) == b"> bye\n", "no line is shown twice"
    for percent in range(5000):
        assert lines.feed(b"\r%d" % percent) == b""
    assert lines.end() == b"> 4999\n", "a bar of hours isn't kept"


def test_a_line_without_an_end_is_shown_once_and_goes_on_as_another() -> None:
    lines = Lines(b"> ")
    assert lines.feed(b"loading \xe2\x96", 1.0) == b""
    assert (lines.unfinished(), lines.changed) == (b"", 1.0), "within a character"
    assert lines.feed(b"\x88", 2.0) == b""
    assert lines.unfinished() == "> loading \u2588\n".encode()
    assert (lines.feed(b" done\n", 9.0), lines.end()) == (b">  done\n", b"")


def test_the_pump_shows_a_bar_while_its_host_says_nothing_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("musterpoint.local.output.UNFINISHED_SECONDS", 0.01)
    out_read, out = os.pipe()
    read, end = os.pipe()
    pump = Pump(out, lambda host: None)
    pump.add("a", read, str(tmp_path / "a"), b"a | ")
    pump.start()
    try:
        os.write(end, b"\r10%\r20%")
        assert os.read(out_read, 100) == b"a | 20%\n"
    finally:
        os.close(end)
        pump.close()
        os.close(out)
        os.close(out_read)


def test_an_endless_line_is_not_kept() -> None:
    lines = Lines(b"> ")
    assert lines.feed(b"x" * (LONGEST_LINE + 1)).startswith(b"> xxx")
    assert lines.end() == b""


def test_without_a_prefix_nothing_waits() -> None:
    assert Lines(b"").feed(b"(Pdb) ") == b"(Pdb) "


def test_prefixes() -> None:
    assert prefixes(("algo-1",), colour=True) == {"algo-1": b""}
    assert prefixes(("algo-1", "algo-10"), colour=False) == {"algo-1": b"algo-1  | ", "algo-10": b"algo-10 | "}
    assert prefixes(("a", "b"), colour=True)["a"] == b"\x1b[36ma |\x1b[0m "


def test_the_pump_loses_nothing(tmp_path: Path) -> None:
    out_read, out = os.pipe()
    ended = threading.Semaphore(0)
    pump = Pump(out, lambda host: ended.release())
    data = bytes(range(256)) * 4096
    ends = {}
    for host in ("a", "b"):
        read, ends[host] = os.pipe()
        pump.add(host, read, str(tmp_path / host), f"{host} ".encode())
    pump.start()
    shown = bytearray()

    def read_all() -> None:
        while chunk := os.read(out_read, 65536):
            shown.extend(chunk)

    reader = threading.Thread(target=read_all)
    reader.start()
    writers = [threading.Thread(target=_write_and_close, args=(end, data)) for end in ends.values()]
    for thread in writers:
        thread.start()
    for thread in writers:
        thread.join()
        ended.acquire()
    while pump.out.waiting_since is not None:  # the reader is slower than the writers
        time.sleep(0.01)
    pump.close()
    os.close(out)
    reader.join()
    os.close(out_read)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes() == data
    of_a = [line[2:] for line in shown.splitlines(keepends=True) if line.startswith(b"a ")]
    assert len(of_a) > 4096


def test_a_reader_that_left_stops_nothing(tmp_path: Path) -> None:
    out_read, out = os.pipe()
    os.close(out_read)
    ended = threading.Event()
    pump = Pump(out, lambda host: ended.set())
    read, end = os.pipe()
    pump.add("a", read, str(tmp_path / "a"), b"")
    pump.start()
    _write_and_close(end, b"one\n")
    ended.wait()
    pump.close()
    os.close(out)
    assert (tmp_path / "a").read_bytes() == b"one\n"


def test_a_pump_that_never_started_gives_its_descriptors_back(tmp_path: Path) -> None:
    read, end = os.pipe()
    pump = Pump(-1, lambda host: None)
    pump.add("a", read, str(tmp_path / "a"), b"")
    pump.close()
    os.close(end)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(read)


def _write_and_close(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
    os.close(fd)


@pytest.mark.parametrize(
    ("texts", "words"),
    [
        (["loss"], "--metric='loss': expected NAME=REGEX, such as loss='loss="),
        (["a=(b)", "a=(c)"], "--metric='a=(c)': a was given twice"),
        (["a=b"], "--metric='a=b': 'b' has no group"),
        ([f"m{number}=(b)" for number in range(41)], "--metric: expected at most 40 metrics, as SageMaker takes"),
    ],
)
def test_options_that_are_wrong(texts: list[str], words: str) -> None:
    with pytest.raises(UsageError) as caught:
        read_metrics(texts)
    assert str(caught.value).startswith(words)


def test_values_are_kept_and_said(tmp_path: Path) -> None:
    log = MetricLog(read_metrics(["loss=loss=(\\S+)", "acc=acc=(\\S+)", "one=one=(\\S+)"]), str(tmp_path))
    log.feed("algo-1", b"loss=3\nloss=1\none=5\n")
    log.feed("algo-2", b"[rank 4] loss=2\nloss=nan")
    log.feed("algo-2", b"")
    log.close()
    rows = [json.loads(line) for line in (tmp_path / FILE).read_text().splitlines()]
    assert [(row["MetricName"], row["Host"], row["Value"]) for row in rows] == [
        ("loss", "algo-1", 3.0), ("loss", "algo-1", 1.0), ("one", "algo-1", 5.0), ("loss", "algo-2", 2.0),
    ]  # fmt: skip
    final = log.described()["FinalMetricDataList"]
    assert [(each["MetricName"], each["Value"]) for each in final] == [("loss", 2.0), ("one", 5.0)]
    assert log.lines() == [
        "metric loss: 2 (the last of 3 values, 1 to 3; of algo-2); once its group was no finite number, such as 'nan'",
        "warning: metric acc: 'acc=(\\\\S+)' matched no line of the hosts",
        "metric one: 5 (the only value, of algo-1)",
    ]


def test_a_job_without_metrics_has_no_file(tmp_path: Path) -> None:
    log = MetricLog((), str(tmp_path))
    log.feed("algo-1", b"loss=3\n")
    assert (log.described(), log.lines(), list(tmp_path.iterdir())) == ({}, [], [])
