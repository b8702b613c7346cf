"""``muster env`` in each of its formats."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from musterpoint.cli.main import main

from ..job_tree import write_tree


@pytest.fixture
def job(tmp_path: Path, environ: dict[str, str]) -> dict[str, str]:
    """The environment of algo-2, of two hosts with two ranks each."""
    hyperparameters = {
        "sagemaker_program": '"train.py"', "note": '"it\'s $HOME"', "hf_token": '"s3cret-s3cret"', "batch-size": "32",
        "a `touch ran`": "1",
    }  # fmt: skip
    base = write_tree(tmp_path / "ml", hyperparameters, hosts=2, current=2)
    return {**environ, "SAGEMAKER_BASE_DIR": str(base), "MUSTER_LAUNCHER": "ranks", "MUSTER_SLOTS": "2"}


def written(form: str, job: dict[str, str], capsys: pytest.CaptureFixture[str]) -> str:
    assert main(["env", "--format", form], job) == 0
    return capsys.readouterr().out


def test_text_hides_secrets(job: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    lines = written("text", job, capsys).splitlines()
    assert "SM_CURRENT_HOST=algo-2" in lines
    assert "RANK=2" in lines
    assert not [line for line in lines if "s3cret" in line]


def test_json_is_what_the_script_sees(job: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    values = json.loads(written("json", job, capsys))
    assert values["SM_HP_HF_TOKEN"] == "s3cret-s3cret"
    assert (values["WORLD_SIZE"], values["MASTER_ADDR"], values["NODE_RANK"]) == ("4", "algo-1", "1")


def test_export_survives_a_shell(job: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    script = "set -e\n" + written("export", job, capsys) + '\nprintf "%s %s" "$SM_HP_NOTE" "$SM_HP_BATCH_SIZE"'
    folder = Path(job["SAGEMAKER_BASE_DIR"])
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True, cwd=folder)
    assert done.stdout == "it's $HOME 32"
    assert done.stderr == ""
    assert not (folder / "ran").exists()


@pytest.mark.parametrize(
    ("form", "text"),
    [
        ("pet", "export PET_NNODES=2\nexport PET_NPROC_PER_NODE=2\nexport PET_NODE_RANK=1\n"
                "export PET_MASTER_ADDR=algo-1\nexport PET_MASTER_PORT=7777\n"),
        ("hostfile", "algo-1 slots=2\nalgo-2 slots=2\n"),
    ],
)  # fmt: skip
def test_other_tools_files(form: str, text: str, job: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    assert written(form, job, capsys) == text


def test_accelerates_configuration(job: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    text = [line for line in written("accelerate", job, capsys).splitlines() if not line.startswith("#")]
    lines = dict(line.split(": ", 1) for line in text)
    assert (lines["num_processes"], lines["distributed_type"]) == ("4", "MULTI_GPU")
    assert (lines["machine_rank"], lines["main_process_ip"]) == ("1", "algo-1")
