"""The page of benchmarks, made from a small file of results; and what a file that can't be used is told."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from benchmarks import page, results
from benchmarks.figure import Figure
from benchmarks.parts import PARTS
from benchmarks.results import BrokenResults, Taken

ROOT = Path(__file__).resolve().parents[2]
FASTER = Figure(
    "a rank fails | all of 2 hosts <have> ended", "≤ 100 ms", "40 ms; torchrun 200 ms: 0.20 of it", True, {},
    {"musterpoint": [40.0, 39.0, 55.5], "torchrun": [200.0, 190.0, 230.0]}, limit=100.0,
)  # fmt: skip
PLAIN = Figure("memory of it", "≤ 9 MiB", "9.1 MiB", False, {"mib": 9.1})
FAULT = Taken("2 × A processor, 23 GiB", "2026-01-02 03:04 UTC", [0.1, 1.9], True, {"torch": "2.13.0"}, [FASTER, PLAIN])
ABSENT = FAULT._replace(figures=[], missing="ft_launcher can't be installed:\nno wheel")


def test_what_is_kept_is_read_again(tmp_path: Path) -> None:
    file = tmp_path / "results.json"
    assert results.load(file) == {}
    results.save(file, {"fault": FAULT, "restart": ABSENT})
    assert results.load(file) == {"fault": FAULT, "restart": ABSENT}


def test_a_page_tells_all_that_was_measured(tmp_path: Path) -> None:
    (tmp_path / "pictures").mkdir()
    (tmp_path / "pictures" / "benchmark-fault-of-old.svg").touch()
    (tmp_path / "pictures" / "report.png").touch()
    page.write({"fault": FAULT, "restart": ABSENT}, tmp_path)
    text = (tmp_path / "benchmarks.md").read_text()
    assert "## fault\n\nA rank fails on one of 2" in text
    assert (
        "Measured 2026-01-02 03:04 UTC on 2 × A processor, 23 GiB; load 0.1 before and 1.9 after. torch 2.13.0." in text
    )
    assert "To repeat it: `scripts/bench --only fault --quick`" in text
    assert "| a rank fails \\| all of 2 hosts <have> ended | ≤ 100 ms | 40 ms; torchrun 200 ms: 0.20 of it |" in text
    assert "| memory of it | ≤ 9 MiB | 9.1 MiB |" in text
    missing = text.partition("## Not taken yet")[2]
    assert "it could not" not in missing
    assert "ft_launcher can't be installed: no wheel (2026-01-02 03:04 UTC)" in missing
    assert all(f"| `{name}` | " in missing for name in PARTS if name != "fault")
    assert sorted(path.name for path in (tmp_path / "pictures").iterdir()) == [
        "benchmark-fault-a-rank-fails-all-of-2-hosts-have-ended.svg", "report.png",
    ]  # fmt: skip
    assert "(pictures/benchmark-fault-a-rank-fails-all-of-2-hosts-have-ended.svg)" in text


def test_parts_that_are_not_taken_again_stay_on_the_page(tmp_path: Path) -> None:
    page.write({"fault": FAULT, "memory": FAULT}, tmp_path)
    page.write({"memory": FAULT._replace(date="2026-02-03 04:05 UTC", figures=[PLAIN]), "fault": ABSENT}, tmp_path)
    found = page.sections_of((tmp_path / "benchmarks.md").read_text())
    assert sorted(found) == ["fault", "memory"]
    assert "2026-01-02 03:04 UTC" in found["fault"] and "a rank fails" in found["fault"]
    assert "2026-02-03 04:05 UTC" in found["memory"] and "a rank fails" not in found["memory"]
    assert [path.name for path in (tmp_path / "pictures").iterdir()] == [
        "benchmark-fault-a-rank-fails-all-of-2-hosts-have-ended.svg"
    ]


def test_a_picture_has_a_bar_for_each(tmp_path: Path) -> None:
    drawing = ElementTree.fromstring(page.picture(FASTER))
    space = {"svg": "http://www.w3.org/2000/svg"}
    words = [each.text for each in drawing.findall("svg:text", space)]
    assert words[1:] == ["musterpoint", "40 ms", "torchrun", "200 ms"]
    ours, theirs = (float(each.get("width", "")) for each in drawing.findall("svg:rect", space)[1:])
    assert theirs == pytest.approx(5 * ours, rel=0.01)
    assert len([each for each in drawing.findall("svg:line", space) if each.get("stroke-dasharray")]) == 1


BROKEN: dict[str, tuple[Any, str]] = {
    "no JSON": ("{", "no JSON of scripts/bench"),
    "another format": ({"format": 7, "parts": {}}, "format 7, expected 1"),
    "of a time before formats": ({"machine": "x", "figures": []}, "format none, expected 1"),
    "no object": ([], "format none, expected 1"),
    "a part without its machine": ({"format": 1, "parts": {"fault": {"figures": []}}}, "a part isn't as"),
    "a figure with a field too many": (
        {"format": 1, "parts": {"fault": {**FAULT._asdict(), "figures": [{**PLAIN._asdict(), "x": 1}]}}}, "a part isn't"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_a_file_that_cannot_be_used_is_told(name: str, tmp_path: Path) -> None:
    told, words = BROKEN[name]
    file = tmp_path / "results.json"
    file.write_text(told if isinstance(told, str) else json.dumps(told))
    with pytest.raises(BrokenResults, match=words) as raised:
        results.load(file)
    assert str(file) in str(raised.value)


def bench(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "scripts" / "bench"), *words]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_every_part_is_listed_and_has_its_module() -> None:
    listed = bench("--list").stdout
    for name, part in PARTS.items():
        assert f"{name} " in listed
        assert part.about in listed
        assert (ROOT / "scripts" / "benchmarks" / f"{name}.py").is_file()


def test_a_page_of_a_broken_file_is_not_written(tmp_path: Path) -> None:
    file = tmp_path / "results.json"
    file.write_text("{}")
    done = bench("--page", str(file))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"bench: {file}: format none")
    assert bench("--page", str(tmp_path / "none.json")).returncode == 2
