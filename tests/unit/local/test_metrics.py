"""The metrics of a local job: the options, the file of values, and what is said at the end."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from musterpoint.base.errors import UsageError
from musterpoint.local.metrics import FILE, MetricLog, read_metrics


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
