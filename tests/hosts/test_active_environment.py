"""The active environment's Python, where musterpoint runs in another one: real environments, real jobs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Callable, NamedTuple

import pytest

from .conftest import Local
from .packages import wheel

PROGRAM = "import os, sys; os.write(1, f'RUNS {sys.executable}\\n'.encode())"
LAUNCHERS = ("script", "ranks", "torchrun", "mpi", "deepspeed", "ray", "jax", "accelerate", "tensorflow")
MARKS = {"venv": "", "pipx": "pipx_metadata.json", "uv tool": "uv-receipt.toml"}


class Environment(NamedTuple):
    prefix: Path

    @property
    def python(self) -> str:
        return str(self.prefix / "bin" / "python")

    def active(self, environ: dict[str, str], variable: str = "VIRTUAL_ENV") -> dict[str, str]:
        """``environ`` as this environment's activation leaves it."""
        return {**environ, variable: str(self.prefix), "PATH": f"{self.prefix}/bin{os.pathsep}{environ['PATH']}"}

    def module(self, name: str, text: str = "") -> None:
        (folder,) = self.prefix.glob("lib/python3*/site-packages")
        (folder / f"{name}.py").write_text(text)


Make = Callable[..., Environment]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    def made(name: str, mark: str = "") -> Environment:
        prefix = tmp_path / name
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", prefix], check=True, timeout=500)
        if mark:
            (prefix / mark).touch()
        return Environment(prefix)

    return made


def says(text: str, *pythons: str) -> bool:
    """Whether one line names all ``pythons``."""
    return any(all(python in line for python in pythons) for line in text.splitlines())


def launch(own: Environment, environ: dict[str, str], *words: str | Path, cwd: Path) -> Any:
    command = [own.python, "-m", "musterpoint", *map(str, words)]
    return subprocess.run(command, env=environ, cwd=cwd, capture_output=True, text=True, timeout=500)


@pytest.mark.lane("suite")
@pytest.mark.parametrize("variable", ["VIRTUAL_ENV", "CONDA_PREFIX"])
@pytest.mark.parametrize("kind", MARKS)
def test_a_launch_runs_in_the_active_environment(
    make: Make, environ: dict[str, str], tmp_path: Path, kind: str, variable: str
) -> None:
    own, active = make("own", MARKS[kind]), make("active")
    (tmp_path / "t.py").write_text(PROGRAM)
    right = own if kind == "venv" else active
    for launcher in ("script", "ranks"):
        words = "launch", "--launcher", launcher, "t.py"
        ran = launch(own, active.active(environ, variable), *words, cwd=tmp_path)
        assert (ran.returncode, ran.stdout) == (0, f"RUNS {right.python}\n"), ran.stderr
        assert says(ran.stderr, own.python, active.python), ran.stderr
        alone = launch(own, own.active(environ, variable), *words, cwd=tmp_path)
        assert (alone.returncode, alone.stdout) == (0, f"RUNS {own.python}\n"), alone.stderr
        assert not says(alone.stderr, own.python), alone.stderr
    named = launch(own, active.active(environ, variable), "launch", "--python", sys.executable, "t.py", cwd=tmp_path)
    assert named.stdout == f"RUNS {sys.executable}\n", named.stderr
    assert not says(named.stderr, active.python), named.stderr


def test_a_launch_below_another_keeps_its_own_python(make: Make, environ: dict[str, str], tmp_path: Path) -> None:
    own, active = make("own", MARKS["pipx"]), make("active")
    (tmp_path / "t.py").write_text(PROGRAM)
    (tmp_path / "run.sh").write_text(f"{own.python} -m musterpoint launch --launcher ranks t.py\n")
    ran = launch(own, active.active(environ), "launch", "--launcher", "script", "run.sh", cwd=tmp_path)
    assert (ran.returncode, ran.stdout) == (0, f"RUNS {own.python}\n"), ran.stderr
    other = make("other")
    (tmp_path / "run.sh").write_text(". other/bin/activate\npython -m musterpoint launch --launcher ranks t.py\n")
    ran = launch(own, active.active(environ), "launch", "--launcher", "script", "run.sh", cwd=tmp_path)
    assert (ran.returncode, ran.stdout) == (0, f"RUNS {other.python}\n"), ran.stderr


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_a_plan_names_the_python_of_the_job(make: Make, environ: dict[str, str], tmp_path: Path, launcher: str) -> None:
    own, active = make("own", MARKS["uv tool"]), make("active")
    (tmp_path / "t.py").write_text(PROGRAM)
    words = ["--launcher", launcher, *(["--accelerate-config", "none"] if launcher == "accelerate" else ()), "t.py"]
    ran = launch(own, active.active(environ), "plan", "--json", *words, cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr
    plan = json.loads(ran.stdout)
    assert says("\n".join(plan["notes"]), own.python, active.python)
    started = json.dumps([host["processes"] for host in plan["hosts"]])
    assert active.python in started
    assert own.python not in started


def test_what_is_asked_of_the_python_is_asked_of_the_active_one(
    make: Make, environ: dict[str, str], tmp_path: Path
) -> None:
    own, active = make("own", MARKS["pipx"]), make("active")
    active.module("torch")  # it is looked for, not imported
    (tmp_path / "t.py").write_text("import nosuch")
    ran = launch(own, active.active(environ), "plan", "--json", "--slots", "2", "t.py", cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr
    assert "torch.distributed.run" in ran.stdout
    failed = launch(own, active.active(environ), "launch", "--launcher", "ranks", "t.py", cwd=tmp_path)
    assert failed.returncode == 1
    assert f"the program's Python is {active.python} " in next(tmp_path.rglob("failure")).read_text()


@pytest.mark.lane("suite")
def test_a_local_job_runs_in_the_active_environment(local: Local, make: Make) -> None:
    own, active = make("own", MARKS["pipx"]), make("active")
    local.python, local.environ = own.python, active.active(local.environ)
    ran = local.run("--hosts", "2", "--backend", "process", "--launcher", "ranks", local.program(PROGRAM))
    assert ran.code == 0, ran.stderr
    logs = [ran.log(host) for host in ("algo-1", "algo-2")]
    assert [f"RUNS {active.python}\n" in log for log in logs] == [True, True]
    assert [says(log, own.python, active.python) for log in logs] == [True, False]  # the leader alone says it


def test_requirements_go_into_the_active_environment(
    make: Make, user_python: str, environ: dict[str, str], tmp_path: Path
) -> None:
    own, active = make("own", MARKS["pipx"]), Environment(Path(user_python).parent.parent)
    name, content = wheel("mp-active")
    (tmp_path / "wheelhouse").mkdir()
    (tmp_path / "wheelhouse" / name).write_bytes(content)
    (tmp_path / "needs.txt").write_text("mp-active\n")
    (tmp_path / "t.py").write_text("import mp_active; print(mp_active.VERSION)")
    words = "launch", "--launcher", "ranks", "--requirements", "needs.txt", "t.py"
    ran = launch(own, active.active(environ), *words, cwd=tmp_path)
    assert (ran.returncode, ran.stdout) == (0, "1.0\n"), ran.stderr
