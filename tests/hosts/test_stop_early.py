"""A stop is heard whatever this host waits for before its program runs: every program that is asked hangs here."""

from __future__ import annotations

import json
import os
import signal
import stat
from pathlib import Path
from typing import NamedTuple

import pytest

from .conftest import Train, eventually

PROJECT = '[project]\nname = "x"\nversion = "1"\ndependencies = []\n[build-system]\nrequires = []\n'
INNER = (
    "import os, sys\nos.environ['MUSTER_PYTHON'] = os.environ['HANGS']\n"
    "os.execv(sys.executable, [sys.executable, '-m', 'musterpoint', 'launch', '--launcher', 'torchrun', __file__])\n"
)


class Wait(NamedTuple):
    """``python`` and ``mpirun`` are what stands in for them, ``files`` lie beside the program."""

    environ: dict[str, str]
    python: str = ""
    mpirun: str = ""
    files: dict[str, str] = {}
    program: str = "print('never')\n"


HANGS = "touch {folder}/asked; sleep 600"
HANGS_AND_KEEPS = "trap '' INT TERM HUP; touch {folder}/asked; while :; do sleep 1; done"
WAITS = {
    "the interpreter, for torch": Wait({"MUSTER_LAUNCHER": "torchrun"}, HANGS),
    "the interpreter, which keeps signals to itself": Wait({"MUSTER_LAUNCHER": "torchrun"}, HANGS_AND_KEEPS),
    "the interpreter, for deepspeed": Wait({"MUSTER_LAUNCHER": "deepspeed"}, HANGS),
    "the interpreter, for mpi4py": Wait({"MUSTER_LAUNCHER": "mpi"}, HANGS, "echo 'mpirun (Open MPI) 4.1.4'"),
    "mpirun": Wait({"MUSTER_LAUNCHER": "mpi"}, "exit 3", HANGS),
    "mpirun, with a child": Wait({"MUSTER_LAUNCHER": "mpi"}, "exit 3", HANGS_AND_KEEPS + " & wait"),
    "pip": Wait({}, HANGS, files={"requirements.txt": "x\n"}),
    "the interpreter, for a project's dependencies": Wait({}, HANGS, files={"pyproject.toml": PROJECT, "uv.lock": ""}),
    "the interpreter, for uv": Wait({"MUSTER_INSTALLER": "uv"}, HANGS, files={"requirements.txt": "x\n"}),
    "an inner launcher's interpreter": Wait({}, program=INNER),
}


def standin(path: Path, text: str, folder: Path) -> str:
    path.parent.mkdir(exist_ok=True)
    path.write_text("#!/bin/sh\n" + text.format(folder=folder) + "\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


@pytest.mark.parametrize(
    ("name", "signo", "code"),
    [*((name, signal.SIGTERM, 143) for name in WAITS), (next(iter(WAITS)), signal.SIGINT, 130)],
)
def test_a_stop_is_heard(train: Train, tmp_path: Path, name: str, signo: int, code: int) -> None:
    wait = WAITS[name]
    train.program(wait.program)
    for file, text in wait.files.items():
        (train.base / "code" / file).write_text(text)
    environ = {**wait.environ, "HANGS": standin(tmp_path / "hangs", HANGS, tmp_path)}
    if wait.python:
        environ["MUSTER_PYTHON"] = standin(tmp_path / "python", wait.python, tmp_path)
    if wait.mpirun:
        standin(tmp_path / "bin" / "mpirun", wait.mpirun, tmp_path)
        environ["PATH"] = f"{tmp_path / 'bin'}{os.pathsep}{train.environ['PATH']}"
    process = train.start(**environ)
    eventually((tmp_path / "asked").exists)
    process.send_signal(signo)
    stdout, stderr = process.communicate(timeout=45)  # less than what a question may take
    assert process.returncode == code, stderr
    assert b"never" not in stdout
    assert json.loads((train.base / "output/outcome.json").read_text())["class"] == "stopped"
    assert not (train.base / "output/failure").exists()
