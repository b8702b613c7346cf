"""Variables that change how a Python ends: the program sees them, and nothing of ours ends otherwise."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from .packages import wheel

VARIABLES = {"PYTHONINSPECT": "1", "PYTHONWARNINGS": "error"}
PROGRAM = """
import os, sys
os.write(1, b"SEES " + os.environ[sys.argv[1]].encode() + b"\\n")
for variable in ("SM_CHECKPOINT_DIR", "SM_MODEL_DIR"):
    with open(os.path.join(os.environ[variable], "checkpoint-1.pt"), "w") as file:
        file.write("weights")
os._exit(int(sys.argv[2]))
"""


def launched(python: str, environ: dict[str, str], folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    (folder / "t.py").write_text(PROGRAM)
    command = [python, "-m", "musterpoint", "launch", *words]
    return subprocess.run(
        command, env=environ, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=500
    )


@pytest.mark.lane("suite")
@pytest.mark.parametrize("variable", VARIABLES)
def test_packages_data_and_checkpoints(
    variable: str, python: str, user_python: str, environ: dict[str, str], tmp_path: Path
) -> None:
    name, content = wheel(f"mp-{variable}".lower())
    for folder in ("wheelhouse", "data"):
        (tmp_path / folder).mkdir()
    (tmp_path / "wheelhouse" / name).write_bytes(content)
    (tmp_path / "data" / "part").write_text("data")
    (tmp_path / "needs.txt").write_text(f"mp-{variable}\n".lower())
    store = f"file://{tmp_path}/store"
    ran = launched(
        python, {**environ, variable: VARIABLES[variable]}, tmp_path, "--python", user_python, "--requirements",
        "needs.txt", "--job-name", "seen", "--channel", f"train=file://{tmp_path}/data", "--checkpoints",
        f"{store}/checkpoints", "--upload", f"{store}/results", "--launcher", "ranks", "t.py", variable, "0",
    )  # fmt: skip
    assert (ran.returncode, ran.stdout) == (0, f"SEES {VARIABLES[variable]}\n"), ran.stderr
    assert "Successfully installed" in ran.stderr
    assert {path.name for path in (tmp_path / "store").iterdir()} == {"checkpoints", "results"}


@pytest.mark.parametrize("launcher", ["script", "ranks", "torchrun"])
def test_under_every_launcher(launcher: str, python: str, environ: dict[str, str], tmp_path: Path) -> None:
    environ["PYTHONINSPECT"] = "1"
    for code in (0, 3):
        words = "--launcher", launcher, "t.py", "PYTHONINSPECT", str(code)
        ran = launched(python, environ, tmp_path, *words)
        assert (ran.returncode, ran.stdout) == (code, "SEES 1\n"), ran.stderr


def test_a_local_job(local, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    local.environ["PYTHONINSPECT"] = "1"
    program = local.program(PROGRAM)
    ran = local.run("--hosts", "2", "--backend", "process", "--launcher", "ranks", program, "PYTHONINSPECT", "5")
    assert ran.code == 5, ran.stderr


@pytest.mark.parametrize(("words", "code"), [(["--version"], 0), (["launch", "--help"], 0), (["nosuch"], 64)])
def test_a_command_at_a_terminal_ends_without_a_prompt(
    words: list[str], code: int, python: str, environ: dict[str, str]
) -> None:
    terminal, stdin = os.openpty()
    try:
        ran = subprocess.run(
            [python, "-m", "musterpoint", *words], env={**environ, "PYTHONINSPECT": "1"}, stdin=stdin,
            capture_output=True, text=True, timeout=60,
        )  # fmt: skip
    finally:
        os.close(stdin)
        os.close(terminal)
    assert ran.returncode == code, ran.stderr
    assert "SystemExit" not in ran.stderr
