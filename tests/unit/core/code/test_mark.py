"""One job after another in one container: code that musterpoint brought gives way to that of the next job."""

from __future__ import annotations

import errno
import json
import os
import random
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest

from musterpoint.base.errors import FetchError, StoppedEarly
from musterpoint.core.code import fetch as module
from musterpoint.core.code.mark import Mark, read_mark, remove, write
from musterpoint.core.code.project import MARK
from musterpoint.core.code.workspace import Workspace
from musterpoint.core.job.model import EntryPoint, Job, Paths
from musterpoint.core.supervise.watchers.build_locks import folder_of, warnings

from .conftest import Bench, prepare


def pack(path: Path, **files: str) -> Path:
    """An archive with these files (``a__b`` stands for ``a/b``), or that directory, by the name of ``path``."""
    folder = path if not path.suffix else path.with_name(f"{path.name}-{random.random()}")
    folder.mkdir(exist_ok=True)
    for name, text in files.items():
        file = folder / f"{name.replace('__', '/')}.py"
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
    if path.suffix:
        with tarfile.open(path, "w:gz") as made:
            for file in folder.iterdir():
                made.add(file, file.name)
    return path


def start(bench: Bench, source: Path | str, program: str = "train.py", fetches: bool = True) -> Workspace:
    paths = Paths(code=str(bench.folder / "ml" / "code"))
    job = Job("sagemaker", "j", ("a",), "a", ("a",), EntryPoint(program, str(source)), paths=paths)
    return prepare(job, {}, sys.executable, (lambda: bench.tools) if fetches else None)


def files(bench: Bench) -> dict[str, str]:
    code = bench.folder / "ml" / "code"
    found = {str(path.relative_to(code)): path for path in code.rglob("*") if path.is_file() and path.name != MARK}
    return {name: path.read_text() for name, path in found.items()}


@pytest.mark.parametrize("name", ["code.tar.gz", "folder"])
@pytest.mark.parametrize("mount", [False, True])
def test_the_next_jobs_code_takes_the_place_of_the_last(
    name: str, mount: bool, bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module.os.path, "ismount", lambda path: mount)
    start(bench, pack(tmp_path / f"one-{name}", train="1", only="1", lib__part="1", lib__more="1"))
    written = tmp_path / "ml" / "code" / "lib" / "results.txt"
    written.write_text("of the first job")
    start(bench, pack(tmp_path / f"two-{name}", train="2", lib__part="2"))
    assert files(bench) == {"train.py": "2", "lib/part.py": "2", "lib/results.txt": "of the first job"}
    assert "in the place of" in bench.said[-1]
    assert sorted(path.name for path in (tmp_path / "ml").iterdir()) == ["code"]


def test_the_same_name_with_another_content_is_another_source(bench: Bench, tmp_path: Path) -> None:
    for text in "123":
        start(bench, pack(tmp_path / "code.tar.gz", train=text))
        assert files(bench) == {"train.py": text}


def test_a_content_of_the_same_size_and_time_is_another_one(bench: Bench, tmp_path: Path) -> None:
    source = pack(tmp_path / "folder", train="1")
    start(bench, source)
    before = (source / "train.py").stat()
    (source / "train.py").write_text("2")
    os.utime(source / "train.py", ns=(before.st_atime_ns, before.st_mtime_ns))
    start(bench, source)
    assert files(bench) == {"train.py": "2"}


