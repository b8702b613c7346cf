"""The timeline file."""

from __future__ import annotations

import json
from pathlib import Path

from musterpoint.job.model import Paths
from musterpoint.report import files
from musterpoint.report.output_directory import OutputDirectory
from musterpoint.timeline import Timeline


def test_the_file_holds_every_event(tmp_path: Path) -> None:
    events = Timeline("algo-1")
    events.add("rank-ended", rank=3, code=7)
    events.add("over", reason="naïve")
    assert (
        files.write_timeline(events, OutputDirectory(Paths(output=str(tmp_path), failure=str(tmp_path / "failure"))))
        == []
    )
    first, second = json.loads((tmp_path / "timeline.json").read_text("utf-8"))
    assert (first["host"], first["event"], first["rank"], first["code"]) == ("algo-1", "rank-ended", 3, 7)
    assert second["reason"] == "naïve"
    assert first["at"] <= second["at"]


def test_an_empty_one_and_no_place_for_it(tmp_path: Path) -> None:
    assert files.write_timeline(Timeline("algo-1"), OutputDirectory(Paths())) == []
    assert files.write_timeline(Timeline("algo-1"), OutputDirectory(Paths(output=str(tmp_path / "output")))) == []
    assert json.loads((tmp_path / "output" / "timeline.json").read_text()) == []
