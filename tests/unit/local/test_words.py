"""Options by their names, from Python or a file → the words of `muster local`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from musterpoint.base.errors import UsageError
from musterpoint.cli.local_command_line import flags_taken
from musterpoint.local.job_file import read_job_file, to_words

KNOWN = flags_taken()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"hosts": 2, "slots": None, "launcher": "ranks"}, ["--hosts", "2", "--launcher", "ranks"]),
        ({"cpu_fallback": True, "one-address": False}, ["--cpu-fallback"]),
        ({"host_slots": (2, 4), "log-ranks": [0, 3]}, ["--host-slots", "2,4", "--log-ranks", "0,3"]),
        ({"env": {"A": 1, "B": "x=y"}}, ["--env", "A=1", "--env", "B=x=y"]),
        ({"env": ["A=1", "TOKEN"]}, ["--env", "A=1", "--env", "TOKEN"]),
        ({"channel": {"train": "data", "test": "/abs"}}, ["--channel", "train=/base/data", "--channel", "test=/abs"]),
        ({"channel": "train=data"}, ["--channel", "train=/base/data"]),
        ({"hyperparameters": {"a": [1]}}, ["--hyperparameters", '{"a": [1]}']),
        ({"source-dir": "code", "output": Path("out")}, ["--source-dir", "/base/code", "--output", "/base/out"]),
        ({"stop_after": 1.5}, ["--stop-after", "1.5"]),
        ({"hyperparameters": "hp.json"}, ["--hyperparameters", "/base/hp.json"]),
        ({"distribution": '{"mpi": {}}'}, ["--distribution", '{"mpi": {}}']),
        ({"checkpoints": "kept"}, ["--checkpoints", "/base/kept"]),
        ({"checkpoints": "s3://b/kept"}, ["--checkpoints", "s3://b/kept"]),
        ({"python": "python3.12"}, ["--python", "python3.12"]),
        ({"python": "venv/bin/python"}, ["--python", "/base/venv/bin/python"]),
        ({"channel": "data"}, ["--channel", "data"]),
        ({"channel": ["train=data", "other"]}, ["--channel", "train=data", "--channel", "other"]),
        ({"channel": "data="}, ["--channel", "data="]),
    ],
)
def test_words(options: dict[str, Any], words: list[str]) -> None:
    assert to_words(options, KNOWN, "here", "/base") == words


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"launchr": "ranks"}, "here: launchr is no option of muster local: did you mean launcher?"),
        ({"programm": "x.py"}, "here: programm is no option of muster local: did you mean program?"),
        ({"help": True}, "here: help is no option of muster local"),
        ({"cpu_fallback": "yes"}, "here: cpu_fallback is 'yes', expected true or false"),
        ({"launcher": {"a": 1}}, "here: launcher is a table, expected a text, a number or a list"),
        ({"env": {"A": [1]}}, "here: env.A is [1], expected a text or a number"),
        ({"hosts": object}, "here: hosts is <class 'object'>, expected a text or a number"),
    ],
)
def test_what_is_wrong_is_named(options: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError) as caught:
        to_words(options, KNOWN, "here")
    assert str(caught.value) == said


TOML = """
program = "train.py"
arguments = ["--epochs", 3]
hosts = 2
launcher = "ranks"
[channel]
train = "data"
"""


@pytest.mark.skipif(sys.version_info < (3, 11), reason="this Python has no reader of TOML")
def test_a_toml_file(tmp_path: Path) -> None:
    path = tmp_path / "job.toml"
    path.write_text(TOML)
    file = read_job_file(str(path), KNOWN)
    assert file.options == ("--hosts", "2", "--launcher", "ranks", "--channel", f"train={tmp_path}/data")
    assert (file.program, file.arguments, file.module) == (f"{tmp_path}/train.py", ("--epochs", "3"), False)
    path.write_text("hosts = ")
    with pytest.raises(UsageError, match="it is no TOML: "):
        read_job_file(str(path), KNOWN)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ([], "a JSON list, expected an object of options"),
        ({"program": 3}, "program is 3, expected a text"),
        ({"program": "a.py", "module": "a"}, "program and module are both given"),
        ({"arguments": "--epochs 3"}, "arguments is '--epochs 3', expected a list of texts and numbers"),
        ({"host": 2}, "host is no option of muster local: did you mean hosts?"),
    ],
)
def test_a_wrong_file(tmp_path: Path, value: Any, said: str) -> None:
    path = tmp_path / "job.json"
    path.write_text(json.dumps(value))
    with pytest.raises(UsageError) as caught:
        read_job_file(str(path), KNOWN)
    assert str(caught.value).startswith(f"-f {path}: ")
    assert said in str(caught.value)


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"job.toml: No such file or directory"):
        read_job_file(str(tmp_path / "job.toml"), KNOWN)
