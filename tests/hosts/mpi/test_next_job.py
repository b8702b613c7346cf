"""mpirun and its daemon end with a supervisor that is killed, before their ranks meet those of the next job."""

from __future__ import annotations

from pathlib import Path

from ..test_jobs_together import Jobs, next_job_after_a_kill


def test_the_next_job_after_a_kill(python: str, environ: dict[str, str], tmp_path: Path) -> None:
    next_job_after_a_kill(Jobs(python, environ, tmp_path), "mpi")
