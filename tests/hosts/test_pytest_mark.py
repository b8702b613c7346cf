"""``@pytest.mark.muster``: a test that runs in every rank of a job, and fails where one rank's does."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

TESTS = """
import os
import pytest

pytestmark = pytest.mark.muster(hosts=2, backend="process")


@pytest.fixture
def rank():
    return int(os.environ["RANK"])


def test_in_every_rank(rank):
    assert os.environ["WORLD_SIZE"] == "2"
    print("this is rank", rank, os.environ["SM_CURRENT_HOST"])


@pytest.mark.parametrize("wrong", [1])
def test_that_fails_in_one(rank, wrong):
    assert rank != wrong, "rank 1 is wrong"
"""


def test_the_test_of_the_documentation_passes(python: str, environ: dict[str, str], root: Path, tmp_path: Path) -> None:
    page = (root / "docs" / "ci.md").read_text()
    (text,) = re.findall(r"<!-- runs in hosts/test_pytest_mark.py -->\n```python\n(.*?)```", page, re.DOTALL)
    (tmp_path / "test_places.py").write_text(text)
    command = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--basetemp", "base", "test_places.py"]
    done = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True, check=False)
    assert (done.returncode, "1 passed" in done.stdout) == (0, True), done.stdout + done.stderr


@pytest.mark.lane("suite")
def test_marked_tests_run_in_ranks(python: str, environ: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "test_ranks.py").write_text(TESTS)
    command = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--strict-markers", "--basetemp", "base"]
    done = subprocess.run(
        [*command, "test_ranks.py"], cwd=tmp_path, env=environ, capture_output=True, text=True, check=False
    )
    assert "1 failed, 1 passed" in done.stdout, done.stdout + done.stderr
    assert "AlgorithmError: AssertionError: rank 1 is wrong" in done.stdout, "the reason is the test's own error"
    assert "rank 1 (local rank 0) on algo-2, exit code 1" in done.stdout
    logs = sorted((tmp_path / "base").glob("**/ranks/rank-*.log"))
    assert len(logs) == 4
    assert "assert 1 != 1" in done.stdout + "".join(log.read_text() for log in logs)


def test_a_fixture_that_is_missing_is_named(python: str, environ: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "test_ranks.py").write_text(TESTS.replace("(rank):", "(absent):").partition("@pytest.mark.param")[0])
    command = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--basetemp", "base", "test_ranks.py"]
    done = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True, check=False)
    assert "AlgorithmError: FixtureLookupError: fixture 'absent' not found" in done.stdout, done.stdout + done.stderr
