from __future__ import annotations

import io
import os
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Callable

import pytest

from musterpoint.base.errors import FetchError, UsageError
from musterpoint.base.settings import CODE_COPY_OF
from musterpoint.core.code.tools import Tools
from musterpoint.core.code.workspace import Workspace
from musterpoint.core.job.model import EntryPoint, Job, Paths

from .conftest import Bench, prepare

ECHO = "import sys, part; print(sys.argv, part.__name__)"


def job(code: Path, program: str = "train.py", source: str = "", arguments: tuple[str, ...] = ()) -> Job:
    return Job(
        "sagemaker", "j", ("a",), "a", ("a",), EntryPoint(program, source), arguments=arguments,
        paths=Paths(code=str(code)),
    )  # fmt: skip


def write(folder: Path) -> Path:
    folder.mkdir()
    (folder / "train.py").write_text(ECHO)
    (folder / "part.py").write_text("")
    return folder


def tools_of(bench: Bench) -> Callable[[], Tools]:
    return lambda: bench.tools


def no_tools() -> Tools:
    raise AssertionError("nothing had to be fetched or installed")


def test_code_that_is_there_is_used_as_it_is(tmp_path: Path) -> None:
    code = write(tmp_path / "code")
    workspace = prepare(job(code, source="s3://bucket/key", arguments=("--lr", "a b")), {}, sys.executable, no_tools)
    argv = (sys.executable, "train.py", "--lr", "a b")
    note = f"the code in {code} was there before the job: s3://bucket/key isn't unpacked"
    assert workspace == Workspace("python", "train.py", argv, str(code), sys.executable, (str(code),), note=note)
    done = subprocess.run(workspace.argv, cwd=workspace.cwd, capture_output=True, text=True, check=True)
    assert done.stdout == "['train.py', '--lr', 'a b'] part\n"
    copied = prepare(job(code, source=str(tmp_path)), {CODE_COPY_OF: str(tmp_path)}, sys.executable, no_tools)
    assert copied.note == "", "muster local has brought it"


def test_code_of_an_image_without_the_program(tmp_path: Path) -> None:
    code = write(tmp_path / "code")
    (code / "train.py").unlink()
    source = tmp_path / "code.tar.gz"
    source.write_bytes(b"")
    with pytest.raises(UsageError) as error:
        prepare(job(code, source=str(source)), {}, sys.executable, no_tools)
    assert f"was there before the job: {source} isn't unpacked: empty {code}" in str(error.value)


def test_code_of_an_image_whose_source_is_on_another_machine(tmp_path: Path) -> None:
    """SDK v2's local mode names a directory of the user's machine."""
    code = write(tmp_path / "code")
    for source in (str(code), f"file://{code}", "file:///nowhere/at/all", "gs://bucket/key"):
        assert prepare(job(code, source=source), {}, sys.executable, no_tools).note == ""


def test_a_program_that_was_named_without_its_directory(tmp_path: Path) -> None:
    """SDK v2's local mode mounts ``source_dir`` and sends the base name of ``sub/train.py``."""
    write(tmp_path / "sub")
    (tmp_path / ".ipynb_checkpoints").mkdir()
    (tmp_path / ".ipynb_checkpoints" / "train.py").write_text("")
    workspace = prepare(job(tmp_path, source=str(tmp_path), arguments=("a",)), {}, sys.executable, no_tools)
    assert (workspace.argv, workspace.cwd) == ((sys.executable, "sub/train.py", "a"), str(tmp_path))
    with pytest.raises(UsageError, match=r"'none.py' isn't in .*, which has \.ipynb_checkpoints/, sub/$"):
        prepare(job(tmp_path, "none.py", str(tmp_path)), {}, sys.executable)
    with pytest.raises(UsageError, match=r"'train.py' isn't in .*, which has"):
        prepare(job(tmp_path, source="s3://bucket/key"), {}, sys.executable)
    write(tmp_path / "other")
    with pytest.raises(UsageError, match=r"itself but is other/train.py and sub/train.py there; .* the source_dir"):
        prepare(job(tmp_path, source=str(tmp_path)), {}, sys.executable)


@pytest.mark.parametrize(
    ("program", "kind", "words"),
    [("train.py", "python", (sys.executable, "train.py")), ("run.sh", "shell", ("/bin/sh", "./run.sh")),
     ("tool", "executable", ("./tool",))],
)  # fmt: skip
def test_a_plan_brings_nothing(program: str, kind: str, words: tuple[str, ...], tmp_path: Path) -> None:
    """``muster plan`` writes nothing; what it can't look into is told by the program's name."""
    workspace = prepare(job(tmp_path / "code", program, "s3://bucket/sourcedir.tar.gz"), {}, sys.executable)
    assert (workspace.kind, workspace.argv, workspace.cwd) == (kind, words, str(tmp_path / "code"))
    assert list(tmp_path.iterdir()) == []


