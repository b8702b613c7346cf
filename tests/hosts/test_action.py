"""action.yml's steps, run as a runner runs composite steps: bash, the inputs as variables, files for outputs."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, Callable

import pytest

READ = "import json, sys, yaml; print(json.dumps(yaml.safe_load(sys.stdin)))"
PROGRAM = (
    'import os, sys\nprint(sys.argv[1:])\nsys.exit(3 if os.environ["RANK"] == "1" and "--fail" in sys.argv else 0)\n'
)


@pytest.fixture
def action(stack: Callable[[str], Path], root: Path) -> dict[str, Any]:
    text = (root / "action.yml").read_text()
    done = subprocess.run(
        [stack("kubernetes") / "python", "-c", READ], input=text, capture_output=True, text=True, check=True
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def filled(text: str, inputs: dict[str, str], root: Path) -> str:
    """``text`` with the runner's expressions evaluated."""
    contexts = {**{f"inputs.{name}": value for name, value in inputs.items()}, "github.action_path": str(root)}
    return re.sub(r"\$\{\{ ([\w.-]+) \}\}", lambda found: contexts[found[1]], text)


def test_the_steps_of_the_action(action: dict[str, Any], root: Path, environ: dict[str, str], tmp_path: Path) -> None:
    assert action["runs"]["using"] == "composite"
    install, job = action["runs"]["steps"]
    inputs = {name: each.get("default", "") for name, each in action["inputs"].items()}
    assert filled(install["env"]["SOURCE"], inputs, root) == str(root)
    assert '-m pip install --quiet "$SOURCE"' in install["run"]
    work = tmp_path / "work"
    work.mkdir()
    (work / "train.py").write_text(PROGRAM)
    ended = []
    for number, words in enumerate(("--epochs '1 2'", "--fail")):
        inputs |= {
            "run": f"--hosts 2 --backend process --launcher ranks --slots 1 train.py {words}",
            "output": f"job-{number}",
            "python": sys.executable,
        }
        own = {name: filled(value, inputs, root) for name, value in job["env"].items()}
        files = {name: str(tmp_path / f"{name}-{number}") for name in ("GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY")}
        done = subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", job["run"]],
            cwd=work, env={**environ, **own, **files}, capture_output=True, text=True, check=False,
        )  # fmt: skip
        summary = Path(files["GITHUB_STEP_SUMMARY"]).read_text()
        ended.append((done.returncode, f"exit code {done.returncode}" in summary))
        assert Path(files["GITHUB_OUTPUT"]).read_text() == f"output={work}/job-{number}\n"
        assert (work / f"job-{number}" / "timeline.json").is_file()
    assert ended == [(0, True), (3, True)]
    assert "rank 1 (local rank 0) on algo-2, exit code 3" in summary
    assert "['--epochs', '1 2']" in (work / "job-0" / "hosts" / "algo-1" / "log").read_text()
