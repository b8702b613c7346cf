"""The types of the options of ``musterpoint.local.run``: all of them, and type checkers refuse others."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from musterpoint.cli.local_options import flags_taken
from musterpoint.local.options import Options

NAMED = {"--hosts", "--slots", "--launcher"}
"""Arguments of the function itself."""


def test_every_option_has_a_type() -> None:
    flags = set(flags_taken()) - NAMED - {"--json", "--demo"}
    assert set(Options.__annotations__) == {flag.removeprefix("--").replace("-", "_") for flag in flags}
    switches = {name for name, kind in Options.__annotations__.items() if "'bool'" in str(kind)}
    unvalued = {name[2:].replace("-", "_") for name, valued in flags_taken().items() if not valued}
    assert switches == unvalued - {"json", "demo"}


PROGRAM = """
from musterpoint import local
local.run("train.py", "--epochs", 3, hosts=2, slots=2, launcher="ranks", channel={"train": "data"}, cpu_fallback=True)
local.run("train.py", nosuch=1)
local.run("train.py", backend="vm")
"""


def test_a_type_checker_refuses_what_there_is_not(tmp_path: Path) -> None:
    pytest.importorskip("mypy")  # not among what other interpreters have
    (tmp_path / "typed.py").write_text(PROGRAM)
    mypy = [sys.executable, "-m", "mypy", "--strict", "--config-file", "", "--cache-dir", "cache", "typed.py"]
    done = subprocess.run(mypy, cwd=tmp_path, capture_output=True, text=True, check=False)
    errors = [line for line in done.stdout.splitlines() if ": error: " in line]
    assert [line.split(":")[1] for line in errors] == ["4", "5"], done.stdout
    assert 'Unexpected keyword argument "nosuch"' in errors[0]
    assert "Literal['vm']" in errors[1]
