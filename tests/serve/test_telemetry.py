"""What a job prints, on its way to log streams; tests/contract/control_plane has what comes of it."""

from __future__ import annotations

import pytest
from botocore.exceptions import ClientError

from musterpoint.serve.news import in_order
from musterpoint.serve.telemetry import batches

from .jobs import IMAGE, Account


def test_an_expression_without_a_group_is_refused(account: Account) -> None:
    algorithm = {"TrainingImage": IMAGE, "TrainingInputMode": "File"}
    algorithm["MetricDefinitions"] = [{"Name": "loss", "Regex": "loss="}]  # type: ignore[assignment]
    with pytest.raises(ClientError, match="MetricDefinition loss: 'loss=' has no group"):
        account.create("refused", "pass", AlgorithmSpecification=algorithm)


def test_logs_are_shown_as_they_were_written() -> None:
    lines = ["3 b", "5 a", "2 a", "4 b", "1 a"]
    assert in_order(lines, 100) == [("b", 0, 3), ("a", 0, 7), ("b", 3, 7), ("a", 7, 8)]
    assert in_order(lines, 2) == [("a", 6, 7), ("b", 5, 7), ("a", 7, 8)]


def test_what_one_call_takes() -> None:
    events = [(number, "x" * 200_000) for number in range(20)]
    found = list(batches(events))
    assert [event for batch in found for event in batch] == events
    assert all(sum(len(text) + 26 for _, text in batch) <= 1 << 20 for batch in found)
    assert [len(batch) for batch in batches([(1, "x")] * 25_000)] == [10_000, 10_000, 5_000]
    ((_, cut),) = next(batches([(1, "é" * (1 << 18))]))
    assert len(cut.encode()) <= (1 << 18) - 26
