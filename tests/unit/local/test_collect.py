"""What the hosts left, merged."""

from __future__ import annotations

import contextlib
import json
import tarfile
from pathlib import Path

import pytest

from musterpoint.job.model import Paths
from musterpoint.local import collect
from musterpoint.local.tree import Layout
from musterpoint.report.output_directory import OutputDirectory

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
    warnings = collect.archive(layout, HOSTS)
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
    assert len(collect.archive(layout, HOSTS)) == 1


def test_what_a_host_left(layout: Layout) -> None:
    put(layout, "algo-1", "output/outcome.json", '{"code": 7}')
    put(layout, "algo-1", "output/failure", "ValueError: é\n")
    put(layout, "algo-2", "output/outcome.json", "{half")
    assert collect.read(layout, "algo-1") == collect.Left({"code": 7}, "ValueError: é\n")
    assert collect.read(layout, "algo-2") == collect.Left(None, "")


def test_timelines_become_one(layout: Layout) -> None:
    put(layout, "algo-1", "output/timeline.json", '[{"host": "algo-1", "at": 2.0, "event": "b"}, "junk"]')
    put(layout, "algo-2", "output/timeline.json", '{"not": "a list"}')
    own = [{"host": "", "at": 3.0, "event": "c"}, {"host": "", "at": 1.0, "event": "a"}]
    with contextlib.closing(OutputDirectory(Paths(output=layout.output), shared=True)) as room:
        assert collect.timeline(layout, HOSTS, own, room) == []
    moments = json.loads(Path(layout.artifact("timeline.json")).read_text())
    assert [moment["event"] for moment in moments] == ["a", "b", "c"]
