"""The road's own small decisions; its whole length is travelled by the tests of jobs on several hosts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from musterpoint import entrypoint
from musterpoint.job.model import Paths
from musterpoint.rollcall.roster import Roster, Seat
from musterpoint.runtime import Request

SEATS = (
    Seat("algo-1", "10.0.0.1", 1, True, "", 4),
    Seat("algo-2", "10.0.0.2", 1, True, "", 2),
    Seat("algo-3", "10.0.0.3", 0, False, "", 8),
)


def test_hosts_with_uneven_slots_are_announced_once() -> None:
    roster = Roster("digits", "s", SEATS[:2], "10.0.0.1", 7777, "algo-1")
    assert entrypoint._all_here(roster, "torchrun") == "2 hosts are here: launcher torchrun, 2 ranks (1 each)"
    seats = (SEATS[0]._replace(slots=4), *SEATS[1:])
    told = entrypoint._all_here(roster._replace(seats=seats), "ranks")
    assert told == "2 hosts are here: launcher ranks, 5 ranks (uneven slots); 1 more outside the group"


class Tree:
    """A job's ``/opt/ml`` of one host."""

    def __init__(self, base: Path) -> None:
        self.base = base
        config = base / "input" / "config"
        config.mkdir(parents=True)
        (base / "code").mkdir()
        (base / "code" / "train.py").write_text("print('hello', flush=True)\n")
        (config / "hyperparameters.json").write_text('{"sagemaker_program": "train.py"}')
        (config / "resourceconfig.json").write_text('{"current_host": "algo-1", "hosts": ["algo-1"]}')
        (config / "inputdataconfig.json").write_text("{}")

    def run(self, environ: dict[str, str], first: str = "", **more: str) -> subprocess.CompletedProcess[str]:
        code = f"import os, sys\nfrom musterpoint import entrypoint, runtime\n{first}\n"
        code += "sys.exit(entrypoint.run(runtime.Request(os.environ)))"
        return subprocess.run(
            [sys.executable, "-c", code], env={**environ, "SAGEMAKER_BASE_DIR": str(self.base), **more},
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip

    def left(self, name: str) -> str:
        return (self.base / "output" / name).read_text()


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)


def test_every_ending_leaves_its_report(tree: Tree, environ: dict[str, str]) -> None:
    done = tree.run(environ)
    assert (done.returncode, done.stdout) == (0, "hello\n")
    assert tree.left("success") == ""
    assert json.loads(tree.left("outcome.json"))["class"] == "done"
    events = [(row["host"], row["event"]) for row in json.loads(tree.left("timeline.json"))]
    assert events[0] == ("algo-1", "started")
    assert ("algo-1", "rank-ended") in events
    assert events[-1] == ("algo-1", "over")


def test_a_wrong_option_is_a_sentence_64_and_a_failure_file(tree: Tree, environ: dict[str, str]) -> None:
    done = tree.run(environ, MUSTER_SLOTS="many")
    assert (done.returncode, done.stdout) == (64, "")
    assert tree.left("failure").startswith("muster: MUSTER_SLOTS='many': expected a whole number")
    assert "Traceback" not in done.stderr
    assert json.loads(tree.left("outcome.json"))["code"] == 64


def test_a_bug_of_ours_is_70_with_its_traceback(tree: Tree, environ: dict[str, str]) -> None:
    done = tree.run(environ, "def bug(*_): raise KeyError('nobody thought of it')\nentrypoint.get_ready = bug")
    assert done.returncode == 70
    failure = tree.left("failure")
    assert failure.startswith("muster: internal error, please report it: KeyError: 'nobody thought of it'")
    assert "in bug" in failure
    outcome = json.loads(tree.left("outcome.json"))
    assert (outcome["cause"], outcome["class"], outcome["retryable"]) == ("muster", "infra", False)


def test_a_secret_in_an_error_of_ours_is_hidden(tree: Tree, environ: dict[str, str]) -> None:
    code = "def bug(*_): raise KeyError('xyzzy-xyzzy-1234')\nentrypoint.get_ready = bug"
    done = tree.run(environ, code, API_TOKEN="xyzzy-xyzzy-1234")
    assert done.returncode == 70
    assert "xyzzy" not in done.stderr + tree.left("failure") + tree.left("outcome.json")


def test_reports_of_a_job_that_cannot_be_read_lie_where_the_platform_looks(tmp_path: Path) -> None:
    base = {"SAGEMAKER_BASE_DIR": str(tmp_path)}
    assert entrypoint._paths_without_job(Request(base)).failure == os.path.join(tmp_path, "output", "failure")
    assert entrypoint._paths_without_job(Request(base, program="train.py")) == Paths(), "a folder of anybody's"
    (tmp_path / "input" / "config").mkdir(parents=True)
    assert entrypoint._paths_without_job(Request(base, program="train.py")) == entrypoint._paths_without_job(
        Request(base)
    )
    nowhere = {"SAGEMAKER_BASE_DIR": str(tmp_path / "none")}
    assert entrypoint._paths_without_job(Request(nowhere)) == Paths()
