"""How the job ended, and what is said of it."""

from __future__ import annotations

from typing import Any

import pytest

from musterpoint.local.collect import Left
from musterpoint.local.container import Container
from musterpoint.local.description import REASON_LENGTH, HostEnd, JobEnd, Phase, describe, judge
from musterpoint.local.job import LocalJob
from musterpoint.local.tree import Layout


def outcome(code: int, host: str) -> dict[str, Any]:
    return {"code": code, "host": host}


@pytest.mark.parametrize(
    ("codes", "left", "stopped", "expected"),
    [
        ({"a": 0, "b": 0}, {}, False, JobEnd("Completed", 0)),
        ({"a": 0, "b": 0}, {}, True, JobEnd("Stopped", 0)),
        ({"a": 143, "b": 143}, {"a": Left(outcome(143, ""))}, True, JobEnd("Stopped", 143)),
        (
            {"a": 7, "b": 7},
            {"a": Left(outcome(7, "b"), "copied"), "b": Left(outcome(7, "b"), "ValueError: no\n")},
            False,
            JobEnd("Failed", 7, "AlgorithmError: ValueError: no, exit code: 7"),
        ),
        (
            {"b": 137, "a": 76},
            {"a": Left(outcome(76, "b"), "muster: host b was lost"), "b": Left()},
            False,
            JobEnd("Failed", 76, "AlgorithmError: muster: host b was lost, exit code: 76"),
        ),
        (
            {"a": 143, "b": 143},  # a host was stopped, and not by us
            {"a": Left(outcome(143, "b") | {"reason": "stopped by the platform on b"}), "b": Left()},
            False,
            JobEnd("Failed", 143, "AlgorithmError: stopped by the platform on b, exit code: 143"),
        ),
        ({"a": 0, "b": 3}, {}, False, JobEnd("Failed", 3, "AlgorithmError: , exit code: 3")),
    ],
)
def test_verdicts(codes: dict[str, int], left: dict[str, Left], stopped: bool, expected: JobEnd) -> None:
    ends = {host: HostEnd(code, float(index)) for index, (host, code) in enumerate(codes.items())}
    assert judge(ends, left, stopped) == expected


def test_the_reason_is_no_longer_than_the_platforms() -> None:
    verdict = judge({"a": HostEnd(1, 0.0)}, {"a": Left(None, "é" * 4000)}, False)
    assert len(verdict.reason) == REASON_LENGTH
    assert verdict.reason.endswith("é, exit code: 1")


def test_description() -> None:
    job = LocalJob("digits", ("algo-1", "algo-2"), "train.py", "/code", options={"MUSTER_SECRET": "hidden"})
    phases = [Phase("Starting", 100.0, ""), Phase("Training", 101.0, ""), Phase("Failed", 105.5, "why")]
    ends = {"algo-1": HostEnd(7, 105.0)}
    description = describe(job, Layout("/out"), "process", phases, ends, JobEnd("Failed", 7, "why"))
    assert description["TrainingJobStatus"] == description["SecondaryStatus"] == "Failed"
    assert (description["ExitCode"], description["FailureReason"]) == (7, "why")
    assert description["TrainingTimeInSeconds"] == 4.0
    assert [host["ExitCode"] for host in description["Hosts"]] == [7, None]
    assert [phase["Status"] for phase in description["SecondaryStatusTransitions"]] == [
        "Starting",
        "Training",
        "Failed",
    ]
    assert description["SecondaryStatusTransitions"][0]["EndTime"] == description["TrainingStartTime"]
    assert description["ModelArtifacts"] == {"S3ModelArtifacts": "file:///out/model.tar.gz"}
    assert "hidden" not in str(description)


def test_a_container_that_was_killed_for_its_memory() -> None:
    ends = {"b": HostEnd(137, 1.0, out_of_memory=True), "a": HostEnd(76, 2.0)}
    verdict = judge(ends, {"a": Left(outcome(76, "b"), "muster: host b was lost"), "b": Left()}, False)
    assert verdict.reason == (
        "AlgorithmError: b ran out of memory: the kernel killed its container (OOMKilled)\n"
        "muster: host b was lost, exit code: 76"
    )
    told = judge({"b": ends["b"]}, {"b": Left(outcome(137, "b"), "rank 0: out of memory")}, False)
    assert told.reason == "AlgorithmError: rank 0: out of memory, exit code: 137"
    job = LocalJob("digits", ("a", "b"), "train.py", "/code", container=Container("an-image"))
    description = describe(job, Layout("/out"), "docker", [Phase("Failed", 3.0, "")], ends, verdict)
    assert [host.get("OOMKilled") for host in description["Hosts"]] == [None, True]
    assert description["AlgorithmSpecification"] == {"TrainingImage": "an-image"}
