from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from musterpoint.code.prepare import prepare
from musterpoint.code.workspace import Workspace
from musterpoint.errors import FetchError, UsageError
from musterpoint.job.model import EntryPoint, Job, Paths

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


def test_code_that_is_there_is_used_as_it_is(tmp_path: Path) -> None:
    code = write(tmp_path / "code")
    workspace = prepare(job(code, source="s3://bucket/key", arguments=("--lr", "a b")), {}, sys.executable)
    assert workspace == Workspace(
        "python", "train.py", (sys.executable, "train.py", "--lr", "a b"), str(code), sys.executable, (str(code),)
    )
    done = subprocess.run(workspace.argv, cwd=workspace.cwd, capture_output=True, text=True, check=True)
    assert done.stdout == "['train.py', '--lr', 'a b'] part\n"


@pytest.mark.parametrize("made", [True, False])
def test_a_source_directory_is_copied_and_stays_as_it_was(tmp_path: Path, made: bool) -> None:
    source, code = write(tmp_path / "source"), tmp_path / "ml" / "code"
    if made:
        code.mkdir(parents=True)
    (source / "link").symlink_to("nowhere")
    before = sorted(source.iterdir())
    workspace = prepare(job(code, source=str(source)), {}, sys.executable)
    assert workspace.cwd == str(code)
    assert (code / "part.py").exists()
    assert sorted(source.iterdir()) == before


def test_a_code_directory_inside_its_own_source(tmp_path: Path) -> None:
    """A local job's tree lies below the directory the job was started from."""
    source = write(tmp_path / "source")
    code = source / "jobs" / "one" / "code"
    (source / "muster-jobs" / "old").mkdir(parents=True)
    prepare(job(code, source=str(source)), {}, sys.executable)
    assert sorted(path.name for path in code.iterdir()) == ["part.py", "train.py"]


def test_one_file_as_source(tmp_path: Path) -> None:
    source = write(tmp_path / "source")
    prepare(job(tmp_path / "code", source=str(source / "train.py")), {}, sys.executable)
    assert [path.name for path in (tmp_path / "code").iterdir()] == ["train.py"]


@pytest.mark.parametrize(
    ("source", "says"),
    [
        (
            "s3://bucket/key/sourcedir.tar.gz",
            "fetching code from s3://bucket/key/sourcedir.tar.gz isn't built yet: put ",
        ),
        ("FOLDER/sourcedir.tar.gz", "unpacking FOLDER/sourcedir.tar.gz isn't built yet: put the unpacked code at"),
        ("FOLDER/none", "the job's source FOLDER/none isn't on this host"),
    ],
)
def test_sources_that_are_not_here(tmp_path: Path, source: str, says: str) -> None:
    (tmp_path / "sourcedir.tar.gz").write_bytes(b"")
    with pytest.raises(FetchError) as error:
        prepare(job(tmp_path / "code", source=source.replace("FOLDER", str(tmp_path))), {}, sys.executable)
    assert says.replace("FOLDER", str(tmp_path)) in str(error.value)
    assert error.value.code == 71


def test_no_program_and_no_code(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="the job names no program to run: set the hyperparameter sagemaker_program"):
        prepare(job(tmp_path, program=""), {}, sys.executable)
    with pytest.raises(UsageError, match=r"'train.py' isn't in .*, which is empty"):
        prepare(job(tmp_path), {}, sys.executable)


def test_a_command_needs_no_code(tmp_path: Path) -> None:
    workspace = prepare(job(tmp_path / "code", program="true"), {"PATH": "/usr/bin:/bin"}, sys.executable)
    subprocess.run(workspace.argv, cwd=workspace.cwd, check=True)


def test_a_copy_that_fails_is_a_sentence(tmp_path: Path) -> None:
    source = write(tmp_path / "source")
    (tmp_path / "file").write_text("")
    with pytest.raises(FetchError, match=r"the code can't be copied from .* to .*file/code"):
        prepare(job(tmp_path / "file" / "code", source=str(source)), {}, sys.executable)
