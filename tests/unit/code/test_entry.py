from __future__ import annotations

import os
from pathlib import Path

import pytest

from musterpoint.code.entry import Start, find
from musterpoint.errors import UsageError

PYTHON = "/usr/bin/python3"


def put(folder: Path, name: str, text: str = "", mode: int = 0o644) -> None:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)


def start(folder: Path, program: str, module: bool = False, path: str = "") -> Start:
    return find(program, module, str(folder), PYTHON, {"PATH": path or os.environ["PATH"]})


@pytest.mark.parametrize(
    ("files", "program", "kind", "words"),
    [
        (["train.py"], "train.py", "python", (PYTHON, "train.py")),
        (["src/train.py"], "src/train.py", "python", (PYTHON, "src/train.py")),
        (["-c.py"], "-c.py", "python", (PYTHON, "./-c.py")),
        (["a b.py"], "a b.py", "python", (PYTHON, "a b.py")),
        (["train.py", "setup.py"], "train.py", "module", (PYTHON, "-m", "train")),
        (["train.py", "setup.py"], "train", "module", (PYTHON, "-m", "train")),
        (["pkg/train.py", "setup.py"], "pkg/train.py", "module", (PYTHON, "-m", "pkg.train")),
        (["my-train.py", "setup.py"], "my-train.py", "python", (PYTHON, "my-train.py")),
        (["pkg/__main__.py"], "pkg", "module", (PYTHON, "-m", "pkg")),
        (["pkg/__main__.py"], "./pkg/", "module", (PYTHON, "-m", "pkg")),
        (["a-b/__main__.py"], "a-b", "python", (PYTHON, "a-b")),
        (["train.sh"], "train.sh", "shell", ("/bin/sh", "./train.sh")),
        (["train.sh", "setup.py"], "train.sh", "shell", ("/bin/sh", "./train.sh")),
        (["bin/train.sh"], "bin/train.sh", "shell", ("/bin/sh", "./bin/train.sh")),
    ],
)
def test_kinds(tmp_path: Path, files: list[str], program: str, kind: str, words: tuple[str, ...]) -> None:
    for name in files:
        put(tmp_path, name)
    assert start(tmp_path, program) == Start(kind, words)


def test_a_module_is_not_looked_for(tmp_path: Path) -> None:
    assert start(tmp_path, "torch.utils.collect_env", module=True).words == (PYTHON, "-m", "torch.utils.collect_env")


def test_an_absolute_path(tmp_path: Path) -> None:
    put(tmp_path, "code/other.py")
    put(tmp_path, "train.py")
    put(tmp_path, "run.sh")
    assert start(tmp_path / "code", str(tmp_path / "train.py")).words == (PYTHON, str(tmp_path / "train.py"))
    assert start(tmp_path / "code", str(tmp_path / "run.sh")).words == ("/bin/sh", str(tmp_path / "run.sh"))


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("#!/bin/sh\n", ("/bin/sh",)),
        ("#! /bin/sh -e\r\n", ("/bin/sh", "-e")),
        ("#!/usr/bin/env -S sh -e\n", ("/usr/bin/env", "-S sh -e")),  # one argument, as the kernel has it
    ],
)
def test_first_lines(tmp_path: Path, line: str, words: tuple[str, ...]) -> None:
    put(tmp_path, "a.sh", line)
    put(tmp_path, "tool", line)
    assert start(tmp_path, "a.sh") == Start("shell", (*words, "./a.sh"))
    assert start(tmp_path, "tool") == Start("executable", (*words, "./tool"))


def test_executables_and_commands(tmp_path: Path) -> None:
    put(tmp_path, "code/tool", "\x7fELF", 0o755)
    put(tmp_path, "bin/command", "", 0o755)
    put(tmp_path, "bin/Rscript", "", 0o755)
    put(tmp_path, "code/fit.R")
    (tmp_path / "code" / "command").mkdir()  # a folder of the same name is no program
    path = str(tmp_path / "bin")
    for name in ("tool", "./tool"):
        assert start(tmp_path / "code", name, path=path) == Start("executable", ("./tool",))
    assert start(tmp_path / "code", "command", path=path) == Start("executable", (f"{path}/command",))
    assert start(tmp_path / "code", "fit.R", path=path) == Start("executable", (f"{path}/Rscript", "./fit.R"))


@pytest.mark.parametrize(
    ("program", "says"),
    [
        ("trian.py", "the program 'trian.py' isn't in FOLDER, which has data, empty/, train.py"),
        ("empty", "the program FOLDER/empty is a directory without a __main__.py, which is empty"),
        ("/none/train.py", "the program '/none/train.py' isn't on this host"),
        ("data", "FOLDER/data isn't executable and has no first line"),
        ("none.sh", "the program 'none.sh' isn't in FOLDER"),
        ("a/b/c", "the program 'a/b/c' isn't in FOLDER"),
        ("\ud800.py", "isn't in FOLDER"),
    ],
)
def test_what_is_there_instead(tmp_path: Path, program: str, says: str) -> None:
    put(tmp_path, "train.py")
    put(tmp_path, "data")
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError) as error:
        start(tmp_path, program)
    assert says.replace("FOLDER", str(tmp_path)) in str(error.value)


def test_an_empty_folder_and_none(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="which is empty"):
        start(tmp_path, "train.py")
    with pytest.raises(UsageError, match="which can't be read: No such file"):
        start(tmp_path / "none", "train.py")


def test_an_interpreter_that_is_missing(tmp_path: Path) -> None:
    put(tmp_path, "a.sh", "#!/opt/none/bash\n")
    with pytest.raises(UsageError, match=r"a.sh asks for /opt/none/bash, which isn't on this host"):
        start(tmp_path, "a.sh")


def test_long_listings_are_cut(tmp_path: Path) -> None:
    for number in range(20):
        put(tmp_path, f"f{number:02}.txt")
    with pytest.raises(UsageError, match=r"f11.txt and 8 more$"):
        start(tmp_path, "train.py")
