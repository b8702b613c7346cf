"""mpirun keeps its session in a temporary directory."""

from __future__ import annotations

import os

import pytest

from ..conftest import Train
from ..test_read_only import BEGIN, run

pytestmark = [pytest.mark.skipif(os.geteuid() != 0, reason="mounts need root")]


def test_mpirun_without_one(train: Train) -> None:
    train.program("print('never')")
    code, said = run(train, MUSTER_LAUNCHER="mpi")
    assert (code, "launcher mpi needs a temporary directory, and " + BEGIN in said) == (72, True), said
