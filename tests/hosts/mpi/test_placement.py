"""Processors of ranks under mpirun: ours where MPI binds nothing, its own where it does."""

from __future__ import annotations

from pathlib import Path
from typing import Callable

import pytest

from ..test_placement import HERE, run

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
    environ["PATH"] = f"{stack(flavour)}:{environ['PATH']}"
    assert run(python, environ, tmp_path, "--launcher", "mpi", *options) == expected
