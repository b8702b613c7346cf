"""What people see of an error."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from musterpoint.base.errors import LauncherError
from musterpoint.base.failure import Failure
from musterpoint.cli.errors import guarded


def test_our_errors_are_a_sentence_and_their_code(capfd: pytest.CaptureFixture[str]) -> None:
    def fail() -> int:
        raise LauncherError("no torch")

    reported: list[Failure] = []
    assert guarded(fail, reported.append) == 72
    assert capfd.readouterr().err == "musterpoint: no torch\n"
    assert [(one.code, one.cause, one.reason) for one in reported] == [(72, "muster", "muster: no torch")]


def test_an_interrupt_is_130() -> None:
    def interrupt() -> int:
        raise KeyboardInterrupt

    assert guarded(interrupt) == 130


def test_a_reader_that_leaves_is_no_error(root: Path, environ: dict[str, str]) -> None:
    command = f"{sys.executable} -m musterpoint plan --slots 200 --launcher ranks {sys.executable} | head -1"
    done = subprocess.run(["bash", "-c", f"set -o pipefail; {command}"], env=environ, capture_output=True, text=True,
                          check=False)  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert "ranks" in done.stdout


def test_what_serve_lacks_is_said_with_what_installs_it(root: Path, environ: dict[str, str]) -> None:
    words = [sys.executable, "-S", "-m", "musterpoint", "serve"]  # -S: without installed packages
    env = {**environ, "PYTHONPATH": str(root / "src")}
    done = subprocess.run(words, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 64
    assert done.stderr.strip().endswith(f"doesn't have: {sys.executable} -m pip install 'musterpoint[serve]'")
