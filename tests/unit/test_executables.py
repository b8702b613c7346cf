from __future__ import annotations

from pathlib import Path

import pytest

from musterpoint.executables import find


@pytest.fixture
def folders(tmp_path: Path) -> str:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    (tmp_path / "a" / "tool").write_text("not executable")
    (tmp_path / "a" / "folder").mkdir()
    tool = tmp_path / "b" / "tool"
    tool.write_text("")
    tool.chmod(0o755)
    return f"{tmp_path}/a:{tmp_path}/b"


def test_the_first_executable_file(folders: str, tmp_path: Path) -> None:
    assert find("tool", {"PATH": folders}) == str(tmp_path / "b" / "tool")


@pytest.mark.parametrize("command", ["", "folder", "none", "a/tool", "nul\0"])
def test_nothing_to_start(folders: str, command: str) -> None:
    assert find(command, {"PATH": folders}) == ""


def test_without_path_the_systems_own_is_used() -> None:
    assert find("sh", {}).endswith("/sh")
