"""A launcher and a platform that installed packages add: planned, run on two hosts, and refused where they aren't."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.xdist_group("plugins")

EXAMPLES = Path(__file__).parents[2] / "examples" / "plugins"
MOST_LINES = 60
SHOW = """
import os, pathlib, signal, sys, time
own = {name: text for name, text in sorted(os.environ.items()) if name.startswith(sys.argv[1]) and name != "GANG_JOB"}
print("rank", os.environ["RANK"], "of", os.environ["WORLD_SIZE"], own, flush=True)
if len(sys.argv) > 2:
    folder = pathlib.Path(sys.argv[2])
    (folder / os.environ["RANK"]).touch()
    while len(list(folder.iterdir())) < 4:
        time.sleep(0.05)
    if os.environ["RANK"] == "3":
        os.kill(os.getpid(), signal.SIGKILL)
"""
TWO = ("--hosts", "2", "--slots", "2", "--launcher")


def install(folder: Path, python: str) -> Path:
    """A folder with both examples, as pip installs them."""
    shutil.copytree(EXAMPLES, folder / "source")
    pip = (python, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index")
    subprocess.run([*pip, "--target", folder / "site", *(folder / "source").iterdir()], check=True)
    return folder / "site"


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory, python: str) -> Path:
    return install(tmp_path_factory.mktemp("plugins"), python)


@pytest.fixture
def local_with(local: Any, installed: Path) -> Any:
    """``muster local`` in an environment that has the packages."""
    local.environ["PYTHONPATH"] = f"{installed}:{local.environ['PYTHONPATH']}"
    return local


Plan = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def plan(python: str, environ: dict[str, str], installed: Path) -> Plan:
    """``muster plan`` with the packages and these variables, or without any."""

    def run(*words: str, **variables: str) -> subprocess.CompletedProcess[str]:
        more = {"PYTHONPATH": f"{installed}:{environ['PYTHONPATH']}", **variables} if variables else {}
        command = [python, "-m", "musterpoint", "plan", *words, "/bin/true"]
        return subprocess.run(command, env={**environ, **more}, capture_output=True, text=True, check=False)

    return run


def ranks(ran: Any, *hosts: str) -> list[list[str]]:
    return [sorted(line for line in ran.log(host).splitlines() if line.startswith("rank ")) for host in hosts]


@pytest.mark.parametrize("kind", ["launcher", "platform"])
def test_the_example_is_short(kind: str) -> None:
    texts = [path.read_text() for path in (EXAMPLES / kind).iterdir() if path.suffix in (".py", ".toml")]
    assert sum(len(text.splitlines()) for text in texts) <= MOST_LINES


def test_a_launcher_on_two_hosts(local_with: Any) -> None:
    """A variable of another job's workers doesn't reach the ranks."""
    program = local_with.program(SHOW)
    ran = local_with.run(*TWO, "workers", "--env", "WORKER_GROUP=old", "--tf-port", "9", program, "WORKER_")
    assert ran.code == 0, ran.stderr
    lines = [f"rank {rank} of 4 {{'WORKER_COUNT': '4', 'WORKER_ID': '{rank}'}}" for rank in range(4)]
    assert ranks(ran, "algo-1", "algo-2") == [lines[:2], lines[2:]]
    assert "doesn't read it; launcher tensorflow or parameter-server does" in ran.log("algo-1")


def test_a_launchers_plan(plan: Plan) -> None:
    words = ("--launcher", "workers", "--slots", "2", "--all")
    said = plan(*words, WORKER_GROUP="old").stdout
    assert "WORKER_ID=0 to 1" in said and "it numbers the workers of another job" in said
    assert plan(*words).returncode == 64


@pytest.mark.lane("suite")
def test_a_platforms_two_hosts_become_one_world(local_with: Any, tmp_path_factory: pytest.TempPathFactory) -> None:
    """And what ends a rank there, when all have told of themselves, is reported as anywhere."""
    told = str(tmp_path_factory.mktemp("told"))
    words = (*TWO, "ranks", "--platform", "gang", local_with.program(SHOW), "GANG_", told)
    ran = local_with.run(*words)
    assert ran.code == 137, ran.stderr
    assert "rank 3 (local rank 1) on gang2, killed by SIGKILL" in ran.job["FailureReason"]
    own = [{"GANG_HOSTS": "gang1,gang2", "GANG_SELF": host} for host in ("gang1", "gang2")]
    lines = [f"rank {rank} of 4 {own[rank // 2]}" for rank in range(4)]
    assert ranks(ran, "gang1", "gang2") == [lines[:2], lines[2:]]


@pytest.mark.lane("hosts")
def test_a_platform_is_used_only_where_it_is_named(plan: Plan) -> None:
    hosts, words = {"GANG_HOSTS": "h1,h2", "GANG_SELF": "h2"}, ("--launcher", "ranks", "--slots", "1")
    named = plan(*words, "--platform", "gang", "--all", **hosts).stdout
    assert "2 hosts" in named and "GANG_SELF" in named
    assert plan("--platform", "gang").returncode == 64
    alone = plan(*words, **hosts).stdout
    assert "runs as 1 rank on" in alone and "GANG_HOSTS=h1,h2: there may be other hosts" in alone
