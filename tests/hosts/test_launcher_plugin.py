"""A launcher that an installed package adds: planned, run on two hosts, its options checked as any launcher's."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.xdist_group("plugins")

EXAMPLE = Path(__file__).parents[2] / "examples" / "plugins" / "launcher"
SHOW = """
import os

worker = {name: text for name, text in sorted(os.environ.items()) if name.startswith("WORKER_")}
print("rank", os.environ["RANK"], worker, flush=True)
"""


def install(folder: Path, python: str) -> Path:
    """A folder with the example, as pip installs it."""
    shutil.copytree(EXAMPLE, folder / "source")
    pip = (python, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index")
    subprocess.run([*pip, "--target", str(folder / "site"), str(folder / "source")], check=True)
    return folder / "site"


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory, python: str) -> Path:
    return install(tmp_path_factory.mktemp("plugin"), python)


def test_two_hosts(local: Any, installed: Path) -> None:
    """A variable of another job's workers doesn't reach the ranks."""
    local.environ["PYTHONPATH"] = f"{installed}:{local.environ.get('PYTHONPATH', '')}"
    ran = local.run(
        "--hosts", "2", "--slots", "2", "--launcher", "workers", "--env", "WORKER_GROUP=old", "--tf-port", "9",
        local.program(SHOW),
    )  # fmt: skip
    assert ran.code == 0, ran.stderr
    for number, host in enumerate(("algo-1", "algo-2")):
        seen = sorted(line for line in ran.log(host).splitlines() if line.startswith("rank "))
        ranks = (2 * number, 2 * number + 1)
        assert seen == [f"rank {rank} {{'WORKER_COUNT': '4', 'WORKER_ID': '{rank}'}}" for rank in ranks]
    assert "doesn't read it; launcher tensorflow or parameter-server does" in ran.log("algo-1")


def test_the_plan_shows_it_and_an_unknown_name_is_refused(
    python: str, environ: dict[str, str], installed: Path
) -> None:
    plan = (python, "-m", "musterpoint", "plan", "--launcher", "workers", "--slots", "2", "--all", "/bin/true")
    with_it = {**environ, "PYTHONPATH": f"{installed}:{environ.get('PYTHONPATH', '')}", "WORKER_GROUP": "old"}
    ran = subprocess.run(plan, env=with_it, capture_output=True, text=True, check=True)
    assert "WORKER_ID=0 to 1" in ran.stdout
    assert "it numbers the workers of another job" in ran.stdout
    refused = subprocess.run(plan, env=environ, capture_output=True, text=True, check=False)
    assert refused.returncode == 64
    assert "--launcher='workers': expected one of auto, script" in refused.stderr
