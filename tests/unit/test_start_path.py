"""What `train` imports before the user's program runs: little, and nothing that only failures need."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

COSTLY = {
    "argparse", "asyncio", "dataclasses", "hashlib", "importlib.resources", "inspect", "logging", "pathlib",
    "subprocess", "tempfile", "traceback", "urllib", "zipfile",
}  # fmt: skip
"""Some of these cost more than everything else together; most of all asyncio (42 ms) and logging."""

RUN = """
import json, os, sys
sys.path.insert(0, sys.argv[1])
before = set(sys.modules)
from musterpoint.cli import train
sys.argv[1:] = []
code = train.main()
sys.stdout.flush()
print("\\n" + json.dumps({"code": code, "imported": sorted(set(sys.modules) - before)}))
"""


def job(base: Path) -> None:
    """A job of one host that runs a script."""
    config = base / "input" / "config"
    config.mkdir(parents=True)
    (base / "code").mkdir()
    (base / "code" / "train.py").write_text("print('hello')\n")
    (config / "hyperparameters.json").write_text(json.dumps({"sagemaker_program": '"train.py"', "lr": "0.1"}))
    (config / "resourceconfig.json").write_text(json.dumps({"current_host": "algo-1", "hosts": ["algo-1"]}))
    (config / "inputdataconfig.json").write_text("{}")


@pytest.fixture
def imported(tmp_path: Path, root: Path, environ: dict[str, str]) -> set[str]:
    """The modules in memory after a whole one-host script job."""
    job(tmp_path)
    del environ["PYTHONPATH"]
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", RUN, str(root / "src")],
        env={**environ, "SAGEMAKER_BASE_DIR": str(tmp_path)}, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("hello\n"), done.stderr
    said = json.loads(done.stdout.splitlines()[-1])
    assert said["code"] == 0, done.stderr
    return set(said["imported"])


def test_a_whole_script_job_imports_nothing_costly(imported: set[str]) -> None:
    assert sorted(imported & COSTLY) == []


def test_it_stays_in_the_core(imported: set[str]) -> None:
    rooms = {name.split(".")[1] for name in imported if name.startswith("musterpoint.")}
    assert "local" not in rooms
    assert {name for name in imported if name.startswith("musterpoint.cli.")} == {"musterpoint.cli.train"}
    assert "musterpoint.supervise.rank_stub" not in imported
