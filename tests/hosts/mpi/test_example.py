"""The example: a reduction over the standard library's own source, the same however many ranks share it."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path
from typing import Any, Callable

import pytest

from ..test_roles import example, models

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


def test_a_role_under_mpirun_that_isn_t_the_first(under: Callable[[str], Any], tmp_path: Path) -> None:
    """Its first host leads the job, and the policy server has the hosts before it."""
    job = under("openmpi4")
    job.environ["MUSTER_PYTHON"] = job.local.python  # it has torch
    file = example(tmp_path, "two-hosts", "--steps", "3", launcher="mpi")
    options, trainer, policy, reward = file.read_text().split("[[roles]]")
    trainer = trainer.replace("hosts = 1", 'hosts = 2\nends = "job"')
    file.write_text("[[roles]]".join([options, f'{policy}ends = "with"\n', trainer, reward]))
    ran = job.local.run("--backend", "netns", "-f", file)
    assert ran.code == 0, ran.stderr + ran.stdout
    assert [host["Role"] for host in ran.job["Hosts"]] == ["policy", "trainer", "trainer"]
    assert models(ran) == ["policy.pt"]
    assert "trainer on algo-2 to algo-3 (mpi, 4 ranks)" in ran.stdout


def test_a_role_under_mpirun_that_is_through_first(under: Callable[[str], Any], tmp_path: Path) -> None:
    """Its mpirun ends with its ranks, and the job waits for the other role."""
    job = under("openmpi4")
    file = tmp_path / "job.toml"
    role = '[[roles]]\nname = "{}"\nhosts = {}\nprogram = "{}"\nlauncher = "{}"\nends = "job"\n'
    file.write_text(role.format("long", 1, "long.py", "script") + role.format("short", 2, "short.py", "mpi"))
    (tmp_path / "short.py").write_text("print('short')\n")
    (tmp_path / "long.py").write_text("import time\nfor _ in range(60):\n    time.sleep(0.1)\nprint('long')\n")
    ran = job.local.run("--backend", "netns", "-f", file)
    assert ran.code == 0, ran.stderr + ran.stdout
    assert ran.stdout.count("short") >= 2 and "long" in ran.stdout
    ended = {event["name"]: event["at"] for event in ran.events("algo-2") if event["event"] == "launcher-ended"}
    assert ended["mpirun"] < next(each["at"] for each in ran.events("algo-2") if each["event"] == "all-hosts-done")
