"""What the kernel's files say, and what reads as nothing."""

from __future__ import annotations

from pathlib import Path

from musterpoint.fabric.devices import entries, read


def test_what_is_there(tmp_path: Path) -> None:
    (tmp_path / "version").write_bytes(b"NVRM \xff\n")
    assert entries(str(tmp_path)) == ["version"]
    assert read(str(tmp_path / "version")) == "NVRM \ufffd\n"


def test_what_is_not_there_is_nothing(tmp_path: Path) -> None:
    assert entries(str(tmp_path / "none")) == []
    assert read(str(tmp_path / "none")) == ""
    assert read(str(tmp_path)) == ""
