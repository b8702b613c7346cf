from __future__ import annotations

from pathlib import Path

import pytest

from musterpoint.code.project import PART, holds_something, may_want_packages


def test_what_an_interrupted_fetch_left_is_no_code(tmp_path: Path) -> None:
    assert not holds_something(str(tmp_path))
    assert not holds_something(str(tmp_path / "none"))
    (tmp_path / PART).mkdir()
    assert not holds_something(str(tmp_path))
    (tmp_path / ".hidden").touch()
    assert holds_something(str(tmp_path))


@pytest.mark.parametrize(
    ("name", "wants"),
    [("requirements.txt", True), ("setup.py", True), ("pyproject.toml", True), ("uv.lock", False), ("train.py", False)],
)
def test_files_that_an_installer_reads(name: str, wants: bool, tmp_path: Path) -> None:
    assert not may_want_packages(str(tmp_path))
    (tmp_path / name).touch()
    assert may_want_packages(str(tmp_path)) == wants
