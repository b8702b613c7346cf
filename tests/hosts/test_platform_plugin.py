"""A platform that an installed package adds: planned, played on two hosts, and its failures reported as any."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.xdist_group("plugins")

EXAMPLE = Path(__file__).parents[2] / "examples" / "plugins" / "platform"
SHOW = """
import os, signal, sys

gang = {name: text for name, text in sorted(os.environ.items()) if name.startswith("GANG_") and name != "GANG_JOB"}
print("rank", os.environ["RANK"], "of", os.environ["WORLD_SIZE"], gang, flush=True)
if os.environ["RANK"] == "3" and "raise" in sys.argv:
    raise LookupError("no such sample")
if os.environ["RANK"] == "3" and "kill" in sys.argv:
    os.kill(os.getpid(), signal.SIGKILL)
"""
TWO = ("--platform", "gang", "--hosts", "2", "--launcher", "ranks", "--slots", "2")


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory, python: str) -> Path:
    """A folder with the example, as pip installs it."""
    folder = tmp_path_factory.mktemp("plugin")
    shutil.copytree(EXAMPLE, folder / "source")
    pip = (python, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index")
    subprocess.run([*pip, "--target", str(folder / "site"), str(folder / "source")], check=True)
    return folder / "site"


@pytest.fixture
def gang(local: Any, installed: Path) -> Any:
    """``muster local`` in an environment that has the package."""
    local.environ["PYTHONPATH"] = f"{installed}:{local.environ.get('PYTHONPATH', '')}"
    return local


@pytest.mark.lane("suite")
def test_two_hosts_become_one_world(gang: Any) -> None:
    ran = gang.run(*TWO, gang.program(SHOW))
    assert ran.code == 0, ran.stderr
    for number, host in enumerate(("gang1", "gang2")):
        seen = sorted(line for line in ran.log(host).splitlines() if line.startswith("rank "))
        own = {"GANG_HOSTS": "gang1,gang2", "GANG_SELF": host}
        assert seen == [f"rank {rank} of 4 {own}" for rank in (2 * number, 2 * number + 1)]


def test_the_plan_shows_what_was_read_from_it(python: str, environ: dict[str, str], installed: Path) -> None:
    words = {"GANG_HOSTS": "h1,h2", "GANG_SELF": "h2", "PYTHONPATH": f"{installed}:{environ.get('PYTHONPATH', '')}"}
    muster = (python, "-m", "musterpoint", "plan")
    options = ("--launcher", "ranks", "--slots", "1", "--platform", "gang", "--all", "--", "/bin/true")
    ran = subprocess.run([*muster, *options], env={**environ, **words}, capture_output=True, text=True, check=True)
    assert "2 hosts" in ran.stdout
    assert "GANG_SELF" in ran.stdout
    refused = subprocess.run(
        [*muster, "--platform", "gang", "/bin/true"], env=environ, capture_output=True, text=True, check=False
    )
    assert refused.returncode == 64
    assert "--platform='gang': expected one of auto, sagemaker" in refused.stderr


def test_it_is_used_only_where_it_is_named(python: str, environ: dict[str, str], installed: Path) -> None:
    words = {"GANG_HOSTS": "h1,h2", "GANG_SELF": "h2", "PYTHONPATH": f"{installed}:{environ.get('PYTHONPATH', '')}"}
    plan = (python, "-m", "musterpoint", "plan", "--launcher", "ranks", "/bin/true")
    ran = subprocess.run(plan, env={**environ, **words}, capture_output=True, text=True, check=True)
    assert "runs as 1 rank on" in ran.stdout
    assert "GANG_HOSTS=h1,h2: there may be other hosts" in ran.stdout
