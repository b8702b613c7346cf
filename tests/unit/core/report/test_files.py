"""The control plane's files: right content, never over the user's own, and never in the way of the exit code."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from musterpoint.base.failure import Failure, Secondary
from musterpoint.base.timeline import Timeline
from musterpoint.core.job.model import Paths
from musterpoint.core.report import files
from musterpoint.core.report.files import OutcomeRecord
from musterpoint.core.report.output_directory import RESERVED, OutputDirectory
from musterpoint.core.supervise.state import Outcome

from ...fixtures import closing_fixture

FAILED = Outcome(7, Failure("algo-2", 7, "user", "user", "ValueError: naïve\nrank 3", 3, 1, None, 1.0))
DONE = Outcome(0)
STOPPED = Outcome(143, None, "algo-1")


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    output = tmp_path / "output"
    return Paths(output=str(output), failure=str(output / "failure"), success=str(output / "success"))


output = closing_fixture(OutputDirectory, "paths")
"""As the entry point makes it at its start."""


def written(paths: Paths) -> dict[str, str]:
    return {path.name: path.read_text("utf-8") for path in Path(paths.output).iterdir()}


def report(outcome: Outcome, paths: Paths, output: OutputDirectory) -> list[str]:
    """All that is written at the end."""
    problems = files.write(outcome, paths, output, {}) + files.write_timeline(Timeline("algo-1"), output)
    output.close()
    return problems


@pytest.mark.parametrize(
    ("outcome", "told"),
    [(FAILED, {"failure": "ValueError: naïve\nrank 3"}), (DONE, {"success": ""}), (STOPPED, {})],
    ids=["failed", "done", "stopped"],
)
@pytest.mark.parametrize("reserved", [True, False])
def test_what_each_end_leaves(
    paths: Paths, output: OutputDirectory, reserved: bool, outcome: Outcome, told: dict[str, str]
) -> None:
    if reserved:
        output.reserve()
    assert report(outcome, paths, output) == []
    found = written(paths)
    assert json.loads(found.pop("outcome.json"))["code"] == outcome.code
    assert found.pop("timeline.json") and found == told


@pytest.mark.parametrize(("text", "kept"), [("my own words", True), ("", False)])
def test_the_users_own_failure_file_is_kept(paths: Paths, output: OutputDirectory, text: str, kept: bool) -> None:
    output.reserve()
    Path(paths.failure).write_text(text)
    assert report(FAILED, paths, output) == []
    assert (written(paths)["failure"] == text) is kept


OLD = {name: f"{name} of an earlier run" for name in ("failure", "success", "outcome.json", "timeline.json")}


@pytest.fixture(params=["removable", "not removable"])
def reused(request: pytest.FixtureRequest, paths: Paths, monkeypatch: pytest.MonkeyPatch) -> OutputDirectory:
    """The output of a run that finds another run's report."""
    Path(paths.output).mkdir()
    for name, text in OLD.items():
        (Path(paths.output) / name).write_text(text)
    (Path(paths.output) / "mine").write_text("not ours to touch")
    if request.param == "not removable":
        with monkeypatch.context() as patched:
            patched.setattr(OutputDirectory, "remove", lambda self, name: None)
            return OutputDirectory(paths)
    output = OutputDirectory(paths)
    assert os.listdir(paths.output) == ["mine"]
    return output


@pytest.mark.parametrize("outcome", [FAILED, DONE, STOPPED], ids=["failed", "done", "stopped"])
def test_what_lay_there_before_is_not_this_runs(paths: Paths, reused: OutputDirectory, outcome: Outcome) -> None:
    reused.reserve()
    assert report(outcome, paths, reused) == []
    found = written(paths)
    assert found.pop("mine") == "not ours to touch"
    assert not set(found.values()) & {OLD["outcome.json"], OLD["timeline.json"]}
    assert json.loads(found["outcome.json"])["code"] == outcome.code
    if outcome is not STOPPED:
        assert sorted(found) == sorted(["failure" if outcome is FAILED else "success", "outcome.json", "timeline.json"])
        assert not {*found.values()} & {*OLD.values()}


