"""What the hosts left, merged, how the job ended, and what is said of it."""

from __future__ import annotations

import contextlib
import json
import os
import tarfile
from pathlib import Path
from typing import Any

import pytest

from musterpoint.core.job.model import Paths
from musterpoint.core.report.output_directory import OutputDirectory
from musterpoint.local import results
from musterpoint.local.job_request import Container, LocalJob
from musterpoint.local.job_status import Phase
from musterpoint.local.results import REASON_LENGTH, HostEnd, HostFiles, JobEnd, describe, job_end
from musterpoint.local.tree import BASE, Layout

HOSTS = ("algo-1", "algo-2")


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    layout = Layout(str(tmp_path))
    for host in HOSTS:
        for directory in ("model", "output/data"):
            Path(layout.tree(host), directory).mkdir(parents=True)
    return layout


def put(layout: Layout, host: str, name: str, text: str) -> None:
    path = Path(layout.tree(host), name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_archives_hold_all_hosts_and_clashes_are_told(layout: Layout) -> None:
    put(layout, "algo-1", "model/model.pt", "leader's")
    put(layout, "algo-2", "model/model.pt", "worker's")
    put(layout, "algo-1", "model/deep/same", "x")
    put(layout, "algo-2", "model/deep/same", "x")
    put(layout, "algo-2", "output/data/log", "y")
    Path(layout.tree("algo-1"), "model", "link").symlink_to("model.pt")
    warnings = results.write_archives(layout, HOSTS)
    assert warnings == ["model.tar.gz: algo-1 and algo-2 both left model.pt, and not the same; kept algo-1's"]
    with tarfile.open(layout.artifact("model.tar.gz")) as tar:
        assert sorted(tar.getnames()) == ["deep", "deep/same", "link", "model.pt"]
        member = tar.extractfile("model.pt")
        assert member is not None and member.read() == b"leader's"
    with tarfile.open(layout.artifact("output.tar.gz")) as tar:
        assert tar.getnames() == ["log"]


def test_a_file_against_a_directory_is_a_clash(layout: Layout) -> None:
    put(layout, "algo-1", "model/x", "file")
    put(layout, "algo-2", "model/x/y", "below")
    assert len(results.write_archives(layout, HOSTS)) == 1


def test_what_a_host_left(layout: Layout) -> None:
    put(layout, "algo-1", "output/outcome.json", '{"code": 7}')
    put(layout, "algo-1", "output/failure", "ValueError: é\n")
    put(layout, "algo-2", "output/outcome.json", "{half")
    assert results.read_host_files(layout, "algo-1") == results.HostFiles({"code": 7}, "ValueError: é\n")
    assert results.read_host_files(layout, "algo-2") == results.HostFiles(None, "")


def test_timelines_become_one(layout: Layout) -> None:
    put(layout, "algo-1", "output/timeline.json", '[{"host": "algo-1", "at": 2.0, "event": "b"}, "junk"]')
    put(layout, "algo-2", "output/timeline.json", '{"not": "a list"}')
    own = [{"host": "", "at": 3.0, "event": "c"}, {"host": "", "at": 1.0, "event": "a"}]
    with contextlib.closing(OutputDirectory(Paths(output=layout.output), shared=True)) as room:
        assert results.write_timeline(layout, HOSTS, own, room) == ""
    moments = json.loads(Path(layout.artifact("timeline.json")).read_text())
    assert [moment["event"] for moment in moments] == ["a", "b", "c"]


def outcome(code: int, host: str) -> dict[str, Any]:
    return {"code": code, "host": host}


@pytest.mark.parametrize(
    ("codes", "left", "stopped", "expected"),
    [
        ({"a": 0, "b": 0}, {}, False, JobEnd("Completed", 0)),
        ({"a": 0, "b": 0}, {}, True, JobEnd("Stopped", 0)),
        ({"a": 143, "b": 143}, {"a": HostFiles(outcome(143, ""))}, True, JobEnd("Stopped", 143)),
        (
            {"a": 7, "b": 7},
            {"a": HostFiles(outcome(7, "b"), "copied"), "b": HostFiles(outcome(7, "b"), "ValueError: no\n")},
            False,
            JobEnd("Failed", 7, "AlgorithmError: ValueError: no\nexit code 7"),
        ),
        ({"b": 137, "a": 76}, {"a": HostFiles(outcome(76, "b"), "muster: host b was lost"), "b": HostFiles()}, False,
         JobEnd("Failed", 76, "AlgorithmError: muster: host b was lost\nexit code 76")),
        (
            {"a": 143, "b": 143},  # a host was stopped, and not by us
            {"a": HostFiles(outcome(143, "b") | {"reason": "stopped by the platform on b"}), "b": HostFiles()},
            False,
            JobEnd("Failed", 143, "AlgorithmError: stopped by the platform on b\nexit code 143"),
        ),
        ({"a": 0, "b": 3}, {}, False, JobEnd("Failed", 3, "AlgorithmError: exit code 3")),
    ],
)  # fmt: skip
def test_how_the_job_ended(codes: dict[str, int], left: dict[str, HostFiles], stopped: bool, expected: JobEnd) -> None:
    ends = {host: HostEnd(code, float(index)) for index, (host, code) in enumerate(codes.items())}
    assert job_end(ends, left, stopped) == expected


def test_the_reason_is_no_longer_than_the_platforms() -> None:
    end = job_end({"a": HostEnd(1, 0.0)}, {"a": HostFiles(None, "é" * 4000)}, False)
    assert len(end.reason) == REASON_LENGTH
    assert end.reason.endswith("é\nexit code 1")


def test_description() -> None:
    job = LocalJob("digits", ("algo-1", "algo-2"), "train.py", "/code", options={"MUSTER_SECRET": "hidden"})
    phases = [Phase("Starting", 100.0, ""), Phase("Training", 101.0, ""), Phase("Failed", 105.5, "why")]
    ends = {"algo-1": HostEnd(7, 105.0)}
    description = describe(job, Layout("/out"), "process", phases, ends, JobEnd("Failed", 7, "why"))
    assert description["TrainingJobStatus"] == description["SecondaryStatus"] == "Failed"
    assert (description["ExitCode"], description["FailureReason"]) == (7, "why")
    assert description["TrainingTimeInSeconds"] == 4.0
    assert [host["ExitCode"] for host in description["Hosts"]] == [7, None]
    statuses = [phase["Status"] for phase in description["SecondaryStatusTransitions"]]
    assert statuses == ["Starting", "Training", "Failed"]
    assert description["SecondaryStatusTransitions"][0]["EndTime"] == description["TrainingStartTime"]
    assert description["ModelArtifacts"] == {"S3ModelArtifacts": "file:///out/model.tar.gz"}
    assert "hidden" not in str(description)


def test_a_container_that_was_killed_for_its_memory() -> None:
    ends = {"b": HostEnd(137, 1.0, out_of_memory=True), "a": HostEnd(76, 2.0)}
    end = job_end(ends, {"a": HostFiles(outcome(76, "b"), "muster: host b was lost"), "b": HostFiles()}, False)
    assert end.reason == (
        "AlgorithmError: b ran out of memory: the kernel killed its container (OOMKilled)\n"
        "muster: host b was lost\nexit code 76"
    )
    told = job_end({"b": ends["b"]}, {"b": HostFiles(outcome(137, "b"), "rank 0: out of memory")}, False)
    assert told.reason == "AlgorithmError: rank 0: out of memory\nexit code 137"
    job = LocalJob("digits", ("a", "b"), "train.py", "/code", container=Container("an-image"))
    description = describe(job, Layout("/out"), "docker", [Phase("Failed", 3.0, "")], ends, end)
    assert [host.get("OOMKilled") for host in description["Hosts"]] == [None, True]
    assert description["AlgorithmSpecification"] == {"TrainingImage": "an-image"}


def test_links_stay_inside_the_archive(layout: Layout) -> None:
    put(layout, "algo-1", "model/deep/model.pt", "mine")
    tree = layout.tree("algo-1")
    links = {
        "whole": f"{BASE}/model/deep/model.pt", "deep/near": f"{tree}/model/deep/model.pt",
        "deep/up": "../deep/model.pt", "deep/data": "../../output/data",
        "out": "/etc/passwd", "climbs": "../../../../../etc/passwd",
    }  # fmt: skip
    for name, target in links.items():
        Path(tree, "model", name).symlink_to(target)
    warnings = results.write_archives(layout, HOSTS)
    assert len(warnings) == 3 and all("leads out of the directory" in text for text in warnings)
    with tarfile.open(layout.artifact("model.tar.gz")) as tar:
        found = {member.name: member.linkname for member in tar if member.issym()}
    assert found == {"whole": "deep/model.pt", "deep/near": "model.pt", "deep/up": "../deep/model.pt"}


def test_a_file_that_changes_all_the_time_is_left_out_of_a_whole_archive(
    layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "log", "z"):
        put(layout, "algo-1", f"model/{name}", name)
    real = results.Tree.facts

    def facts(tree: results.Tree, name: str) -> os.stat_result | None:
        if name == "model/log":
            with Path(layout.tree("algo-1"), name).open("a") as file:
                file.write("b")
        return real(tree, name)

    monkeypatch.setattr(results.Tree, "facts", facts)
    warnings = results.write_archives(layout, HOSTS)
    assert warnings == ["model.tar.gz: log of algo-1 is left out: it changed while it was packed"]
    with tarfile.open(layout.artifact("model.tar.gz")) as tar:
        assert tar.getnames() == ["a", "z"]


@pytest.mark.parametrize("moved", ["opt/ml", "opt"])
def test_a_link_in_the_place_of_a_hosts_tree_is_not_followed(layout: Layout, moved: str, tmp_path: Path) -> None:
    put(layout, "algo-2", "model/mine", "x")
    for directory in ("model", "ml/model", "output", "ml/output"):
        (tmp_path / "other" / directory).mkdir(parents=True)
        (tmp_path / "other" / directory / "failure").write_text("secret")
    place = Path(layout.host("algo-1"), moved)
    place.rename(tmp_path / "moved")
    place.symlink_to(tmp_path / "other")
    left_out = f"of algo-1 is left out: {layout.tree('algo-1')} is no folder any more"
    warnings = results.write_archives(layout, HOSTS)
    assert warnings == [f"model.tar.gz: model {left_out}", f"output.tar.gz: output/data {left_out}"]
    with tarfile.open(layout.artifact("model.tar.gz")) as tar:
        assert tar.getnames() == ["mine"]
    assert results.read_host_files(layout, "algo-1") == results.HostFiles()
