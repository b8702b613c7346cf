"""``@pytest.mark.muster``: a test that runs in every rank of a job, and fails where one rank's does."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
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


def test_whose_fixture_is_missing(absent):
    pass
"""


@pytest.fixture
def ran(python: str, environ: dict[str, str], tmp_path: Path) -> Callable[[str], tuple[int, str]]:
    """The code and the output of pytest on a file with this text."""

    def run(text: str) -> tuple[int, str]:
        (tmp_path / "test_ranks.py").write_text(text)
        words = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--strict-markers", "--basetemp", "base"]
        done = subprocess.run(
            [*words, "test_ranks.py"], cwd=tmp_path, env=environ, capture_output=True, text=True, check=False
        )
        return done.returncode, done.stdout + done.stderr

    return run


def test_the_test_of_the_documentation_passes(ran: Callable[[str], tuple[int, str]], root: Path) -> None:
    page = (root / "docs" / "ci.md").read_text()
    (text,) = re.findall(r"<!-- runs in hosts/test_pytest_mark.py -->\n```python\n(.*?)```", page, re.DOTALL)
    code, said = ran(text)
    assert (code, "1 passed" in said) == (0, True), said


@pytest.mark.lane("suite")
def test_marked_tests_run_in_ranks(ran: Callable[[str], tuple[int, str]], tmp_path: Path) -> None:
    _, said = ran(TESTS)
    assert "2 failed, 1 passed" in said
    assert "AlgorithmError: AssertionError: rank 1 is wrong" in said, "the reason is the test's own error"
    assert "rank 1 (local rank 0) on algo-2, exit code 1" in said
    assert "AlgorithmError: FixtureLookupError: fixture 'absent' not found" in said
    logs = "".join(log.read_text() for log in (tmp_path / "base").glob("**/ranks/rank-*.log"))
    assert "assert 1 != 1" in said + logs
