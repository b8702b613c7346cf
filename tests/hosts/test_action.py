"""action.yml's steps, run as a runner runs composite steps: bash, the inputs as variables, files for outputs. And the
jobs of docs/ci.md, which users copy.
"""

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


Parsed = Callable[[str], dict[str, Any]]


@pytest.fixture
def parsed(stack: Callable[[str], Path]) -> Parsed:
    """What a YAML text says."""

    def read(text: str) -> dict[str, Any]:
        command = [stack("kubernetes") / "python", "-c", READ]
        done = subprocess.run(command, input=text, capture_output=True, text=True, check=True)
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    return read


@pytest.fixture
def action(parsed: Parsed, root: Path) -> dict[str, Any]:
    return parsed((root / "action.yml").read_text())


def of_the_page(root: Path, title: str) -> str:
    """The YAML below a heading of docs/ci.md."""
    section = (root / "docs" / "ci.md").read_text().partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    (text,) = re.findall(r"```yaml\n(.*?)```", section, re.DOTALL)
    return str(text)


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


@pytest.mark.parametrize("code", [0, 3])
def test_the_gitlab_job_of_the_page(
    parsed: Parsed, root: Path, environ: dict[str, str], tmp_path: Path, code: int
) -> None:
    """Its lines are run as a runner runs them: one script of bash that ends with the first error."""
    job = parsed(of_the_page(root, "GitLab"))["two-hosts"]
    install, *lines = job["script"]
    assert install.startswith("pip install ")  # the interpreter of the tests has what it installs
    (tmp_path / "train.py").write_text(PROGRAM)
    lines[-1] += " --fail" if code else ""
    script = tmp_path / "bin" / "muster"
    script.parent.mkdir()
    script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m musterpoint "$@"\n')
    script.chmod(0o755)
    # the job's own image has torch, which these ranks don't need
    own = {"MUSTER_LAUNCHER": "ranks", "PATH": f"{script.parent}:{environ['PATH']}", "CI": "true", "GITLAB_CI": "true"}
    words, env = ["bash", "-c", "\n".join(["set -eo pipefail", *lines])], {**environ, **own}
    done = subprocess.run(words, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stderr
    (kept,) = job["artifacts"]["paths"]
    assert job["artifacts"]["when"] == "always"
    log = (tmp_path / kept / "hosts" / "algo-2" / "log").read_text()
    assert "['--epochs', '1'" in log
    assert (tmp_path / kept / "timeline.json").is_file()
