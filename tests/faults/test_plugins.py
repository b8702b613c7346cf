"""Rows of the matrix under the launcher that an installed package adds: nothing of it is known to musterpoint."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from ..hosts.test_platform_plugin import install
from .cell import run
from .fault import Cell
from .job import Stacks
from .launchers import RANKS
from .rows import NAMES
from .test_matrix import TIMES, no_image
from .test_matrix import pytestmark as pytestmark

WORKERS = RANKS._replace(
    name="workers", about="an installed package's", options=("--launcher", "workers"), collective=""
)
ROWS = ("raises", "exits", "killed", "stop")


@pytest.mark.parametrize("row", ROWS)
def test_a_job_ends_as_under_any_launcher(
    row: str, environ: dict[str, str], python: str, stack: Callable[[str], Path], tmp_path: Path
) -> None:
    (tmp_path / "plugin").mkdir()
    site = install(tmp_path / "plugin", python)
    path = f"{site}:{environ.get('PYTHONPATH', '')}"
    job = tmp_path / "job"
    job.mkdir()
    result = run(Cell(NAMES[row], WORKERS), job, {**environ, "PYTHONPATH": path}, Stacks(stack, no_image), TIMES)
    assert not result.wrong, "\n".join(result.wrong) + "\n" + result.log
