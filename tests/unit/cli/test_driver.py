"""The driver of an SDK v3 job, as its script calls it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from musterpoint.base.errors import UsageError
from musterpoint.cli.bundle import bundle
from musterpoint.cli.driver import NAME, variables

from ..job_tree import write_tree
from ..running import result_of

PROGRAM = """
import json, os, sys
print(json.dumps([sys.argv[1:], os.getcwd(), os.environ.get("WORLD_SIZE"), os.environ.get("MUSTER_SLOTS")]))
sys.exit(5 if "--fail" in sys.argv else 0)
"""


def drive(tmp_path: Path, environ: dict[str, str], config: str, **hyperparameters: str) -> list[list[object]]:
    """Runs the driver over a tree of one host and ``config``; what each rank saw."""
    base, code = write_tree(tmp_path / "ml", hyperparameters), tmp_path / "code"
    for folder in (base / "model", code):
        folder.mkdir()
    (code / "train.py").write_text(PROGRAM)
    (tmp_path / f"{NAME}.py").write_text(bundle())
    theirs = {"SM_ENTRY_SCRIPT": "train.py", "SM_DISTRIBUTED_CONFIG": config, "SAGEMAKER_BASE_DIR": str(base)}
    words = [sys.executable, str(tmp_path / f"{NAME}.py")]
    done = result_of(words, {**environ, **theirs}, cwd=code, stdin=subprocess.DEVNULL)
    (tmp_path / "code.txt").write_text(str(done.returncode))
    (tmp_path / "log").write_text(done.stdout + done.stderr)
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("[")]


def test_the_entry_script_gets_hyperparameters_and_the_fields_count(tmp_path: Path, environ: dict[str, str]) -> None:
    config = json.dumps({"process_count_per_node": 2, "launcher": "ranks", "rollcall_timeout": 30})
    rows = drive(tmp_path, environ, config, epochs="3", name="1.5 or more", t="true", sagemaker_recipe_local_path="r")
    words = ["--epochs", "3", "--name", "1.5 or more", "--t", "true", "--sagemaker_recipe_local_path", "r"]
    assert rows == [[words, str(tmp_path / "code"), "2", None]] * 2
    assert (tmp_path / "code.txt").read_text() == "0"


def test_a_failure_of_the_script_is_its_own(tmp_path: Path, environ: dict[str, str]) -> None:
    drive(tmp_path, environ, "{}", fail="")
    assert (tmp_path / "code.txt").read_text() == "5"
    assert (tmp_path / "ml" / "output" / "failure").read_text().splitlines()[0].endswith("exit code 5")


def test_a_wrong_field_is_reported_where_the_platform_looks(tmp_path: Path, environ: dict[str, str]) -> None:
    drive(tmp_path, environ, json.dumps({"process_count_per_node": "many"}))
    assert (tmp_path / "code.txt").read_text() == "64"
    assert "MUSTER_SLOTS='many'" in (tmp_path / "ml" / "output" / "failure").read_text()


def test_elsewhere_it_says_what_it_is(tmp_path: Path, environ: dict[str, str]) -> None:
    (tmp_path / f"{NAME}.py").write_text(bundle())
    done = result_of([sys.executable, str(tmp_path / f"{NAME}.py"), "train.py"], environ)
    assert done.returncode == 64
    assert "rename it launcher.py" in done.stderr


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ("[]", "expected a JSON object"),
        ("{", "expected a JSON object"),
        ("3", "expected a JSON object"),
        ('{"smpx": {}}', "'smpx' is no option of this musterpoint, expected one of"),
    ],
)
def test_what_is_refused(config: str, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        variables(config)


@pytest.mark.parametrize(
    ("config", "options"),
    [
        ('{"process_count_per_node": 8, "mpi_additional_options": ["-x", "WHO=every body"], "smp": null}',
         {"MUSTER_SLOTS": "8", "MUSTER_MPI_OPTIONS": "-x 'WHO=every body'"}),
        ('{"process_count_per_node": null, "mpi_additional_options": null}', {}),
        ('{"launcher": "mpi", "smp": {"random_seed": 1}}', {"MUSTER_LAUNCHER": "mpi"}),
        ("", {}),
    ],
)  # fmt: skip
def test_fields_become_options(config: str, options: dict[str, str]) -> None:
    assert variables(config) == options
