"""The book's pattern, unchanged: a launcher of the user's own and a script that knows only CUDA and nccl."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from musterpoint.local.netns_hosts import why_unavailable

pytestmark = pytest.mark.torch

NO_NETNS = why_unavailable()


def run(root: Path, environ: dict[str, str], left: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "musterpoint", "local", "--output", str(left)]
    return subprocess.run(
        [*command, *options], cwd=root, env=environ, capture_output=True, text=True, timeout=280, check=False
    )


def accuracy(log: str) -> float:
    return float(re.findall(r"test:accuracy=([0-9.]+);", log)[-1])


@pytest.mark.skipif(bool(NO_NETNS), reason=NO_NETNS)
def test_the_books_launcher_on_two_hosts(root: Path, environ: dict[str, str], tmp_path: Path) -> None:
    """As docs/local.md shows it."""
    (line,) = re.findall(r"^muster local (--hosts 2 --cpu-fallback .*)$", (root / "docs/local.md").read_text(), re.M)
    done = run(root, environ, tmp_path, *shlex.split(line))
    assert done.returncode == 0, done.stdout + done.stderr
    assert accuracy(done.stdout) > 0.9
    assert done.stderr.count("--cpu-fallback") == 1
    assert (tmp_path / "hosts/algo-1/opt/ml/model/model.pt").exists()


@pytest.mark.parametrize("launcher", ["ranks", "torchrun"])
def test_a_cuda_only_script_under_our_launchers(
    root: Path, environ: dict[str, str], tmp_path: Path, launcher: str
) -> None:
    done = run(
        root,
        environ,
        tmp_path,
        "--hosts",
        "2",
        "--cpu-fallback",
        "--backend",
        "process",
        "--launcher",
        launcher,
        "examples/book/train_ddp.py",
        "--epochs",
        "3",
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert accuracy(done.stdout) > 0.85
