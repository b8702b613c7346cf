"""The control plane's files: right content, never over the user's own, and never in the way of the exit code."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from musterpoint.job.model import Paths
from musterpoint.peers import Failure
from musterpoint.report import files, room
from musterpoint.supervise.outcome import Outcome

FAILED = Outcome(7, Failure("algo-2", 7, "user", "user", "ValueError: naïve\nrank 3", 3, 1, None, 1.0), "", ())
DONE = Outcome(0, None, "", ())
STOPPED = Outcome(143, None, "algo-1", ())


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    output = tmp_path / "output"
    return Paths(output=str(output), failure=str(output / "failure"), success=str(output / "success"))


def written(paths: Paths) -> dict[str, str]:
    return {path.name: path.read_text("utf-8") for path in Path(paths.output).iterdir()}


def report(outcome: Outcome, paths: Paths, started_at: float | None = None) -> list[str]:
    return files.write(outcome, paths, time.time() if started_at is None else started_at, {})


@pytest.mark.parametrize("reserved", [True, False])
def test_a_failure(paths: Paths, reserved: bool) -> None:
    if reserved:
        room.reserve(paths)
    assert report(FAILED, paths) == []
    found = written(paths)
    assert sorted(found) == ["failure", "outcome.json"]
    assert found["failure"] == "ValueError: naïve\nrank 3"
    assert json.loads(found["outcome.json"])["class"] == "user"


@pytest.mark.parametrize("reserved", [True, False])
def test_a_success_is_an_empty_file(paths: Paths, reserved: bool) -> None:
    if reserved:
        room.reserve(paths)
    assert report(DONE, paths) == []
    found = written(paths)
    assert sorted(found) == ["outcome.json", "success"]
    assert found["success"] == ""


def test_a_stop_is_neither(paths: Paths) -> None:
    room.reserve(paths)
    assert report(STOPPED, paths) == []
    assert sorted(written(paths)) == ["outcome.json"]


@pytest.mark.parametrize(
    ("text", "age", "kept"), [("my own words", 0, True), ("", 0, False), ("of an earlier run", 3600, False)]
)
def test_the_users_own_failure_file_is_kept(paths: Paths, text: str, age: float, kept: bool) -> None:
    started_at = time.time()
    room.reserve(paths)
    Path(paths.failure).write_text(text)
    os.utime(paths.failure, (started_at - age, started_at - age))
    assert report(FAILED, paths, started_at) == []
    assert (written(paths)["failure"] == text) is kept


def test_a_platform_without_paths(tmp_path: Path) -> None:
    room.reserve(Paths())
    assert report(FAILED, Paths()) == []


def test_what_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "output").write_text("a file where the directory should be")
    paths = Paths(output=str(tmp_path / "output"), failure=str(tmp_path / "output" / "failure"))
    room.reserve(paths)
    first, second = report(FAILED, paths)
    assert first == f"{paths.failure} could not be written: Not a directory"
    assert "outcome.json" in second


def test_the_termination_log_on_kubernetes(paths: Paths, tmp_path: Path) -> None:
    log = tmp_path / "termination-log"
    kubernetes = {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}
    files.write(FAILED, paths, 0, kubernetes, termination_log=str(log))
    assert not log.exists()
    log.write_text("x" * 2000)
    files.write(FAILED, paths, 0, {}, termination_log=str(log))
    assert log.read_text() == "x" * 2000
    files.write(FAILED, paths, 0, kubernetes, termination_log=str(log))
    assert log.read_text("utf-8") == "ValueError: naïve\nrank 3"


FULL_DISK = """
import json, os, sys
from musterpoint.job.model import Paths
from musterpoint.report import files, room
from tests.unit.report.test_files import FAILED
root = sys.argv[1]
paths = Paths(output=root, failure=root + "/failure", success=root + "/success")
room.reserve(paths)
with open(root + "/fill", "wb", buffering=0) as fill:
    try:
        while True:
            fill.write(bytes(4096))
    except OSError:
        pass
problems = files.write(FAILED, paths, 0, {})
assert open(root + "/failure", encoding="utf-8").read() == "ValueError: na\\u00efve\\nrank 3", problems
assert json.load(open(root + "/outcome.json"))["code"] == 7, problems
assert problems == [], problems
assert sorted(os.listdir(root)) == ["failure", "fill", "outcome.json"]
"""


@pytest.mark.skipif(not shutil.which("unshare") or os.geteuid() != 0, reason="needs a mount namespace")
def test_a_full_disk_still_gets_the_reason_out(tmp_path: Path) -> None:
    root = Path(__file__).parents[3]
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join((str(root / "src"), str(root)))}
    mount = f"mount -t tmpfs -o size=64k tmpfs {tmp_path} && exec {sys.executable} -c '{FULL_DISK}' {tmp_path}"
    done = subprocess.run(["unshare", "--mount", "sh", "-c", mount], env=environ, capture_output=True, text=True)
    if "mount:" in done.stderr or "unshare:" in done.stderr:
        pytest.skip("mounting is not allowed here")
    assert done.returncode == 0, done.stderr
