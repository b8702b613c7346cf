"""The one file's name decides which command it is."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import musterpoint


def run(path: str, environ: dict[str, str], tmp_path: Path, *words: str) -> subprocess.CompletedProcess[str]:
    code = "import sys; from musterpoint.cli.bundled import main; sys.exit(main(sys.argv.pop(1)))"
    return subprocess.run(
        [sys.executable, "-c", code, path, *words], cwd=tmp_path, capture_output=True, text=True, check=False,
        env={**environ, "SAGEMAKER_BASE_DIR": str(tmp_path / "none")}, timeout=60,
    )  # fmt: skip


@pytest.mark.parametrize("name", ["train", "train.py", "/usr/local/bin/train"])
def test_train(name: str, environ: dict[str, str], tmp_path: Path) -> None:
    done = run(name, environ, tmp_path, "--version")
    assert done.returncode == 64
    assert "train is what a training platform runs" in done.stderr


@pytest.mark.parametrize("name", ["muster", "/opt/muster.py"])
def test_muster(name: str, environ: dict[str, str], tmp_path: Path) -> None:
    done = run(name, environ, tmp_path, "--version")
    assert (done.returncode, done.stdout) == (0, f"musterpoint {musterpoint.__version__}\n")


@pytest.mark.parametrize("name", ["launcher.py", "/opt/ml/code/launcher.py", "start.py", "trainer", "muster2.py"])
def test_any_other_name_launches(name: str, environ: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text("import sys; print(sys.argv[1:]); sys.exit(3)\n")
    done = run(name, environ, tmp_path, "--train-script", "program.py", "--version")
    assert (done.returncode, done.stdout) == (3, "['--version']\n")
