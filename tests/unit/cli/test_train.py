"""``train``: no arguments; the platform's tree is all it needs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from .conftest import write_tree

PROGRAM = "import sys\nprint(sys.argv[1:])\nsys.exit(7)\n"


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """The tree of one host, beginning with the empty folders that every image has."""
    for folder in ("code", "input/config", "model", "output/data"):
        (tmp_path / folder).mkdir(parents=True)
    return tmp_path


def write(base: Path) -> None:
    write_tree(base, {"sagemaker_program": "train.py", "b": "1", "a": "2"}, code=PROGRAM)


def train(base: Path, environ: dict[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "musterpoint.cli.train", *words], env={**environ, "SAGEMAKER_BASE_DIR": str(base)},
        capture_output=True, text=True, timeout=500, check=False,
    )  # fmt: skip


def test_it_runs_the_job_and_ends_with_its_code(base: Path, environ: dict[str, str]) -> None:
    write(base)
    done = train(base, environ)
    # the file's order, which sagemaker-training would sort
    assert (done.returncode, done.stdout) == (7, "['-b', '1', '-a', '2']\n")
    assert "exit code 7" in (base / "output" / "failure").read_text()


def test_words_of_the_command_line_mean_nothing(base: Path, environ: dict[str, str]) -> None:
    write(base)
    assert train(base, environ, "train", "--help").stdout == "['-b', '1', '-a', '2']\n"


@pytest.mark.parametrize("where", ["", "none"])
def test_without_a_tree_one_sentence_says_where_to_look(base: Path, environ: dict[str, str], where: str) -> None:
    done = train(base / where, environ)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (64, "", 1), done.stderr
    assert str(base / where / "input" / "config" / "resourceconfig.json") in done.stderr


@pytest.mark.parametrize("word", ["--help", "-h"])
def test_help_starts_nothing(base: Path, environ: dict[str, str], word: str) -> None:
    """With a job there too."""
    write(base)
    done = train(base, environ, word)
    assert (done.returncode, done.stderr, done.stdout.startswith("usage: train")) == (0, "", True)
    assert not (base / "output" / "outcome.json").exists()
