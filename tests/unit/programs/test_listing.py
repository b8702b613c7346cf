"""The files that are there, on a real file system."""

from __future__ import annotations

import os
from pathlib import Path

from musterpoint.programs.upload_ledger import has_files, is_private, is_written, listing, version_of


def test_links_to_files_count_and_private_and_linked_directories_do_not(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("a")
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "b").write_text("bb")
    (tmp_path / ".tmp.mine").mkdir()
    (tmp_path / ".tmp.mine" / "c").write_text("c")
    (tmp_path / ".hidden").write_text("h")
    (tmp_path / "link").symlink_to("a")
    (tmp_path / "circle").symlink_to(".")
    (tmp_path / "nowhere").symlink_to("missing")
    os.mkfifo(tmp_path / "pipe")
    found = listing(str(tmp_path))
    assert sorted(found) == [".hidden", "a", "link", "sub/b"]
    assert found["link"] == found["a"]
    assert listing(str(tmp_path), "sub") == {"sub/b": found["sub/b"]}
    assert listing(str(tmp_path), ".tmp.mine") == {}
    assert is_private(".tmp.mine/deep/c")
    assert not is_private(".tmp.file")


def test_versions_tell_contents_apart(tmp_path: Path) -> None:
    path = tmp_path / "a"
    assert version_of(str(path)) is None
    path.write_text("1")
    first = version_of(str(path))
    (tmp_path / "b").write_text("2")
    os.utime(tmp_path / "b", ns=(path.stat().st_mtime_ns, path.stat().st_mtime_ns))
    os.replace(tmp_path / "b", path)
    assert version_of(str(path)) not in (first, None)
    assert version_of(str(tmp_path)) is None
    assert version_of("\0") is None


def test_what_is_open_for_writing(tmp_path: Path) -> None:
    path = tmp_path / "a"
    with open(path, "w") as file:
        file.write("half")
        file.flush()
        before = is_written(str(path))
    after = is_written(str(path))
    # a file system without leases can't tell
    assert (before, after) in ((True, False), (None, None))
    with open(path):
        assert not is_written(str(path))
    assert is_written(str(tmp_path / "missing")) is None


def test_whether_there_is_anything(tmp_path: Path) -> None:
    (tmp_path / "sub" / "deep").mkdir(parents=True)
    assert not has_files(str(tmp_path))
    (tmp_path / "sub" / "deep" / "a").touch()
    assert has_files(str(tmp_path))
