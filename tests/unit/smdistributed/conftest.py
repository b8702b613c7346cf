"""Ranks as a launcher starts them: real processes, on this machine."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Callable, Iterator

import pytest

import musterpoint

from ...ports import free_port

SMDISTRIBUTED = Path(musterpoint.__file__).parent / "smdistributed"
STARTUP = str(SMDISTRIBUTED / "startup")
PROGRAMS = Path(__file__).parent / "programs"

RunRanks = Callable[..., "list[dict[str, Any]]"]


def by_torchrun(rank: int, world_size: int) -> dict[str, str]:
    return {"RANK": str(rank), "WORLD_SIZE": str(world_size), "LOCAL_RANK": str(rank),
            "LOCAL_WORLD_SIZE": str(world_size), "MASTER_ADDR": "127.0.0.1"}  # fmt: skip


@pytest.fixture
def run_ranks(environ: dict[str, str], tmp_path: Path) -> RunRanks:
    """Runs a program of ``programs/`` as some ranks and returns the JSON object that each one printed last."""

    def run(
        program: str,
        count: int,
        launched: Callable[[int, int], dict[str, str]] = by_torchrun,
        arguments: tuple[str, ...] = (),
        **more: str,
    ) -> list[dict[str, Any]]:
        port = str(free_port())
        started = []
        for rank in range(count):
            own = {**environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": STARTUP, "MASTER_PORT": port, **more}
            started.append(subprocess.Popen(
                [sys.executable, str(PROGRAMS / program), *arguments], env={**own, **launched(rank, count)},
                cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            ))  # fmt: skip
        said = []
        try:
            for process in started:
                out, err = process.communicate(timeout=240)
                assert process.returncode == 0, f"{program}, code {process.returncode}:\n{out}{err}"
                said.append(json.loads(out.splitlines()[-1]))
        finally:
            for process in started:
                process.kill()
                process.communicate()
        return said

    return run


@pytest.fixture
def python_says(environ: dict[str, str], tmp_path: Path) -> Callable[..., str]:
    """Runs code with the finder switched on by PYTHONPATH, and returns what it printed, or the error's last line."""

    def run(code: str, *path: str | Path, **more: str) -> str:
        environ["PYTHONPATH"] = os.pathsep.join([STARTUP, *map(str, path)])
        done = subprocess.run(
            [sys.executable, "-c", code], env={**environ, **more}, cwd=tmp_path, capture_output=True, text=True,
            check=False,
        )  # fmt: skip
        return done.stdout.strip() if done.returncode == 0 else done.stderr.strip().splitlines()[-1]

    return run


@pytest.fixture(scope="session")
def modelparallel() -> Iterator[Callable[[str], Any]]:
    """A module of ``smdistributed.modelparallel`` by its name there, in this process."""
    finder = importlib.import_module("musterpoint.smdistributed.finder")
    before = list(sys.meta_path)
    finder.install()
    yield lambda name: importlib.import_module(f"smdistributed.modelparallel.{name}")
    sys.meta_path[:] = before
