"""What must work on macOS and Windows, too: importing the package, ``muster plan`` and ``muster env``.

A stand-in for those systems: an interpreter without the modules and names that they lack.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from .running import result_of

WINDOWS_LACKS = {
    "modules": ["fcntl", "pwd", "grp", "resource", "termios", "tty", "pty", "syslog", "readline"],
    "os": ["fork", "setsid", "setpgid", "getpgrp", "memfd_create", "sched_getaffinity", "geteuid", "getuid", "killpg",
           "tcsetpgrp", "tcgetpgrp", "readv", "writev", "uname"],
    "signal": ["SIGKILL", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGCHLD", "SIGCONT", "SIGTTOU", "pthread_sigmask",
               "valid_signals", "SIG_BLOCK", "SIG_SETMASK"],
    "select": ["epoll", "poll"],
    "socket": ["AF_UNIX", "SO_PEERCRED", "SCM_RIGHTS"],
}  # fmt: skip
MACOS_LACKS = {
    "modules": [], "os": ["memfd_create", "sched_getaffinity"], "signal": [], "select": ["epoll"],
    "socket": ["SO_PEERCRED"],
}  # fmt: skip

POORER = """
import importlib, json, sys
# the standard library has a Windows side of its own
import pathlib, secrets, shutil, subprocess, tarfile, tempfile, threading

lacks = json.loads(sys.argv.pop(1))

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name in lacks["modules"]:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

for module in ("os", "signal", "select", "socket"):
    loaded = importlib.import_module(module)
    for name in lacks[module]:
        if hasattr(loaded, name):
            delattr(loaded, name)
for name in lacks["modules"]:
    sys.modules.pop(name, None)
sys.meta_path.insert(0, Refuse())
"""
IMPORT_ALL = """
import pkgutil
import musterpoint
PROGRAMS = ("rank_stub", "launch_agent", "horovod_rendezvous", "tensorflow_server", "__main__")  # never imported
NAMES = ("dataparallel", "modelparallel", "sagemaker", "shared")
SMDISTRIBUTED = tuple(f"musterpoint_smdistributed.{name}" for name in NAMES)
LEFT_OUT = ("musterpoint.sagemaker", *SMDISTRIBUTED)  # needs an extra, have another name
for found in pkgutil.walk_packages(musterpoint.__path__, "musterpoint."):
    if found.name.startswith("musterpoint.serve."):  # Linux only, with an extra of its own
        continue
    if not found.name.endswith(PROGRAMS) and "patches" not in found.name and found.name not in LEFT_OUT:
        importlib.import_module(found.name)
"""
COMMAND = """
from musterpoint.cli.main import main
sys.exit(main())
"""


@pytest.mark.parametrize("lacks", [WINDOWS_LACKS, MACOS_LACKS], ids=["windows", "macos"])
def test_every_module_imports(lacks: dict[str, list[str]], environ: dict[str, str]) -> None:
    command = [sys.executable, "-c", POORER + IMPORT_ALL, json.dumps(lacks)]
    subprocess.run(command, env=environ, check=True, timeout=500)


@pytest.mark.parametrize("lacks", [WINDOWS_LACKS, MACOS_LACKS], ids=["windows", "macos"])
@pytest.mark.parametrize("command", [["plan", "--slots", "2", "--launcher", "ranks"], ["env"]], ids=["plan", "env"])
def test_plan_and_env_work(
    lacks: dict[str, list[str]], command: list[str], tmp_path: Path, environ: dict[str, str]
) -> None:
    program = tmp_path / "train.py"
    program.write_text("print('never run')\n")
    words = [*command, str(program)] if command[0] == "plan" else command
    done = result_of([sys.executable, "-c", POORER + COMMAND, json.dumps(lacks), *words], environ, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "never run" not in done.stdout
    assert ("WORLD_SIZE" if command[0] == "plan" else "CURRENT_HOST") in done.stdout