def test_a_mount_from_the_same_file_system(bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing shows that the directory is one; it can't be renamed over, and a rename into it isn't possible."""
    rename, code = os.rename, str(tmp_path / "ml" / "code")

    def across(source: str, target: str, **more: Any) -> None:
        if target == code or (not source.startswith(code) and target.startswith(code)):
            raise OSError(errno.EBUSY if target == code else errno.EXDEV, "a mount", target)
        rename(source, target, **more)

    monkeypatch.setattr(os, "rename", across)
    for text in "12":
        start(bench, pack(tmp_path / f"code{text}.tar.gz", train=text, lib__part=text))
        assert files(bench) == {"train.py": text, "lib/part.py": text}


@pytest.mark.parametrize("kind", ["directory", "file"])
def test_what_an_earlier_program_left_in_the_way_is_told_before_anything_is_removed(
    kind: str, bench: Bench, tmp_path: Path
) -> None:
    start(bench, pack(tmp_path / "one.tar.gz", train="1"))
    code = tmp_path / "ml" / "code"
    if kind == "directory":
        (code / "data.py").mkdir()
        (code / "data.py" / "written").write_text("")
    else:
        (code / "lib").write_text("")
    with pytest.raises(FetchError, match=r"code/(data.py/written|lib) is in the way of the code from .*two.tar.gz"):
        start(bench, pack(tmp_path / "two.tar.gz", train="2", data="2", lib__part="2"))
    assert files(bench)["train.py"] == "1"


def test_what_the_installer_built_of_the_last_code_goes_with_it(bench: Bench, tmp_path: Path) -> None:
    start(bench, pack(tmp_path / "one.tar.gz", train="1"))
    for name in ("build/lib/old.py", "p.egg-info/PKG-INFO", "build/of-the-program"):
        path = tmp_path / "ml" / "code" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")
    start(bench, pack(tmp_path / "two.tar.gz", train="2"))
    assert files(bench) == {"train.py": "2", "build/of-the-program": ""}


@pytest.mark.parametrize("name", ["code.tar.gz", "folder"])
def test_the_same_source_leaves_what_was_changed_meanwhile(name: str, bench: Bench, tmp_path: Path) -> None:
    source = pack(tmp_path / name, train="1")
    start(bench, source)
    (tmp_path / "ml" / "code" / "train.py").write_text("mended by hand")
    start(bench, source)
    assert files(bench) == {"train.py": "mended by hand"}


def test_a_source_that_is_gone_stays_in_use(bench: Bench, tmp_path: Path) -> None:
    """The same container starts again."""
    source = pack(tmp_path / "code.tar.gz", train="1")
    start(bench, source)
    source.unlink()
    start(bench, source)
    with pytest.raises(FetchError, match=r"another.tar.gz isn't on this host$"):
        start(bench, tmp_path / "another.tar.gz")


@pytest.mark.parametrize("wrong", ["broken", "stopped"])
def test_what_goes_wrong_leaves_the_code_as_it_was(wrong: str, bench: Bench, tmp_path: Path) -> None:
    start(bench, pack(tmp_path / "one.tar.gz", train="1"))
    (tmp_path / "two.tar.gz").write_bytes((tmp_path / "one.tar.gz").read_bytes()[:40])
    if wrong == "stopped":
        pack(tmp_path / "two.tar.gz", train="2")
        bench.tools.stop(15)
    with pytest.raises((FetchError, StoppedEarly)):
        start(bench, tmp_path / "two.tar.gz")
    assert files(bench) == {"train.py": "1"}
    mark = read_mark(str(tmp_path / "ml" / "code"))
    assert mark is not None and mark.place == str(tmp_path / "one.tar.gz")


@pytest.mark.parametrize("step", ["remove", "_merge"])
def test_a_kill_while_code_is_replaced_is_no_code_of_an_image(
    step: str, bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = pack(tmp_path / "one.tar.gz", train="1", other="1"), pack(tmp_path / "two.tar.gz", train="2")

    def killed(*_words: object) -> None:
        raise KeyboardInterrupt

    start(bench, one)
    with monkeypatch.context() as patch:
        patch.setattr(module, step, killed)
        with pytest.raises(KeyboardInterrupt):
            start(bench, two)
    start(bench, two)
    assert files(bench) == {"train.py": "2"}


def test_a_plan_fetches_nothing(bench: Bench, tmp_path: Path) -> None:
    start(bench, pack(tmp_path / "one.tar.gz", train="1"))
    plan = start(bench, pack(tmp_path / "two.tar.gz", other="2"), "other.py", fetches=False)
    assert (plan.argv[-1], plan.note) == ("other.py", "")
    assert start(bench, "s3://bucket/key", "other.py", fetches=False).argv[-1] == "other.py"
    assert files(bench) == {"train.py": "1"}


def test_a_mark_that_the_program_changed_removes_nothing_elsewhere(tmp_path: Path) -> None:
    code, other = tmp_path / "code", tmp_path / "other"
    for folder in (code, other):
        folder.mkdir()
        (folder / "kept").write_text("")
    (code / "link").symlink_to(other)
    (code / "build").symlink_to(other)
    (other / "lib").mkdir()
    remove(str(code), Mark("p", "d", ("../other/kept", str(other / "kept"), "link/kept", "none", "", ".", "a\0b")))
    assert (other / "kept").exists()
    assert (other / "lib").is_dir()
    assert (code / "kept").exists()


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"place": 1, "digest": "", "files": []}', "[" * 100000, "\xff"])
def test_a_mark_that_cannot_be_read_is_none(text: str, tmp_path: Path) -> None:
    (tmp_path / MARK).write_text(text)
    assert read_mark(str(tmp_path)) is None
    os.unlink(tmp_path / MARK)
    os.mkfifo(tmp_path / MARK)
    assert read_mark(str(tmp_path)) is None


def test_names_in_any_encoding(tmp_path: Path) -> None:
    name = os.fsdecode(b"b\xe4.py")
    write(str(tmp_path), Mark("place", "digest", (name,)))
    assert read_mark(str(tmp_path)) == Mark("place", "digest", (name,))
    assert json.loads((tmp_path / MARK).read_text())["files"] == [name]


@pytest.mark.parametrize("name", ["deepspeed_shm_comm/lock", "py311_cpu/deepspeed_shm_comm/lock"])
def test_a_lock_that_nobody_holds_is_told_of(tmp_path: Path, name: str) -> None:
    lock = tmp_path / name
    lock.parent.mkdir(parents=True)
    environ = {"TORCH_EXTENSIONS_DIR": str(tmp_path)}
    assert warnings(environ) == []
    lock.touch()
    (warning,) = warnings(environ)
    assert str(lock) in warning
    held = os.open(lock, os.O_RDONLY)
    assert warnings(environ) == []
    os.close(held)
    assert len(warnings(environ)) == 1


def test_no_folder_is_no_lock(tmp_path: Path) -> None:
    assert warnings({"HOME": str(tmp_path)}) == []
    assert warnings({"TORCH_EXTENSIONS_DIR": str(tmp_path / "none")}) == []
    (tmp_path / "lock").touch()
    assert warnings({"TORCH_EXTENSIONS_DIR": str(tmp_path)}) == [], "not beside an extension"


def test_the_folder_is_torchs(tmp_path: Path) -> None:
    assert folder_of({"HOME": "/home/me"}) == "/home/me/.cache/torch_extensions"
    assert folder_of({"HOME": "/home/me", "XDG_CACHE_HOME": "/cache"}) == "/cache/torch_extensions"
    assert folder_of({"HOME": "/home/me", "TORCH_EXTENSIONS_DIR": "/e"}) == "/e"


def test_processes_that_may_not_be_looked_into_are_passed_over(tmp_path: Path) -> None:
    lock = tmp_path / "extension" / "lock"
    lock.parent.mkdir()
    lock.touch()
    proc = tmp_path / "proc"
    (proc / "12").mkdir(parents=True)
    (proc / "13" / "fd").mkdir(parents=True)
    (proc / "13" / "fd" / "3").symlink_to(lock)
    assert warnings({"TORCH_EXTENSIONS_DIR": str(tmp_path)}, str(proc)) == []
