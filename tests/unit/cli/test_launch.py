"""``muster launch`` on this machine: one host, real programs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from musterpoint.base.errors import LauncherError
from musterpoint.base.failure import Failure
from musterpoint.cli.errors import guarded

from ..job_tree import write_tree
from ..running import result_of

PROGRAM = """
import json, os, sys
names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "OMP_NUM_THREADS", "MUSTER_SLOTS")
line = json.dumps({"arguments": sys.argv[1:], **{name: os.environ.get(name) for name in names}})
os.write(1, line.encode() + b"\\n")
sys.exit(5 if "--fail" in sys.argv and os.environ["RANK"] == "1" else 0)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text(PROGRAM)
    return tmp_path


def launch(folder: Path, environ: dict[str, str], *words: str, **more: str) -> subprocess.CompletedProcess[str]:
    environ = {**environ, "SAGEMAKER_BASE_DIR": str(folder / "none"), **more}
    return result_of([sys.executable, "-m", "musterpoint", "launch", *words], environ, cwd=folder)


def test_ranks_run_with_their_identity(folder: Path, environ: dict[str, str]) -> None:
    done = launch(folder, environ, "--launcher", "ranks", "--slots", "2", "train.py", "--slots", "9", "a b")
    assert done.returncode == 0, done.stderr
    seen = sorted((json.loads(line) for line in done.stdout.splitlines()), key=lambda fact: str(fact["RANK"]))
    assert [fact["RANK"] for fact in seen] == ["0", "1"]
    assert {fact["WORLD_SIZE"] for fact in seen} == {"2"}
    assert {fact["MASTER_ADDR"] for fact in seen} == {"127.0.0.1"}
    assert seen[0]["arguments"] == ["--slots", "9", "a b"]


def test_a_module_by_the_script_forms_options(folder: Path, environ: dict[str, str]) -> None:
    done = launch(folder, environ, "-m", "train", "--lr", "1")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["arguments"] == ["--lr", "1"]
    done = launch(folder, environ, "--slots", "x", "--train-script", "train.py", "--muster-launcher", "script")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["arguments"] == ["--slots", "x"]


def test_the_ranks_own_code_comes_out(folder: Path, environ: dict[str, str]) -> None:
    assert launch(folder, environ, "train.py", "--fail", MUSTER_LAUNCHER="ranks", MUSTER_SLOTS="2").returncode == 5


def test_our_errors_are_a_sentence_and_their_code(capfd: pytest.CaptureFixture[str]) -> None:
    def fail() -> int:
        raise LauncherError("no torch")

    reported: list[Failure] = []
    assert guarded(fail, reported.append) == 72
    assert capfd.readouterr().err == "musterpoint: no torch\n"
    assert [(one.code, one.cause, one.reason) for one in reported] == [(72, "muster", "muster: no torch")]


def test_an_interrupt_is_130() -> None:
    def interrupt() -> int:
        raise KeyboardInterrupt

    assert guarded(interrupt) == 130


def test_a_reader_that_leaves_is_no_error(root: Path, environ: dict[str, str]) -> None:
    command = f"{sys.executable} -m musterpoint plan --slots 200 --launcher ranks {sys.executable} | head -1"
    done = result_of(["bash", "-c", f"set -o pipefail; {command}"], environ)
    assert (done.returncode, done.stderr) == (0, "")
    assert "ranks" in done.stdout


def test_what_serve_lacks_is_said_with_what_installs_it(root: Path, environ: dict[str, str]) -> None:
    words = [sys.executable, "-S", "-m", "musterpoint", "serve"]  # -S: without installed packages
    done = result_of(words, {**environ, "PYTHONPATH": str(root / "src")})
    assert done.returncode == 64
    assert done.stderr.strip().endswith(f"doesn't have: {sys.executable} -m pip install 'musterpoint[serve]'")


RUN_BY_TRAIN = "import sys\nprint(sys.argv[1:])\nsys.exit(7)\n"


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """The tree of one host, beginning with the empty folders that every image has."""
    for folder in ("code", "input/config", "model", "output/data"):
        (tmp_path / folder).mkdir(parents=True)
    return tmp_path


def write(base: Path) -> None:
    write_tree(base, {"sagemaker_program": "train.py", "b": "1", "a": "2"}, code=RUN_BY_TRAIN)


def train(base: Path, environ: dict[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    environ = {**environ, "SAGEMAKER_BASE_DIR": str(base)}
    return result_of([sys.executable, "-m", "musterpoint.cli.train", *words], environ)


def test_it_runs_the_job_and_ends_with_its_code(base: Path, environ: dict[str, str]) -> None:
    write(base)
    done = train(base, environ)
    # the file's order, which sagemaker-training would sort
    assert (done.returncode, done.stdout) == (7, "['-b', '1', '-a', '2']\n")
    assert "exit code 7" in (base / "output" / "failure").read_text()


@pytest.mark.parametrize("name", ["types", "json", "socket", "signal", "operator", "musterpoint"])
def test_modules_of_the_working_directory_are_the_program_s(
    base: Path, environ: dict[str, str], root: Path, tmp_path: Path, name: str
) -> None:
    write(base)
    (tmp_path / f"{name}.py").write_text("")
    own = {**environ, "SAGEMAKER_BASE_DIR": str(base), "PATH": f"{os.path.dirname(sys.executable)}:{environ['PATH']}"}
    done = result_of([root / "container" / "train"], own, cwd=tmp_path)
    assert done.returncode == 7, done.stderr


def test_words_of_the_command_line_mean_nothing(base: Path, environ: dict[str, str]) -> None:
    write(base)
    assert train(base, environ, "train", "--help").stdout == "['-b', '1', '-a', '2']\n"


@pytest.mark.parametrize("where", ["", "none"])
def test_without_a_tree_one_sentence_says_where_to_look(base: Path, environ: dict[str, str], where: str) -> None:
    done = train(base / where, environ)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (64, "", 1), done.stderr
    assert str(base / where / "input" / "config" / "resourceconfig.json") in done.stderr


@pytest.mark.parametrize("word", ["--help", "-h"])
def test_help_starts_nothing(base: Path, environ: dict[str, str], word: str) -> None:
    """With a job there too."""
    write(base)
    done = train(base, environ, word)
    assert (done.returncode, done.stderr, done.stdout.startswith("usage: train")) == (0, "", True)
    assert not (base / "output" / "outcome.json").exists()