def test_a_file_of_this_run_that_looks_like_the_old_one_is_kept(paths: Paths, reused: OutputDirectory) -> None:
    """The same name, size and text: another file all the same."""
    Path(paths.failure).unlink(missing_ok=True)
    Path(paths.failure).write_text(OLD["failure"])
    os.utime(paths.failure, (0, 0))
    assert report(FAILED, paths, reused) == []
    assert written(paths)["failure"] == OLD["failure"]


@pytest.mark.parametrize("outcome", [FAILED, DONE, STOPPED], ids=["failed", "done", "stopped"])
@pytest.mark.parametrize("planted", [["failure"], ["success"], ["failure", "success"]], ids=" and ".join)
def test_failure_and_success_never_lie_side_by_side(
    paths: Paths, output: OutputDirectory, outcome: Outcome, planted: list[str]
) -> None:
    for name in planted:
        (Path(paths.output) / name).write_text("the program's own")
    assert report(outcome, paths, output) == []
    found = written(paths)
    assert not {"failure", "success"} <= {*found}
    if "failure" in planted:
        assert found["failure"] == "the program's own"


def test_below_another_musterpoint_nothing_is_old(paths: Paths) -> None:
    Path(paths.output).mkdir()
    for name, text in OLD.items():
        (Path(paths.output) / name).write_text(text)
    output = OutputDirectory(paths, shared=True)
    assert written(paths) == OLD
    assert report(FAILED, paths, output) == []
    assert written(paths)["failure"] == OLD["failure"]


NAMES = (
    "failure", "success", "outcome.json", "timeline.json", ".failure.reserved", ".outcome.json.reserved",
    f"outcome.json.{os.getpid()}.tmp", f"failure.{os.getpid()}.tmp",
)  # fmt: skip


def plant(kind: str, place: Path, outside: Path) -> None:
    if place.exists() or place.is_symlink():
        place.unlink()
    if kind == "link":
        place.symlink_to(outside)
    elif kind == "hard link":
        os.link(outside, place)
    elif kind == "dangling link":
        place.symlink_to(outside.with_name("made-through-a-link"))
    elif kind == "fifo":
        os.mkfifo(place)
    else:
        place.mkdir()
        (place / "full").touch()


@pytest.mark.parametrize("when", ["before the start", "before the program", "while it runs"])
@pytest.mark.parametrize("outcome", [FAILED, DONE, STOPPED], ids=["failed", "done", "stopped"])
@pytest.mark.parametrize("kind", ["link", "dangling link", "hard link", "fifo", "directory"])
def test_nothing_is_written_through_what_was_planted(
    paths: Paths, tmp_path: Path, kind: str, outcome: Outcome, when: str
) -> None:
    """Neither content nor mode of a file elsewhere changes, none is made there, and nothing hangs."""
    outside = tmp_path / "outside"
    outside.write_text("somebody else's")
    outside.chmod(0o600)
    Path(paths.output).mkdir()

    def plant_all() -> None:
        for name in NAMES:
            plant(kind, Path(paths.output) / name, outside)

    if when == "before the start":
        plant_all()
    output = OutputDirectory(paths)
    if when == "before the program":
        plant_all()
    output.reserve()
    if when == "while it runs":
        plant_all()
    problems = report(outcome, paths, output)
    assert (outside.read_text(), outside.stat().st_mode & 0o777) == ("somebody else's", 0o600)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["output", "outside"]
    if kind == "directory":  # there is no way around one that the program filled
        assert all(problem.endswith("could not be written: Is a directory") for problem in problems)
        return
    assert problems == []
    assert json.loads((Path(paths.output) / "outcome.json").read_text())["code"] == outcome.code
    assert not (Path(paths.output) / "outcome.json").is_symlink()
    if outcome is FAILED and not (kind == "hard link" and when != "before the start"):
        assert Path(paths.failure).read_text("utf-8") == "ValueError: naïve\nrank 3"


