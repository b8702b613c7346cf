"""The parts of scripts/gpu on the CPU, so that none fails on a GPU's machine for a slip."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from gpus.machine import Machine, Wrong
from gpus.parts import PARTS

pytestmark = pytest.mark.torch


@pytest.mark.parametrize("group", range(3))  # these run side by side
def test_every_part_on_the_cpu(group: int, tmp_path: Path, root: Path, python: str, environ: dict[str, str]) -> None:
    names = [part.name for part in PARTS[group::3]]
    words = [python, root / "scripts" / "gpu", "--dry", "--quick", "--output", tmp_path, "--only", ",".join(names)]
    done = subprocess.run(words, env=environ, cwd=tmp_path, capture_output=True, text=True, check=False)
    report = json.loads((tmp_path / "gpu.json").read_text())
    wrong = {name: part for name, part in report["parts"].items() if part["result"] not in ("right", "not here")}
    assert not wrong and done.returncode == 0, done.stdout + done.stderr + json.dumps(wrong, indent=1)
    assert list(report["parts"]) == names
    assert {name for name, part in report["parts"].items() if part["result"] == "not here"} <= {"jax", "refusal"}


def test_a_command_ends_with_its_part_and_so_does_all_below_it(tmp_path: Path) -> None:
    os.mkfifo(held := tmp_path / "held")
    machine = Machine(tmp_path, True, time.monotonic() + 999, True)
    with open(held, opener=lambda path, _: os.open(path, os.O_RDONLY | os.O_NONBLOCK)) as file:
        with pytest.raises(Wrong, match=r"time was over before the end of -c .* it said: 7"):
            machine.done(["sh", "-c", "setsid sleep inf 2>held & echo 7; wait"], {}, ("7", lambda _: signal.alarm(1)))
        os.set_blocking(file.fileno(), True)
        assert file.read() == ""


def test_without_a_gpu_it_says_so(tmp_path: Path, root: Path, python: str, environ: dict[str, str]) -> None:
    words = [python, root / "scripts" / "gpu", "--output", tmp_path]
    hidden = {**environ, "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(words, env=hidden, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "torch sees no GPU here; --dry runs the parts on the CPU" in done.stderr
