from __future__ import annotations

import io
import os
import stat
import tarfile
from pathlib import Path

import pytest

from musterpoint.base.errors import FetchError
from musterpoint.core.code import fetch as module
from musterpoint.core.code.fetch import Stage, fetch
from musterpoint.core.code.project import MARK, PART
from musterpoint.core.code.source import Source

from .conftest import Bench


def bring(bench: Bench, source: Source) -> Path:
    code = bench.folder / "ml" / "code"
    fetch(source, str(code), "", bench.environ, "/none/python", bench.tools)
    return code


def packed(path: Path, *names: str) -> Path:
    with tarfile.open(path, "w:gz") as made:
        for name in names:
            member = tarfile.TarInfo(name)
            member.size = 2
            made.addfile(member, io.BytesIO(b"hi"))
    return path


def left(code: Path) -> list[str]:
    """The names in the code directory and beside it, without the mark."""
    found = [path.name for folder in (code, code.parent) if folder.exists() for path in folder.iterdir()]
    return sorted(name for name in found if name != MARK)


def test_an_archive_becomes_the_code(bench: Bench, tmp_path: Path) -> None:
    source = packed(tmp_path / "sourcedir.tar.gz", "train.py", "lib/part.py")
    code = bring(bench, Source("file", str(source)))
    assert (code / "lib" / "part.py").read_text() == "hi"
    assert left(code) == ["code", "lib", "train.py"]
    assert stat.S_IMODE(code.stat().st_mode) == 0o755
    assert bench.said == [f"unpacked {source}: 2 members, 0.0 MiB"]
    assert [(name, facts["source"]) for name, facts in bench.moments] == [("code-fetched", str(source))]


def test_one_file_becomes_the_code(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print(1)")
    assert left(bring(bench, Source("file", str(tmp_path / "train.py")))) == ["code", "train.py"]


@pytest.mark.parametrize("content", [b"", b"<html>Forbidden</html>"])
@pytest.mark.parametrize("name", ["sourcedir.tar.gz", "code.tar.zst", "code.7z"])
def test_a_file_that_is_no_archive_but_is_called_one(content: bytes, name: str, bench: Bench, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(FetchError, match=rf"{name} can't be unpacked: it is no archive \({len(content)} bytes"):
        bring(bench, Source("file", str(tmp_path / name)))
    assert left(bench.folder / "ml" / "code") == ["code"]


def test_a_directory_is_copied_and_stays_as_it_was(bench: Bench, tmp_path: Path) -> None:
    source = tmp_path / "source"
    (source / "lib").mkdir(parents=True)
    (source / "run.sh").write_text("")
    (source / "run.sh").chmod(0o755)
    (tmp_path / "common").mkdir()
    (tmp_path / "common" / "shared.py").write_text("shared")
    for name, target in (("inside", "lib"), ("lib/up", "../run.sh"), ("dangling", "nowhere"), ("out", "../common"),
                         ("absolute", str(tmp_path / "common"))):  # fmt: skip
        (source / name).symlink_to(target)
    code = bring(bench, Source("directory", str(source)))
    assert os.access(code / "run.sh", os.X_OK)
    assert {name: os.readlink(code / name) for name in ("inside", "lib/up", "dangling")} == {
        "inside": "lib", "lib/up": "../run.sh", "dangling": "nowhere",
    }  # fmt: skip
    assert (code / "out" / "shared.py").read_text() == "shared", "a link that leads out leads to the same place"
    assert (code / "absolute").samefile(tmp_path / "common")


def test_a_code_directory_inside_its_own_source(bench: Bench) -> None:
    """A local job's tree lies below the directory the job was started from."""
    (bench.folder / "train.py").write_text("")
    (bench.folder / "muster-jobs" / "old").mkdir(parents=True)
    assert left(bring(bench, Source("directory", str(bench.folder)))) == ["code", "train.py"]


@pytest.mark.parametrize("kind", ["file", "directory"])
def test_what_goes_wrong_leaves_nothing(kind: str, bench: Bench, tmp_path: Path) -> None:
    if kind == "file":
        source = packed(tmp_path / "bad.tar.gz", "train.py", "../out")
        source.write_bytes(source.read_bytes()[:-9])
    else:
        source = tmp_path / "source"
        source.mkdir()
        (source / "train.py").write_text("")
        os.mkfifo(source / "pipe")
    with pytest.raises(FetchError) as error:
        bring(bench, Source(kind, str(source)))
    assert str(source) in str(error.value)
    assert left(tmp_path / "ml" / "code") == ["code"]


def test_what_an_earlier_attempt_left_is_removed(bench: Bench, tmp_path: Path) -> None:
    for folder in (tmp_path / "ml" / PART, tmp_path / "ml" / "code" / PART):
        (folder / "tree").mkdir(parents=True)
        (folder / "tree" / "half").write_text("")
    assert left(bring(bench, Source("file", str(packed(tmp_path / "a.tar.gz", "train.py"))))) == ["code", "train.py"]


def test_where_nothing_can_be_made_beside_it(bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As for a mount, which nothing can be renamed over."""
    monkeypatch.setattr(module.os.path, "ismount", lambda path: True)
    assert left(bring(bench, Source("file", str(packed(tmp_path / "a.tar.gz", "train.py"))))) == ["code", "train.py"]


def test_a_link_as_code_directory(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "ml").mkdir()
    (tmp_path / "ml" / "code").symlink_to(tmp_path / "elsewhere")
    code = bring(bench, Source("file", str(packed(tmp_path / "a.tar.gz", "train.py"))))
    assert code.is_symlink()
    assert sorted(path.name for path in (tmp_path / "elsewhere").iterdir()) == [MARK, "train.py"]


def test_a_directory_that_cannot_be_made_is_a_sentence(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "ml").write_text("")
    with pytest.raises(FetchError, match=r"the code can't be brought from .*a.tar.gz to .*ml/code: "):
        bring(bench, Source("file", str(packed(tmp_path / "a.tar.gz", "train.py"))))


def test_a_full_disk_is_a_sentence() -> None:
    assert module._why(OSError(28, "No space left on device", "/x")) == "no space is left on this host's disk"
    assert module._why(module.shutil.Error([("a", "b", "[Errno 13] no")] * 3)) == "[Errno 13] no (and 2 more)"
    assert module._why(module.shutil.Error("just words")) == "just words"


def test_the_stage_is_private_until_it_takes_its_place(tmp_path: Path) -> None:
    with Stage(str(tmp_path / "code")) as stage:
        assert stat.S_IMODE(os.stat(os.path.dirname(stage.tree)).st_mode) == 0o700
        assert os.stat(stage.path(".")).st_dev == os.stat(tmp_path).st_dev
    assert [path.name for path in tmp_path.iterdir()] == ["code"]
