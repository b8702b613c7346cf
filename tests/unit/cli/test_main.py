"""The dispatcher: help, version, unknown commands, what errors look like, and the one file's name."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import musterpoint
from musterpoint.cli.main import COMMANDS, main

from ..running import result_of


@pytest.mark.parametrize("words", [[], ["--help"], ["-h"], ["help"]])
def test_help_teaches_every_command(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words, {}) == 0
    text = capsys.readouterr().out
    assert all(f"\n  {name} " in text for name in COMMANDS)
    assert "muster local --hosts 2 train.py" in text


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"], {}) == 0
    assert capsys.readouterr().out == f"musterpoint {musterpoint.__version__}\n"


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["lunch"], "muster lunch: no such command (did you mean launch?); expected one of launch, torchrun, "),
        ([__file__], f"no such command, and {__file__} is a file: muster local {__file__} runs it here, muster launch"),
        (["plan", "--launcher", "torch"], "ssh (did you mean torchrun?)"),
        (["--slots", "2", "train.py"], "no such command, and options stand behind one: muster launch --slots ..."),
        (["mpirun", "-np", "2"], "command: `muster launch --launcher mpi SCRIPT` starts a script as mpirun would"),
        (["launch", "--muster-slots", "2", "x.py"], "unknown option --muster-slots (did you mean --slots?)"),
        (["local", "--demo", "--hosts", "3"], "muster local --demo is a job of its own, without --hosts"),
        (["launch"], "muster launch: no PROGRAM given"),
        (["launch", "--what", "x.py"], "muster launch: unknown option --what"),
        (["launch", "--hosts", "2", "x.py"], "--nnodes counts hosts that are there already"),
        (["serve", "interupt", "x"], "unexpected argument 'interupt' (did you mean interrupt?)"),
        (["plan"], "muster plan: no PROGRAM given"),
        (["bundle", "--output"], "muster bundle: argument -o/--output: expected one argument"),
    ],
)
def test_a_mistake_is_one_sentence_and_64(words: list[str], sentence: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(words, {}) == 64
    text = capfd.readouterr().err
    assert text.startswith("musterpoint: ")
    assert sentence in text
    assert text.count("\n") == 1


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_with_examples(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    for words in ([name, "--help"], ["help", name]):
        with pytest.raises(SystemExit) as left:
            main(words, {})
        text = capsys.readouterr().out
        assert (left.value.code, text.startswith(f"usage: muster {name}"), "examples:" in text) == (0, True, True)


def run_as(path: str, environ: dict[str, str], tmp_path: Path, *words: str) -> subprocess.CompletedProcess[str]:
    code = "import sys; from musterpoint.cli.main import run_file; sys.exit(run_file(sys.argv.pop(1)))"
    environ = {**environ, "SAGEMAKER_BASE_DIR": str(tmp_path / "none")}
    return result_of([sys.executable, "-c", code, path, *words], environ, cwd=tmp_path)


@pytest.mark.parametrize(
    ("name", "code"),
    [("train", 64), ("train.py", 64), ("/usr/local/bin/train", 64), ("muster", 0), ("/opt/muster.py", 0)],
)
def test_a_file_by_our_commands_names(name: str, code: int, environ: dict[str, str], tmp_path: Path) -> None:
    done = run_as(name, environ, tmp_path, "--version")
    assert (done.returncode, done.stdout) == (code, "" if code else f"musterpoint {musterpoint.__version__}\n")


@pytest.mark.parametrize("name", ["launcher.py", "/opt/ml/code/launcher.py", "start.py", "trainer", "muster2.py"])
def test_any_other_name_launches(name: str, environ: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text("import sys; print(sys.argv[1:]); sys.exit(3)\n")
    done = run_as(name, environ, tmp_path, "--train-script", "program.py", "--version")
    assert (done.returncode, done.stdout) == (3, "['--version']\n")


GONE = "import os, sys; os.rmdir(os.getcwd()); os.execv(sys.executable, [sys.executable, '-m', *sys.argv[1:]])"
"""Removes the working directory, and becomes a command in it."""


@pytest.mark.parametrize("command", [name for name in COMMANDS if name != "completion"])
def test_a_working_directory_that_was_removed(
    command: str, python: str, environ: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "gone").mkdir()
    words = [python, "-c", GONE, "musterpoint", command, __file__]
    ran = subprocess.run(words, cwd=tmp_path / "gone", env=environ, capture_output=True, text=True, timeout=500)
    assert (ran.returncode, ran.stdout) == (64, "")
    assert ran.stderr.startswith("musterpoint: the working directory was removed: ")