def test_a_plan_looks_into_a_directory(tmp_path: Path) -> None:
    source = write(tmp_path / "source")
    (source / "requirements.txt").write_text("nothing-of-that-name")
    workspace = prepare(job(tmp_path / "code", source=str(source)), {}, sys.executable)
    assert (workspace.argv[1], workspace.cwd) == ("train.py", str(tmp_path / "code"))
    with pytest.raises(UsageError, match=r"'none' isn't in .*source, which has part.py, requirements.txt, train.py"):
        prepare(job(tmp_path / "code", "none", str(source)), {}, sys.executable)
    prepare(job(source), {}, sys.executable)


def test_no_program_and_no_code(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="the job names no program to run: set the hyperparameter sagemaker_program"):
        prepare(job(tmp_path, program=""), {}, sys.executable)
    with pytest.raises(UsageError, match=r"'train.py' isn't in .*, which is empty"):
        prepare(job(tmp_path), {}, sys.executable)
    with pytest.raises(FetchError, match=r"isn't on this host"):
        prepare(job(tmp_path, source="/none"), {}, sys.executable)


def test_what_was_brought_gets_its_bit_back(bench: Bench, tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "a.tar.gz", "w:gz") as made:
        for name, text in (("start", b"echo started\n"), ("train.py", b"")):
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(text), 0o600
            made.addfile(member, io.BytesIO(text))
    source = str(tmp_path / "a.tar.gz")
    workspace = prepare(job(tmp_path / "code", "start", source), bench.environ, sys.executable, tools_of(bench))
    assert os.access(tmp_path / "code" / "start", os.X_OK)
    assert not os.access(tmp_path / "code" / "train.py", os.X_OK)
    done = subprocess.run(workspace.argv, cwd=workspace.cwd, capture_output=True, text=True, check=True)
    assert done.stdout == "started\n", "a shell runs text without a first line as its own"


@pytest.mark.parametrize(
    ("files", "program", "installer", "calls"),
    [
        (["requirements.txt", "train.py"], "train.py", "auto", 1),
        (["requirements.txt", "pkg/__main__.py"], "pkg", "auto", 1),
        (["requirements.txt", "run.sh"], "run.sh", "auto", 0),
        (["requirements.txt", "run.sh"], "run.sh", "pip", 1),
        (["requirements.txt", "train.py"], "train.py", "none", 0),
        (["requirements.txt"], "true", "auto", 0),
        (["setup.py", "run.sh"], "run.sh", "auto", 0),
        (["setup.py", "train.py"], "train", "auto", 1),
        (["setup.py"], "true", "auto", 1),
        (["train.py"], "train.py", "auto", 0),
    ],
)
def test_when_is_installed(
    files: list[str], program: str, installer: str, calls: int, bench: Bench, tmp_path: Path
) -> None:
    for name in files:
        (tmp_path / "code" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "code" / name).write_text("")
    bench.pip("")
    prepare(job(tmp_path / "code", program), bench.environ, sys.executable, tools_of(bench), installer)
    assert len(bench.calls) == calls
    skipped = [text for text in bench.said if "isn't installed (" in text]
    assert len(skipped) == (not calls and files != ["train.py"])


def test_the_program_is_missed_before_anything_is_installed(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "requirements.txt").write_text("")
    bench.pip("")
    with pytest.raises(UsageError, match=r"'trian.py' isn't in"):
        prepare(job(tmp_path / "code", "trian.py"), bench.environ, sys.executable, tools_of(bench))
    assert bench.calls == []


def test_a_program_that_the_package_brings(bench: Bench, tmp_path: Path) -> None:
    code, interpreter = tmp_path / "code", tmp_path / "bin" / "python"
    code.mkdir()
    (code / "setup.py").write_text("")
    interpreter.parent.mkdir()
    interpreter.symlink_to(sys.executable)
    bench.pip(
        f"open({str(tmp_path / 'modules' / 'brought.py')!r}, 'w').close()\n"
        f"os.close(os.open({str(tmp_path / 'bin' / 'my-command')!r}, os.O_CREAT | os.O_WRONLY, 0o755))\n"
    )
    for program, argv in (
        ("brought", (str(interpreter), "-m", "brought")), ("brought.py", (str(interpreter), "-m", "brought")),
        ("my-command", (str(tmp_path / "bin" / "my-command"),)),
    ):  # fmt: skip
        assert prepare(job(code, program), bench.environ, str(interpreter), tools_of(bench)).argv == argv
    with pytest.raises(UsageError, match=r"'none' isn't in .*; the installed package has no module and no command"):
        prepare(job(code, "none"), bench.environ, str(interpreter), tools_of(bench))
