"""``train``: no arguments; the platform's tree is all it needs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = "import sys\nprint(sys.argv[1:])\nsys.exit(7)\n"


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """The tree of one host, beginning with the empty folders that every image has."""
    for folder in ("code", "input/config", "model", "output/data"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "code" / "train.py").write_text(PROGRAM)
    return tmp_path


def write(base: Path) -> None:
    config = base / "input" / "config"
    (config / "hyperparameters.json").write_text(json.dumps({"sagemaker_program": "train.py", "b": "1", "a": "2"}))
    (config / "resourceconfig.json").write_text(json.dumps({"current_host": "algo-1", "hosts": ["algo-1"]}))
    (config / "inputdataconfig.json").write_text("{}")


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
def test_without_a_tree_it_says_what_it_is(base: Path, environ: dict[str, str], where: str) -> None:
    done = train(base / where, environ)
    assert done.returncode == 64
    assert done.stdout == ""
    assert "resourceconfig.json" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("word", ["--help", "-h"])
def test_what_an_image_builder_is_told(base: Path, environ: dict[str, str], word: str) -> None:
    """What it is, what it reads, how to try it, where there is more; and nothing is started, with a job there too."""
    write(base)
    done = train(base, environ, word)
    assert (done.returncode, done.stderr) == (0, "")
    for words in (
        "usage: train", "in a container", "resourceconfig.json", "hyperparameters.json", "inputdataconfig.json",
        "SAGEMAKER_PROGRAM", "muster local --hosts 2 --image IMAGE", "images.md", "MUSTER_SLOTS",
    ):  # fmt: skip
        assert words in done.stdout
    assert not (base / "output" / "outcome.json").exists()
    assert max(map(len, done.stdout.splitlines())) <= 120


def test_without_a_job_one_sentence_says_where_to_look(tmp_path: Path, environ: dict[str, str]) -> None:
    done = train(tmp_path, environ)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (64, "", 1), done.stderr
    assert done.stderr.startswith(f"musterpoint: {tmp_path}/input/config/resourceconfig.json isn't here: train is what")
    assert "`train --help` tells" in done.stderr
    assert "`muster local PROGRAM`" in done.stderr
