"""pytest: the fixture ``muster_local`` runs a program on several hosts of this machine.

::

    def test_training(muster_local):
        job = muster_local("train.py", hosts=2, slots=2, launcher="ranks")
        assert job.code == 0, job.reason
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Callable

import pytest

from musterpoint import local


@pytest.fixture
def muster_local(tmp_path: Path) -> Callable[..., Any]:
    """:func:`musterpoint.local.run`, with what each job leaves below the test's ``tmp_path``."""
    count = 0

    def run(program: Any, *arguments: object, **options: Any) -> local.JobDescription:
        nonlocal count
        count += 1
        options.setdefault("output", tmp_path / f"muster-job-{count}")
        return local.run(program, *arguments, **options)

    return run
