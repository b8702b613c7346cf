"""The examples of docs/serve.md, run as they stand there."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from musterpoint.serve import Server

from .jobs import IMAGE, Account

PAGE = "docs/serve.md"


def block(root: Path, name: str) -> str:
    """The text of the block behind the comment ``<!-- NAME``."""
    found = re.search(rf"<!-- {name}[^>]*-->\n```\w+\n(.*?)```", (root / PAGE).read_text(), re.DOTALL)
    assert found is not None, f"{PAGE} has no block {name}"
    return found[1]


@pytest.mark.lane("sdk")
def test_the_quickstart_is_a_test_that_passes(root: Path, environ: Mapping[str, str], tmp_path: Path) -> None:
    (tmp_path / "test_jobs.py").write_text(block(root, "quickstart"))  # <!-- quickstart: … -->
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(tmp_path)]
    done = subprocess.run(
        [*words, "test_jobs.py"], cwd=tmp_path, env=environ, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0 and "1 passed" in done.stdout, done.stdout + done.stderr


@pytest.mark.lane("sdk")
def test_the_contract_is_asked_of_any_endpoint(root: Path, environ: Mapping[str, str], tmp_path: Path) -> None:
    line = next(line for line in (root / PAGE).read_text().splitlines() if line.startswith("pytest tests/contract"))
    with Server(tmp_path / "data", environ=environ) as server:
        words = shlex.split(line.replace("http://127.0.0.1:4566", server.url).replace("IMAGE", "any"))
        done = subprocess.run(
            [sys.executable, "-m", *words, "-q", "-p", "no:cacheprovider", "-k", "says_why or not_found"], cwd=root,
            env={**environ, **server.variables}, capture_output=True, text=True, check=False,
        )  # fmt: skip
    assert done.returncode == 0 and "passed" in done.stdout, done.stdout + done.stderr


RATES = """
import json, os
rate = float(json.loads(os.environ["SM_HPS"])["rate"])
print(f"loss={rate * rate}", flush=True)
"""


def test_a_loop_over_training_jobs_finds_the_best(root: Path, account: Account) -> None:
    found: dict[str, Any] = {}
    exec(block(root, "tuning-loop"), found)
    metrics = [{"Name": "loss", "Regex": "loss=([0-9.]+)"}]
    algorithm = {"TrainingImage": IMAGE, "TrainingInputMode": "File", "MetricDefinitions": metrics}
    rates = {}

    def submit(name: str, rate: float) -> None:
        rates[name] = rate
        account.create(name, RATES, HyperParameters={"rate": str(rate)}, AlgorithmSpecification=algorithm)

    best = found["tune"](account.server, submit, 3)
    assert len(rates) == 3 and rates[best] == min(rates.values())
