"""What `train` imports before the user's program runs: little, and nothing that only failures need."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from .job_tree import write_tree
from .running import result_of

COSTLY = {
    "argparse", "ast", "asyncio", "boto3", "dataclasses", "difflib", "hashlib", "hmac", "importlib.metadata", "inspect",
    "ipaddress", "logging", "rich", "shutil", "subprocess", "tempfile", "torch", "traceback", "urllib.parse", "zipfile",
}  # fmt: skip
"""Modules of 2 ms or more; most of all asyncio (42 ms) and logging."""
OF_SOME_JOBS = {
    f"musterpoint.{name}"
    for name in ("core.channel.secret", "core.code.fetch", "core.code.install", "core.diagnosis.program_failures",
                 "core.job_data.carrier", "core.processes.ssh_door", "core.rollcall.gathering",
                 "core.started_per_rank.meeting", "core.supervise.mpi_daemons", "core.supervise.ranks_met",
                 "core.supervise.watchers.ssh_sessions", "local", "tools.check.before_launch")
}  # fmt: skip
"""Ours that cost as much, for jobs that share a secret, fetch code, install packages, fail, have data, several hosts,
MPI, ssh or a check, or are started once per rank."""

RUN = """
import gc, json, os, sys
sys.path.insert(0, sys.argv[1])
before = set(sys.modules)
from musterpoint.cli import train
sys.argv[1:] = []
fork, at_fork, slow = os.fork, [], []

def first_fork():
    at_fork.extend(set(sys.modules) - before)
    for name in (name for name in at_fork if name.startswith("musterpoint.")):
        found = vars(sys.modules[name])
        values = [each for each in found.values() if isinstance(each, type) and hasattr(each, "_field_defaults")]
        if any(each.__mro__[1] is tuple and each.__name__ != "_Record" and each.__module__ == name for each in values):
            slow.append(name)
    os.fork = fork
    return fork()

os.fork = first_fork
code = train.main()
sys.stdout.flush()
print("\\n" + json.dumps({
    "code": code, "imported": sorted(set(sys.modules) - before), "at_fork": at_fork, "slow": slow,
    "collects": gc.isenabled(),
}))
"""


@pytest.fixture
def said(tmp_path: Path, root: Path, environ: dict[str, str]) -> dict[str, Any]:
    """What a whole one-host script job tells of itself."""
    write_tree(tmp_path, {"sagemaker_program": '"train.py"', "lr": "0.1"}, code="print('hello')\n")
    del environ["PYTHONPATH"]
    words = [sys.executable, "-I", "-S", "-c", RUN, str(root / "src")]
    done = result_of(words, {**environ, "SAGEMAKER_BASE_DIR": str(tmp_path)})
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("hello\n"), done.stderr
    said: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert said["code"] == 0, done.stderr
    return said


def test_a_whole_script_job_imports_nothing_costly(said: dict[str, Any]) -> None:
    assert sorted((COSTLY | OF_SOME_JOBS) & {*said["imported"]}) == []
    assert said["collects"]


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="there all are typing's")
def test_named_tuples_are_made_quickly(said: dict[str, Any]) -> None:
    """They are those of base/records.py: typing's own take a third of the time of all imports."""
    assert sorted(said["slow"]) == []