def test_where_no_second_file_can_be_made_a_planted_one_is_not_written(
    paths: Paths, output: OutputDirectory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a full disk the file itself is written, if it is one."""
    outside = tmp_path / "outside"
    outside.write_text("somebody else's")

    def create(self: OutputDirectory, name: str) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(OutputDirectory, "create", create)
    for kind in ("link", "dangling link", "hard link", "fifo"):
        plant(kind, Path(paths.output) / "outcome.json", outside)
        (problem,) = files.write(STOPPED, paths, output, {})
        assert "outcome.json could not be written: " in problem, kind
        assert outside.read_text() == "somebody else's"
        assert sorted(path.name for path in tmp_path.iterdir()) == ["output", "outside"]
        (Path(paths.output) / "outcome.json").unlink(missing_ok=True)
    assert files.write(STOPPED, paths, output, {}) == []


def test_an_output_directory_that_is_the_platforms_link(paths: Paths, tmp_path: Path) -> None:
    mount = tmp_path / "mount"
    mount.mkdir()
    Path(paths.output).symlink_to(mount)
    output = OutputDirectory(paths)
    output.reserve()
    assert report(FAILED, paths, output) == []
    assert sorted(path.name for path in mount.iterdir()) == ["failure", "outcome.json", "timeline.json"]


def test_an_output_directory_that_becomes_a_link(paths: Paths, output: OutputDirectory, tmp_path: Path) -> None:
    output.reserve()
    outside = tmp_path / "outside"
    outside.mkdir()
    os.rename(paths.output, tmp_path / "moved")
    Path(paths.output).symlink_to(outside)
    assert report(FAILED, paths, output) == []
    assert list(outside.iterdir()) == []
    assert (tmp_path / "moved" / "failure").exists()


def test_an_output_directory_that_the_program_made_anew(paths: Paths, output: OutputDirectory) -> None:
    output.reserve()
    shutil.rmtree(paths.output)
    assert report(FAILED, paths, output) == []
    assert sorted(written(paths)) == ["failure", "outcome.json", "timeline.json"]


def test_a_platform_without_paths() -> None:
    output = OutputDirectory(Paths())
    output.reserve()
    assert report(FAILED, Paths(), output) == []


def test_what_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "output").write_text("a file where the directory should be")
    paths = Paths(output=str(tmp_path / "output"), failure=str(tmp_path / "output" / "failure"))
    output = OutputDirectory(paths)
    output.reserve()
    first, second, third = report(FAILED, paths, output)
    assert first == f"{paths.failure} could not be written: Not a directory"
    assert "outcome.json" in second
    assert "timeline.json" in third


def test_the_termination_log_on_kubernetes(paths: Paths, output: OutputDirectory, tmp_path: Path) -> None:
    log = tmp_path / "termination-log"
    kubernetes = {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}
    files.write(FAILED, paths, output, kubernetes, termination_log=str(log))
    assert not log.exists()
    log.write_text("x" * 2000)
    files.write(FAILED, paths, output, {}, termination_log=str(log))
    assert log.read_text() == "x" * 2000
    files.write(FAILED, paths, output, kubernetes, termination_log=str(log))
    assert log.read_text("utf-8") == "ValueError: naïve\nrank 3"


FULL_DISK = """
import json, os, sys
from musterpoint.core.job.model import Paths
from musterpoint.core.report import files
from musterpoint.core.report.output_directory import OutputDirectory
from tests.unit.core.report.test_files import FAILED
root = sys.argv[1]
paths = Paths(output=root, failure=root + "/failure", success=root + "/success")
output = OutputDirectory(paths)
output.reserve()
with open(root + "/fill", "wb", buffering=0) as fill:
    try:
        while True:
            fill.write(bytes(4096))
    except OSError:
        pass
problems = files.write(FAILED, paths, output, {})
assert open(root + "/failure", encoding="utf-8").read() == "ValueError: na\\u00efve\\nrank 3", problems
assert json.load(open(root + "/outcome.json", encoding="utf-8"))["code"] == 7, problems
assert problems == [], problems
"""


@pytest.mark.skipif(not shutil.which("unshare") or os.geteuid() != 0, reason="needs a mount namespace")
def test_a_full_disk_still_gets_the_reason_out(tmp_path: Path) -> None:
    root = Path(__file__).parents[4]
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join((str(root / "src"), str(root)))}
    mount = f"mount -t tmpfs -o size=64k tmpfs {tmp_path} && exec {sys.executable} -c '{FULL_DISK}' {tmp_path}"
    done = subprocess.run(["unshare", "--mount", "sh", "-c", mount], env=environ, capture_output=True, text=True)
    if "mount:" in done.stderr or "unshare:" in done.stderr:
        pytest.skip("mounting is not allowed here")
    assert done.returncode == 0, done.stderr


USER = Failure("algo-2", 7, "user", "user", "ValueError: x", 3, 1, None, 1.0)

CASES = [
    (Outcome(0), "", "done", False, ""),
    (Outcome(143, None, "algo-1"), "platform", "stopped", True, "stopped by the platform on algo-1"),
    (Outcome(143, None, "algo-1", spoilt=USER), "platform", "stopped", True,
     "stopped by the platform on algo-1; while it was stopping:\nValueError: x"),
    (Outcome(7, USER), "user", "user", False, "ValueError: x"),
    (Outcome(7, USER, "", Secondary(2)), "user", "user", False, "ValueError: x\n2 other ranks failed the same way"),
    (Outcome(137, USER._replace(kind="oom")), "user", "oom", False, "ValueError: x"),
    (Outcome(1, USER._replace(kind="peer")), "user", "peer", True, "ValueError: x"),
    (Outcome(139, USER._replace(code=139, signal=11)), "user", "user", True, "ValueError: x"),
    (Outcome(76, USER._replace(kind="infra", cause="host")), "host", "infra", True, "ValueError: x"),
    (Outcome(70, USER._replace(code=70, kind="infra", cause="muster")), "muster", "infra", False, USER.reason),
    (Outcome(3, None), "muster", "infra", True, "muster: ended with exit code 3 for a reason nobody reported"),
]  # fmt: skip


@pytest.mark.parametrize(("outcome", "cause", "kind", "retryable", "reason"), CASES)
def test_outcome_records(outcome: Outcome, cause: str, kind: str, retryable: bool, reason: str) -> None:
    record = OutcomeRecord.from_outcome(outcome)
    assert (record.code, record.cause, record.kind) == (outcome.code, cause, kind)
    assert (record.retryable, record.reason, record.attempt) == (retryable, reason, 1)


def test_the_keys_of_outcome_json() -> None:
    value = OutcomeRecord.from_outcome(Outcome(7, USER, attempts=2, no_restart="in attempt 2")).to_json()
    assert value == {
        "code": 7, "cause": "user", "class": "user", "retryable": False, "host": "algo-2", "rank": 3, "signal": None,
        "attempt": 2, "attempts": 2, "reason": "ValueError: x\nin attempt 2",
    }  # fmt: skip


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


@pytest.mark.parametrize("can", [True, False])
def test_space_is_taken_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, can: bool) -> None:
    def fallocate(fd: int, offset: int, length: int) -> None:
        raise OSError

    if not can:
        monkeypatch.setattr(os, "posix_fallocate", fallocate, raising=False)
    output = OutputDirectory(Paths(failure=str(tmp_path / "output" / "failure")))
    output.reserve()
    taken = {path.name: path.stat() for path in (tmp_path / "output").iterdir()}
    assert {name: found.st_size for name, found in taken.items()} == {
        f".{name}.reserved": size for name, size in RESERVED.items()
    }
    assert all(found.st_blocks * 512 >= found.st_size for found in taken.values())
    output.close()
    assert os.listdir(tmp_path / "output") == []


def test_what_a_killed_run_set_aside_is_replaced(tmp_path: Path) -> None:
    paths = Paths(failure=str(tmp_path / "failure"))
    OutputDirectory(paths).reserve()
    output = OutputDirectory(paths)
    output.reserve()
    output.close()
    assert os.listdir(tmp_path) == []


def test_where_there_is_none(tmp_path: Path) -> None:
    (tmp_path / "output").write_text("a file where the directory should be")
    for paths in (Paths(failure=str(tmp_path / "output" / "failure")), Paths()):
        output = OutputDirectory(paths)
        output.reserve()
        output.close()
    assert os.listdir(tmp_path) == ["output"]
