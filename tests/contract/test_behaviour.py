"""Jobs that the real toolkit fails and ours runs, and whose program counts: what docs/sagemaker.md says of both."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from .conftest import Theirs
from .test_sagemaker_training import DUMP, Tree, write

MAIN = {"pkg/__main__.py": (DUMP, 0o644), "pkg/__init__.py": ("", 0o644)}


@pytest.fixture
def both(their_train: Theirs, both_environ: dict[str, str], our_path: str, tmp_path: Path) -> Any:
    """Runs a tree under both toolkits: the codes and the output of theirs and of ours."""

    def run(tree: Tree, without: str = "") -> tuple[tuple[int, str], tuple[int, str]]:
        base, output = tmp_path / "ml", tmp_path / "output"
        environ = {**both_environ, "DUMP": str(tmp_path / "dump.json"), **tree.environ}
        prepare(tree, base, without)
        theirs = their_train(environ, output), output.read_text()
        prepare(tree, base, without)
        done = subprocess.run(
            [sys.executable, "-m", "musterpoint.cli.train"], env={**environ, "PYTHONPATH": our_path}, cwd="/",
            capture_output=True, text=True, timeout=500, check=False,
        )  # fmt: skip
        return theirs, (done.returncode, done.stdout + done.stderr)

    return run


def prepare(tree: Tree, base: Path, without: str) -> None:
    write(tree, base)
    if without:
        (base / "input" / "config" / without).unlink()


@pytest.mark.parametrize("name", ["inputdataconfig.json", "hyperparameters.json"])
def test_a_file_that_is_missing(both: Any, name: str) -> None:
    (code, output), (our_code, ours) = both(Tree(environ={"SAGEMAKER_PROGRAM": "dump.py"}), without=name)
    assert code == 2
    assert "FileNotFoundError: [Errno 2] No such file or directory" in output
    assert name in output
    assert our_code == 0, ours
    assert f"{name} is missing: the job is read as having none" in ours


def test_a_directory_with_a_main_module(both: Any) -> None:
    (code, output), (our_code, ours) = both(Tree(program="pkg", files=MAIN))
    assert code != 0, output
    assert our_code == 0, ours


def test_a_directory_with_a_main_module_beside_a_setup_file(both: Any) -> None:
    """Then it is a module to both; pip is asked to install what is there."""
    files = {**MAIN, "setup.py": ("from setuptools import setup\nsetup(name='d')\n", 0o644)}
    (code, output), (our_code, ours) = both(Tree(program="pkg", files=files, environ={"MUSTER_INSTALLER": "none"}))
    assert (code, our_code) == (0, 0), output + ours


def test_an_images_program_goes_before_the_jobs(both: Any) -> None:
    files = {"image.py": ("import sys; sys.exit(0)", 0o644), "job.py": ("import sys; sys.exit(3)", 0o644)}
    tree = Tree(program="job.py", files=files, environ={"SAGEMAKER_PROGRAM": "image.py"})
    (code, output), (our_code, ours) = both(tree)
    assert (code, our_code) == (0, 0), output + ours
    said = 'the variable SAGEMAKER_PROGRAM, "image.py", goes before the job\'s own sagemaker_program, "job.py"'
    assert said in ours
