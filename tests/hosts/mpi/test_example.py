"""The example: a reduction over the standard library's own source, the same however many ranks share it."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path
from typing import Any, Callable

import pytest

pytestmark = pytest.mark.netns


def counted(job: Any, folder: Path, *options: str) -> dict[str, Any]:
    job.local.output = folder / f"job-{len(options)}-{options[1]}"
    program = Path(__file__).resolve().parents[3] / "examples" / "mpi" / "names.py"
    ran = job.run(program, *options, arguments=("--files", "80", "--top", "3"))
    assert ran.code == 0, ran.stderr + ran.stdout
    with tarfile.open(ran.output / "model.tar.gz") as archive:
        file = archive.extractfile("names.json") or archive.extractfile("./names.json")
        assert file is not None
        found: dict[str, Any] = json.load(file)
        return found


def test_two_hosts_count_what_one_rank_counts(under: Callable[[str], Any], tmp_path: Path) -> None:
    job = under("mpich")
    together = counted(job, tmp_path, "--hosts", "2", "--host-slots", "2,1")
    alone = counted(job, tmp_path, "--hosts", "1")
    assert together == alone
    assert together["files"] == 80
    assert together["most used"][0][0] == "self"
