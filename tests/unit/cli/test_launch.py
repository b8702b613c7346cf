"""``muster launch`` on this machine: one host, real programs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import json, os, sys
names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "OMP_NUM_THREADS", "MUSTER_SLOTS")
line = json.dumps({"arguments": sys.argv[1:], **{name: os.environ.get(name) for name in names}})
os.write(1, line.encode() + b"\\n")
sys.exit(5 if "--fail" in sys.argv and os.environ["RANK"] == "1" else 0)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text(PROGRAM)
    return tmp_path


def launch(folder: Path, environ: dict[str, str], *words: str, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "musterpoint", "launch", *words], cwd=folder,
        env={**environ, "SAGEMAKER_BASE_DIR": str(folder / "none"), **more}, capture_output=True, text=True,
        timeout=500, check=False,
    )  # fmt: skip


def test_ranks_run_with_their_identity(folder: Path, environ: dict[str, str]) -> None:
    done = launch(folder, environ, "--launcher", "ranks", "--slots", "2", "train.py", "--slots", "9", "a b")
    assert done.returncode == 0, done.stderr
    seen = sorted((json.loads(line) for line in done.stdout.splitlines()), key=lambda fact: str(fact["RANK"]))
    assert [fact["RANK"] for fact in seen] == ["0", "1"]
    assert {fact["WORLD_SIZE"] for fact in seen} == {"2"}
    assert {fact["MASTER_ADDR"] for fact in seen} == {"127.0.0.1"}
    assert seen[0]["arguments"] == ["--slots", "9", "a b"]


def test_a_module_by_the_script_forms_options(folder: Path, environ: dict[str, str]) -> None:
    done = launch(folder, environ, "-m", "train", "--lr", "1")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["arguments"] == ["--lr", "1"]
    done = launch(folder, environ, "--slots", "x", "--train-script", "train.py", "--muster-launcher", "script")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["arguments"] == ["--slots", "x"]


def test_the_ranks_own_code_comes_out(folder: Path, environ: dict[str, str]) -> None:
    assert launch(folder, environ, "train.py", "--fail", MUSTER_LAUNCHER="ranks", MUSTER_SLOTS="2").returncode == 5
