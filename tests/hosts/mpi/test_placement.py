"""Processors of ranks under mpirun: ours where MPI binds nothing, its own where it does."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import Callable

import pytest

PROGRAM = "import os; print('rank', os.environ['RANK'], 'on', *sorted(os.sched_getaffinity(0)), flush=True)\n"
HERE = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
HALVES = {0: HERE[: len(HERE) // 2], 1: HERE[len(HERE) // 2 :]}
ALL = {0: HERE, 1: HERE}


@pytest.mark.skipif(len(HERE) != 2, reason="what MPI binds to is known for two processors")
@pytest.mark.parametrize(
    ("flavour", "options", "expected"),
    [
        ("openmpi4", ("--cpu-binding", "slots"), HALVES),
        ("openmpi4", (), ALL),
        ("openmpi4", ("--cpu-binding", "slots", "--mpi-options", "--bind-to none"), ALL),
        ("mpich", ("--cpu-binding", "slots"), HALVES),
    ],
)
def test_where_ranks_run(
    stack: Callable[[str], Path], python: str, environ: dict[str, str], tmp_path: Path, flavour: str,
    options: tuple[str, ...], expected: dict[int, list[int]],
) -> None:  # fmt: skip
    (tmp_path / "train.py").write_text(PROGRAM)
    environ["PATH"] = f"{stack(flavour)}:{environ['PATH']}"
    words = [python, "-m", "musterpoint", "launch", "--slots", "2", "--launcher", "mpi", *options]
    done = subprocess.run(
        [*words, str(tmp_path / "train.py")], env=environ, capture_output=True, text=True, timeout=500, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    rows = re.findall(r"^rank (\d) on ([\d ]+)$", done.stdout, re.MULTILINE)
    assert {int(rank): [int(cpu) for cpu in cpus.split()] for rank, cpus in rows} == expected
