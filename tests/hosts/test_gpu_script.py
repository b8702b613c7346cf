"""The parts of scripts/gpu on the CPU, so that none fails on a GPU's machine for a slip."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from gpus.parts import PARTS

GROUPS = 3
"""The parts in so many runs, which go on side by side."""

pytestmark = pytest.mark.torch


@pytest.mark.parametrize("group", range(GROUPS))
def test_every_part_on_the_cpu(group: int, tmp_path: Path, root: Path, python: str, environ: dict[str, str]) -> None:
    names = [part.name for part in PARTS[group::GROUPS]]
    words = [python, root / "scripts" / "gpu", "--dry", "--quick", "--output", tmp_path, "--only", ",".join(names)]
    done = subprocess.run(words, env=environ, cwd=tmp_path, capture_output=True, text=True, check=False)
    report = json.loads((tmp_path / "gpu.json").read_text())
    wrong = {name: part for name, part in report["parts"].items() if part["result"] not in ("right", "not here")}
    assert not wrong and done.returncode == 0, done.stdout + done.stderr + json.dumps(wrong, indent=1)
    assert list(report["parts"]) == names
    assert {name for name, part in report["parts"].items() if part["result"] == "not here"} <= {"jax", "refusal"}


def test_without_a_gpu_it_says_so(tmp_path: Path, root: Path, python: str, environ: dict[str, str]) -> None:
    words = [python, root / "scripts" / "gpu", "--output", tmp_path]
    hidden = {**environ, "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(words, env=hidden, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "torch sees no GPU here; --dry runs the parts on the CPU" in done.stderr
