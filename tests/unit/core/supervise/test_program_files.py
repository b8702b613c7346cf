"""What a diagnosis may read of the user's program: text files of a sensible size, and no more than that."""

from __future__ import annotations

import os
from pathlib import Path

from musterpoint.core.supervise.context import LARGEST, CodeDirectory


def test_a_file_is_read_by_either_name(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_bytes(b"x = '\xff'\n")
    files = CodeDirectory(str(tmp_path))
    assert files.read("train.py") == files.read(str(tmp_path / "train.py")) == "x = '\ufffd'\n"


def test_what_is_no_such_file_has_no_text(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo.py")
    (tmp_path / "large.py").write_bytes(b"#" * (LARGEST + 1))
    (tmp_path / "empty.py").touch()
    files = CodeDirectory(str(tmp_path))
    assert [files.read(name) for name in ("fifo.py", "large.py", "empty.py", ".", "gone.py", "a\0b")] == [None] * 6


def test_the_programs_are_the_python_files_of_the_directory(tmp_path: Path) -> None:
    for name in ("b.py", "a.py", "notes.txt"):
        (tmp_path / name).write_text(name)
    assert list(CodeDirectory(str(tmp_path)).programs()) == ["a.py", "b.py"]
    assert list(CodeDirectory(str(tmp_path / "gone")).programs()) == list(CodeDirectory("").programs()) == []


def test_a_link_is_known_by_both_names(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    assert CodeDirectory(str(tmp_path / "link")).directories == (str(tmp_path / "link"), str(tmp_path))
    assert CodeDirectory("").directories == ()
