from __future__ import annotations

import os
from pathlib import Path

import pytest

from musterpoint.base.errors import UsageError
from musterpoint.core.code.program import Start, by_name, find_program, make_executable

PYTHON = "/usr/bin/python3"


def put(folder: Path, name: str, text: str = "", mode: int = 0o644) -> None:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)


def start(folder: Path, program: str, module: bool = False, path: str = "") -> Start:
    return find_program(program, module, str(folder), PYTHON, {"PATH": path or os.environ["PATH"]})


@pytest.mark.parametrize(
    ("files", "program", "kind", "words"),
    [
        (["train.py"], "train.py", "python", (PYTHON, "train.py")),
        (["src/train.py"], "src/train.py", "python", (PYTHON, "src/train.py")),
        (["-c.py"], "-c.py", "python", (PYTHON, "./-c.py")),
        (["train.py", "setup.py"], "train", "module", (PYTHON, "-m", "train")),
        (["pkg/train.py", "setup.py"], "pkg/train.py", "module", (PYTHON, "-m", "pkg.train")),
        (["my-train.py", "setup.py"], "my-train.py", "python", (PYTHON, "my-train.py")),
        (["pkg/__main__.py"], "pkg", "module", (PYTHON, "-m", "pkg")),
        (["pkg/__main__.py"], "./pkg/", "module", (PYTHON, "-m", "pkg")),
        (["a-b/__main__.py"], "a-b", "python", (PYTHON, "a-b")),
        (["train.sh"], "train.sh", "shell", ("/bin/sh", "./train.sh")),
        (["train.sh", "setup.py"], "train.sh", "shell", ("/bin/sh", "./train.sh")),
        (["pkg/train.py"], "pkg.train", "module", (PYTHON, "-m", "pkg.train")),
        (["pkg.train", "pkg/train.py"], "pkg/train.py", "python", (PYTHON, "pkg/train.py")),
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


def test_text_that_no_line_explains_is_a_shell_script(tmp_path: Path) -> None:
    """As a shell has it; the kernel refuses to start it."""
    put(tmp_path, "start", "echo hello\n", 0o755)
    put(tmp_path, "empty", "", 0o755)
    put(tmp_path, "said", "#!/bin/sh\n", 0o755)
    put(tmp_path, "binary", "\x7fELF", 0o755)
    put(tmp_path, "unmarked", "echo hello\n", 0o644)  # a mounted directory's file stays as it is
    for name in ("start", "unmarked"):
        assert start(tmp_path, name).words == ("/bin/sh", f"./{name}")
    for name in ("empty", "said", "binary"):
        assert start(tmp_path, name).words == (f"./{name}",)


def test_r_needs_r(tmp_path: Path) -> None:
    put(tmp_path, "fit.R", "", 0o755)
    with pytest.raises(UsageError, match=r"fit.R is R, and there is no Rscript on PATH: install R in the image"):
        start(tmp_path, "fit.R", path="/none")
    put(tmp_path, "own.R", "#!/bin/sh\n")
    assert start(tmp_path, "own.R", path="/none").words == ("/bin/sh", "./own.R")


def test_the_right_to_run(tmp_path: Path) -> None:
    for name in ("code/run.sh", "code/tool", "code/train.py", "other"):
        put(tmp_path, name, mode=0o640)
        make_executable(str(tmp_path / name), str(tmp_path / "code"))
    (tmp_path / "code" / "out").symlink_to(tmp_path / "other")
    make_executable(str(tmp_path / "code" / "out"), str(tmp_path / "code"))
    make_executable(str(tmp_path / "code" / "none"), str(tmp_path / "code"))
    modes = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.rglob("*") if path.is_file()}
    assert modes == {"run.sh": 0o751, "tool": 0o751, "train.py": 0o640, "other": 0o640, "out": 0o640}


@pytest.mark.parametrize(
    ("program", "module", "kind", "words"),
    [
        ("src/train.py", False, "python", (PYTHON, "src/train.py")),
        ("train.sh", False, "shell", ("/bin/sh", "./train.sh")),
        ("tool", False, "executable", ("./tool",)),
        ("pkg.train", True, "module", (PYTHON, "-m", "pkg.train")),
    ],
)
def test_what_a_name_says(program: str, module: bool, kind: str, words: tuple[str, ...]) -> None:
    assert by_name(program, module, PYTHON) == Start(kind, words)


OURS = "#!{python}\nimport sys\n\nfrom musterpoint.cli.{module} import main\n\nsys.exit(main())\n"
ONE_FILE = (
    '#!/usr/bin/env python3\n"""musterpoint 0.1.0 as one file: puts all hosts of a distributed training job together'
)


@pytest.mark.parametrize(
    ("name", "text", "ours"),
    [
        ("train", OURS.format(python=PYTHON, module="train"), True),
        ("muster", OURS.format(python=PYTHON, module="main"), True),
        ("fit", '#!/bin/sh\nexec python3 -m musterpoint.cli.train "$@"\n', True),
        ("train", ONE_FILE, True),
        ("launcher", ONE_FILE, False),
        ("train", "#!/bin/sh\nexec python3 fit.py\n", False),
        ("train", "\x7fELF musterpoint.cli.train", False),
    ],
)
def test_our_own_commands_are_no_program(tmp_path: Path, name: str, text: str, ours: bool) -> None:
    """Neither on PATH, where a script's name without its ``.py`` finds them, nor in the code."""
    put(tmp_path, f"bin/{name}", text, 0o755)
    put(tmp_path, "code/train.py")
    path, folder = tmp_path / "bin" / name, tmp_path / "code"
    if not ours:
        assert find_program(name, False, str(folder), PYTHON, {"PATH": str(path.parent)}).kind == "executable"
        assert find_program(name, False, str(path.parent), PYTHON, {}).kind == "executable"
        return
    with pytest.raises(UsageError, match=f"'{name}' isn't in .*, which has train.py; {path} is musterpoint itself"):
        find_program(name, False, str(folder), PYTHON, {"PATH": str(path.parent)})
    with pytest.raises(UsageError, match=f"{path} is musterpoint itself.*: name the training script"):
        find_program(name, False, str(path.parent), PYTHON, {})


@pytest.mark.parametrize(
    ("program", "says"),
    [
        (
            "trian.py",
            "the program 'trian.py' isn't in FOLDER, which has data, empty/, train.py: did you mean train.py?",
        ),
        ("empty", "the program FOLDER/empty is a directory without a __main__.py, which is empty"),
        ("/none/train.py", "the program '/none/train.py' isn't on this host"),
        ("data", "FOLDER/data isn't executable and is no script"),
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


def test_a_first_line_of_windows(tmp_path: Path) -> None:
    (tmp_path / "tool").write_bytes(b"#!/usr/bin/env python3\r\nprint(1)\r\n")
    (tmp_path / "tool").chmod(0o755)
    with pytest.raises(UsageError, match=r"the first line of .*/tool has a Windows line end"):
        start(tmp_path, "tool")


def test_an_empty_folder_and_none(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="which is empty"):
        start(tmp_path, "train.py")
    with pytest.raises(UsageError, match="which can't be read: No such file"):
        start(tmp_path / "none", "train.py")


def test_an_interpreter_that_is_missing(tmp_path: Path) -> None:
    put(tmp_path, "a.sh", "#!/opt/none/bash\n")
    with pytest.raises(UsageError, match=r"a.sh asks for /opt/none/bash, which isn't on this host"):
        start(tmp_path, "a.sh")
